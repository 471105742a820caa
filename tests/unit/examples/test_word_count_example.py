"""The word count's own comparison, by which `make demo` shows that totals are right, finds what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from house import ROOT

COMPARE = ROOT / "examples" / "word-count" / "compare.py"
ROWS = [("ash", 1), ("größe", 1), ("ash", 3), ("w_1", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts" / "part").mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").write_text("Ash, Größe!\n", encoding="utf-8")
    (tmp_path / "texts" / "part" / "b.txt").write_text("ash w_1 ASH\n", encoding="utf-8")
    return tmp_path


def compared(folder: Path, rows: list[tuple[str, int]]) -> tuple[int, str]:
    """Exit code and output, with these rows in two of the sink's files."""
    (folder / "out").mkdir()
    for number in range(2):
        lines = [json.dumps({"word": word, "total": total}) + "\n" for word, total in rows[number::2]]
        (folder / "out" / f"count-{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(COMPARE), "--texts", str(folder / "texts"), "--out", str(folder / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


def test_right_totals_are_said_to_be_right(folder: Path) -> None:
    code, said = compared(folder, ROWS)
    assert code == 0
    assert "All 3 totals equal a plain count of the same 5 words." in said
    assert "3  ash" in said


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS[:2], "ash: counted 3 times apart, Penstock's total is 1"),
        ([*ROWS, ("ash", 4)], "ash: counted 3 times apart, Penstock's total is 4"),
        ([*ROWS, ("sea", 1)], "sea: counted 0 times apart, Penstock's total is 1"),
        ([], "größe: counted 1 times apart, Penstock's total is 0"),
    ],
    ids=["lost", "twice", "made up", "nothing"],
)
def test_wrong_totals_are_named(folder: Path, rows: list[tuple[str, int]], told: str) -> None:
    code, said = compared(folder, rows)
    assert code == 1
    assert told in said


def test_without_texts_it_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    code, said = compared(tmp_path, ROWS)
    assert code == 1
    assert "run make texts first" in said
