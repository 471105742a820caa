"""A run whose code fails on some rows of each kind, killed in parts meanwhile: who uses it says where its
dead letters go, and what of them is there in the end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clocks.eventually import eventually
from processes.run_harness import Run, kill_stopped, kill_with_records_waiting, read_rows, tasks_held

SHARDS = 8
_MANIFEST = f"""
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
_CODE = """
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


def word_of(number: int) -> str:
    return WORDS[number * 7 % len(WORDS)]


def _write_lines(folder: Path) -> None:
    folder.mkdir()
    lines = [json.dumps({"word": word_of(n), "number": n}) + "\n" for n in range(LINES)]
    lines[LINES // 2 : LINES // 2] = [BAD_LINE]
    (folder / "a.jsonl").write_text("".join(lines))


def write(folder: Path, letters_to: str = "") -> None:
    """The project, with its input; dead letters go to the sink `letters_to`, if that is given."""
    text = _MANIFEST
    if letters_to:
        text = text.replace("  operators:\n", f"  deadLetters: {letters_to}\n  operators:\n", 1)
    (folder / "topology.yaml").write_text(text)
    (folder / "letters.py").write_text(_CODE)
    _write_lines(folder / "texts")


def start(runs: list[Run], folder: Path, env: Mapping[str, str] | None = None, lines_per_s: int = 250) -> Run:
    arguments = ("--workers", "1", "--set", f"lines.source.files.ratePerSecond={lines_per_s}")
    run = Run(folder / "topology.yaml", folder / "state", arguments, dict(env or {}))
    runs.append(run)
    run.start()
    return run


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
    """Kill tasks, the store and a task again, while code fails; `look` at the letters in between.

    A slow machine must not run out of input meanwhile. So the source stands still while others start or
    somebody looks, and is killed then: who takes it up next does not make up for the time.
    """
    _kill_a_count(run)
    reading = [task.pid for task in run.tasks("lines")]
    kill_stopped(reading, lambda: run.tasks("count"), "a task in place of the killed one")

    _rows_are_counted(run)
    with tasks_held(run, "count"):
        eventually(lambda: run.waiting("count", SHARDS) > 0, "rows in the inboxes")
        with tasks_held(run, "lines"):
            look()
            os.kill(run.store_pid(), signal.SIGKILL)

    _kill_a_count(run)


def _rows_are_counted(run: Run) -> None:
    before = run.completed("count", SHARDS)
    eventually(lambda: run.completed("count", SHARDS) > before + 200, "rows of a second")


def _kill_a_count(run: Run) -> None:
    _rows_are_counted(run)
    eventually(lambda: bool(run.tasks("count")), "a task")
    kill_with_records_waiting(run, [run.tasks("count")[0].pid], lambda: run.waiting("count", SHARDS))


def assert_each_letter_is_there_once(rows: Sequence[Mapping[str, Any]]) -> None:
    """`rows` are all that is in the sink of dead letters, in any order."""

    def of(operator: str) -> list[Mapping[str, Any]]:
        return [row for row in rows if row["operator"] == operator]

    def numbers(operator: str) -> list[int]:
        return sorted(json.loads(row["record"])["number"] for row in of(operator))

    assert numbers("words") == [n for n in range(LINES) if n % 50 == 7]
    assert numbers("count") == [n for n in range(LINES) if word_of(n) == "poison" and n % 50 != 7]
    (torn,) = of("lines")
    assert json.loads(torn["record"]) == {"line": BAD_LINE.strip("\n")}
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["key"] for row in of("count")} == {'{"word":"poison"}'}
    assert {row.get("key") for row in of("words")} == {None}


def assert_all_others_are_counted(folder: Path) -> None:
    assert totals(folder) == {
        word: [n for n in range(LINES) if word_of(n) == word and n % 50 != 7]
        for word in WORDS
        if word != "poison"
    }
