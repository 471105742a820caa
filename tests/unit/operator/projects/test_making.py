"""What documents show of tests is right for the project that `penstock new` makes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from house import ROOT
from penstock_operator.projects.making import make_project

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    make_project("documented-count", "count", tmp_path)
    monkeypatch.chdir(tmp_path / "documented-count")
    yield tmp_path / "documented-count"
    sys.modules.pop("documented_count", None)


def example(document: str, wanted: str) -> str:
    """The first block of Python in which this stands."""
    return next(code for code in PYTHON.findall((ROOT / document).read_text()) if wanted in code)


@pytest.mark.parametrize("document", ["docs/testing.md", "README.md"])
def test_the_test_that_a_document_shows_passes(document: str, project: Path) -> None:
    names: dict[str, Any] = {"__file__": str(project / "test_documented_count.py")}
    exec(example(document, "def test_each_user_has_a_total"), names)
    names["test_each_user_has_a_total"]()
