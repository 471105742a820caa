"""A folder of a sink that cannot be written into is told before anything starts, and nothing is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.connectors.files import JsonlSink


def told(folder: Path, path: str = "out/deep") -> list[str]:
    return JsonlSink("totals", path).warnings(folder)


def test_a_folder_that_is_there_or_can_be_made_is_right(tmp_path: Path) -> None:
    assert told(tmp_path) == []
    (tmp_path / "out/deep").mkdir(parents=True)
    assert told(tmp_path) == told(tmp_path, str(tmp_path / "else")) == []


@pytest.mark.parametrize("made", ["out", "out/deep"])
def test_a_file_in_the_way_is_told(tmp_path: Path, made: str) -> None:
    (tmp_path / made).parent.mkdir(exist_ok=True)
    (tmp_path / made).write_text("x")
    assert told(tmp_path) == [
        f"folder {tmp_path}/out/deep cannot be written into ({tmp_path / made} is no folder); "
        "mend that, or give another path"
    ]


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    assert "/out is no folder" in told(tmp_path)[0]


def test_the_nearest_folder_above_has_to_be_open_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    closed = tmp_path / "out"
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)  # root may do everything
    assert f"({closed} may not be written into)" in told(tmp_path)[0]
    assert told(tmp_path, "else") == []
