"""What `make raise-protocol` does to the store's protocol, on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.raise_protocol import FOLDER, raise_protocol

from penstock.store.redis.library import PROTOCOL_VERSION, function_library


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "redis", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_released_library_becomes_the_one_before_and_the_numbers_go_up_by_one(copied: Path) -> None:
    raised = PROTOCOL_VERSION + 1
    assert raise_protocol(copied, function_library(), PROTOCOL_VERSION) == raised
    assert (copied / "functions" / "previous.lua").read_bytes() == function_library()
    lua = (copied / "functions" / "shared" / "library.lua").read_text()
    assert lua.startswith(f"#!lua name=penstock_{raised}\n")
    assert f"\nlocal VERSION = {raised}\n" in lua
    assert f"\nPROTOCOL_VERSION = {raised}\n" in (copied / "library.py").read_text()


def test_a_number_that_is_not_where_it_was_is_told(copied: Path) -> None:
    with pytest.raises(SystemExit, match=r"library\.lua: 0 lines are like"):
        raise_protocol(copied, function_library(), PROTOCOL_VERSION + 5)
