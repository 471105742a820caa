"""Dead letters end to end: `penstock run` with real Spark and Redis, killed in parts while code fails on
rows, and what was kept apart worked on again by `penstock dead-letters` once the cause is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes.run_harness import Run, read_rows
from scenes.letters_run import (
    BAD_LINE,
    LINES,
    WORDS,
    assert_all_others_are_counted,
    assert_each_letter_is_there_once,
    kill_in_parts,
    start,
    totals,
    word_of,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "penstock_operator.cli", "dead-letters", *arguments]
    return subprocess.run(
        [*called, "--state-dir", str(folder / "state")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listed(folder: Path) -> list[dict[str, Any]]:
    told = command(folder, "list", "letters", "--json")
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def numbers_of(letters: list[dict[str, Any]], operator: str) -> list[int]:
    return sorted(row[1] for letter in letters if letter["operator"] == operator for row in letter["rows"])


def test_rows_that_code_fails_on_are_kept_once_whatever_is_killed_and_worked_once_when_it_is_mended(
    tmp_path: Path, runs: list[Run]
):
    write(tmp_path)
    run = start(runs, tmp_path)

    def look() -> None:
        assert listed(tmp_path), "letters of a run that goes on"

    kill_in_parts(run, look)
    assert run.finish() == 0, run.output

    refused = [n for n in range(LINES) if n % 50 == 7]
    poison = [n for n in range(LINES) if word_of(n) == "poison" and n % 50 != 7]
    letters = listed(tmp_path)
    assert numbers_of(letters, "words") == refused
    assert numbers_of(letters, "count") == poison
    assert [letter["rows"] for letter in letters if letter["operator"] == "lines"] == [[BAD_LINE.strip("\n")]]
    assert {letter["key"][0] for letter in letters if letter["operator"] == "count"} == {"poison"}
    assert_all_others_are_counted(tmp_path)
    shown = command(tmp_path, "show", "letters", letters[0]["id"])
    assert shown.returncode == 0
    assert "Traceback" in shown.stdout or "line" in shown.stdout

    (tmp_path / "mended").touch()
    for arguments in (("--operator", "words"), ("--operator", "count")):
        told = command(tmp_path, "replay", "letters", *arguments)
        assert told.returncode == 0, told.stderr
        assert "by the next run" in told.stdout
    again = start(runs, tmp_path)
    assert again.finish() == 0, again.output
    assert [letter["operator"] for letter in listed(tmp_path)] == ["lines"]
    assert totals(tmp_path) == {word: [n for n in range(LINES) if word_of(n) == word] for word in WORDS}


def test_letters_are_in_their_sink_once_whatever_is_killed(tmp_path: Path, runs: list[Run]):
    write(tmp_path, "{files: {path: dead/}}")
    run = start(runs, tmp_path)
    kill_in_parts(run, lambda: None)
    assert run.finish() == 0, run.output

    assert_each_letter_is_there_once(list(read_rows(tmp_path / "dead")))
    assert_all_others_are_counted(tmp_path)
    told = command(tmp_path, "list", "letters")
    assert (told.returncode, told.stdout) == (0, "")
    assert (
        "Dead letters of lines, words, count go to the sink dead-letters (files below dead/)" in told.stderr
    )
    none = command(tmp_path, "replay", "letters", "--all")
    assert (none.returncode, "0 will be worked on again" in none.stdout) == (0, True)
    assert "replayed by bringing its records to the source again" in none.stderr
