"""Dead letters end to end: `penstock run` with real Spark and Redis, killed in parts while code fails on
rows, and what was kept apart worked on again by `penstock dead-letters` once the cause is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, kill_with_records_waiting, read_rows, tasks_held

SHARDS = 8
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: letters}}
spec:
  code: {{module: letters}}
  operators:
  - name: lines
    source: {{files: {{glob: "texts/*.jsonl", format: jsonl, schema: "word string, number long"}}}}
    onError: DeadLetter
  - name: words
    inputs: [lines]
    map: letters:checked
    outputSchema: "word string, number long"
    onError: DeadLetter
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: letters:Count
    outputSchema: "word string, number long, total long"
    shards: {SHARDS}
    onError: DeadLetter
  - name: counted
    inputs: [count]
    sink: {{files: {{path: out/, format: jsonl}}}}
"""
CODE = """
from pathlib import Path

from pyspark.sql.streaming import StatefulProcessor

MENDED = Path(__file__).parent / "mended"


def checked(row):
    if row.number % 50 == 7 and not MENDED.exists():
        raise ValueError(f"number {row.number} is not allowed")
    return [row]


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n long")
        self.seen = handle.getMapState("seen", "n long", "n long")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0]
        for row in rows:
            total += 1
            self.total.update((total,))
            self.seen.updateValue((row.number,), (total,))
            if key[0] == "poison" and not MENDED.exists():
                raise ValueError("this word is poison")
            yield (key[0], row.number, total)

    def close(self):
        pass
"""
LINES = 3_000
WORDS = ("ash", "elm", "oak", "poison", "sea", "fir", "bay", "yew", "fig", "box")
BAD_LINE = '{"word": "torn", "number": \n'

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def word_of(number: int) -> str:
    return WORDS[number * 7 % len(WORDS)]


def write_lines(folder: Path) -> None:
    folder.mkdir()
    lines = [json.dumps({"word": word_of(n), "number": n}) + "\n" for n in range(LINES)]
    lines[LINES // 2 : LINES // 2] = [BAD_LINE]
    (folder / "a.jsonl").write_text("".join(lines))


def start(runs: list[Run], folder: Path) -> Run:
    arguments = ("--workers", "1", "--set", "lines.source.files.ratePerSecond=250")
    run = Run(folder / "topology.yaml", folder / "state", arguments)
    runs.append(run)
    run.start()
    return run


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "penstock_operator.cli", "dead-letters", *arguments]
    return subprocess.run(
        [*called, "--state-dir", str(folder / "state")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_the_sink(folder: Path, operator: str) -> list[dict[str, Any]]:
    """The letters of an operator below `dead`."""
    return [row for row in read_rows(folder / "dead") if row["operator"] == operator]


def listed(folder: Path) -> list[dict[str, Any]]:
    told = command(folder, "list", "letters", "--json")
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def numbers_of(letters: list[dict[str, Any]], operator: str) -> list[int]:
    return sorted(row[1] for letter in letters if letter["operator"] == operator for row in letter["rows"])


def totals(folder: Path) -> dict[str, list[int]]:
    """Word -> its numbers, each once; the totals of a word have no hole."""
    numbers: dict[str, list[int]] = {}
    counted: dict[str, list[int]] = {}
    for row in read_rows(folder / "out"):
        numbers.setdefault(str(row["word"]), []).append(int(str(row["number"])))
        counted.setdefault(str(row["word"]), []).append(int(str(row["total"])))
    for word, found in counted.items():
        assert found == list(range(1, len(found) + 1)), word
    return {word: sorted(found) for word, found in numbers.items()}


def kill_in_parts(run: Run, look: Callable[[], object]) -> None:
    """Kill a task, the store and a task again, while code fails; `look` at the letters in between."""
    for victim in ("task", "store", "task"):
        before = run.completed("count", SHARDS)
        eventually(lambda seen=before: run.completed("count", SHARDS) > seen + 200, "rows of a second")
        eventually(lambda: bool(run.tasks("count")), "a task")
        if victim == "task":
            kill_with_records_waiting(run, [run.tasks("count")[0].pid], lambda: run.waiting("count", SHARDS))
        else:
            look()
            with tasks_held(run, "count"):
                eventually(lambda: run.waiting("count", SHARDS) > 0, "rows in the inboxes")
                os.kill(run.store_pid(), signal.SIGKILL)


def test_rows_that_code_fails_on_are_kept_once_whatever_is_killed_and_worked_once_when_it_is_mended(
    tmp_path: Path, runs: list[Run]
):
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "letters.py").write_text(CODE)
    write_lines(tmp_path / "texts")
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
    expected = {
        word: [n for n in range(LINES) if word_of(n) == word and n % 50 != 7]
        for word in WORDS
        if word != "poison"
    }
    assert totals(tmp_path) == expected
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
    manifest = MANIFEST.replace("  operators:\n", "  deadLetters: {files: {path: dead/}}\n  operators:\n", 1)
    (tmp_path / "topology.yaml").write_text(manifest)
    (tmp_path / "letters.py").write_text(CODE)
    write_lines(tmp_path / "texts")
    run = start(runs, tmp_path)
    kill_in_parts(run, lambda: None)
    assert run.finish() == 0, run.output

    def numbers(operator: str) -> list[int]:
        return sorted(json.loads(row["record"])["number"] for row in in_the_sink(tmp_path, operator))

    assert numbers("words") == [n for n in range(LINES) if n % 50 == 7]
    assert numbers("count") == [n for n in range(LINES) if word_of(n) == "poison" and n % 50 != 7]
    (torn,) = in_the_sink(tmp_path, "lines")
    assert json.loads(torn["record"]) == {"line": BAD_LINE.strip("\n")}
    rows = list(read_rows(tmp_path / "dead"))
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["key"] for row in in_the_sink(tmp_path, "count")} == {'{"word":"poison"}'}
    assert totals(tmp_path) == {
        word: [n for n in range(LINES) if word_of(n) == word and n % 50 != 7]
        for word in WORDS
        if word != "poison"
    }
    told = command(tmp_path, "list", "letters")
    assert (told.returncode, told.stdout) == (0, "")
    assert (
        "Dead letters of lines, words, count go to the sink dead-letters (files below dead/)" in told.stderr
    )
    none = command(tmp_path, "replay", "letters", "--all")
    assert (none.returncode, "0 will be worked on again" in none.stdout) == (0, True)
    assert "replayed by bringing its records to the source again" in none.stderr
