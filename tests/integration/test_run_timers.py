"""Timers end to end: `penstock run` with real Spark, killed in parts while timers are due."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.run_harness import Run, kill_with_records_waiting, read_rows, tasks_held

SHARDS = 8
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: reminders}}
spec:
  code: {{module: reminders}}
  operators:
  - name: lines
    source: {{files: {{glob: "texts/*.txt", format: text}}}}
  - name: numbers
    inputs: [lines]
    map: reminders:split
    outputSchema: "key string, number long"
  - name: remind
    inputs: [numbers]
    keyBy: [key]
    processor: reminders:Remind
    timeMode: ProcessingTime
    outputSchema: "key string, number long, fired long"
    shards: {SHARDS}
  - name: reminded
    inputs: [remind]
    sink: {{files: {{path: out/, format: jsonl}}}}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor

STEP_MS = 10_000


def split(line):
    key, number = line.value.split()
    return [(key, int(number))]


class Remind(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.fired = handle.getValueState("fired", "n long")

    def handleInputRows(self, key, rows, timerValues):
        step = (timerValues.getCurrentProcessingTimeInMs() + 2_000) // STEP_MS
        for row in rows:
            # A timer tells its row by its expiry; about half of them are in the past.
            self.handle.registerTimer(step * STEP_MS + row.number)
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        fired = (self.fired.get() or (0,))[0] + 1
        self.fired.update((fired,))
        yield (key[0], expiredTimerInfo.getExpiryTimeInMs() % STEP_MS, fired)

    def close(self):
        pass
"""
KEYS = 40
LINES, MORE_LINES = 3_600, 600

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def write_numbers(path: Path, first: int, count: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"k{number % KEYS} {number}\n" for number in range(first, first + count)))


def start(runs: list[Run], folder: Path) -> Run:
    arguments = ("--workers", "1", "--set", "lines.source.files.ratePerSecond=300")
    run = Run(folder / "topology.yaml", folder / "state", arguments)
    runs.append(run)
    run.start()
    return run


def assert_fired_once(folder: Path, numbers: int) -> None:
    """Each timer's row is there once, and the firings of a key are numbered without a hole."""
    rows = list(read_rows(folder / "out"))
    twice = {number: n for number, n in Counter(row["number"] for row in rows).items() if n > 1}
    assert twice == {}
    fired: dict[str, list[int]] = {}
    for row in rows:
        fired.setdefault(str(row["key"]), []).append(int(str(row["fired"])))
    assert {key: found == list(range(1, len(found) + 1)) for key, found in fired.items()} == dict.fromkeys(
        fired, True
    )
    assert {row["number"] for row in rows} >= set(range(numbers))


def test_timers_fire_once_whatever_is_killed_while_they_are_due(tmp_path: Path, runs: list[Run]):
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "reminders.py").write_text(CODE)
    write_numbers(tmp_path / "texts" / "a.txt", 0, LINES)
    run = start(runs, tmp_path)
    for victim in ("task", "store", "task"):
        before = run.completed("remind", SHARDS)
        eventually(lambda seen=before: run.completed("remind", SHARDS) > seen + 300, "rows of a second")
        eventually(lambda: bool(run.tasks("remind")), "a task")
        if victim == "task":
            kill_with_records_waiting(
                run, [run.tasks("remind")[0].pid], lambda: run.waiting("remind", SHARDS)
            )
        else:
            with tasks_held(run, "remind"):
                eventually(lambda: run.waiting("remind", SHARDS) > 0, "rows in the inboxes")
                os.kill(run.store_pid(), signal.SIGKILL)
    assert run.finish() == 0, run.output
    # What the end of the input cut off fires when the topology goes on.
    write_numbers(tmp_path / "texts" / "b.txt", LINES, MORE_LINES)
    again = start(runs, tmp_path)
    assert again.finish() == 0, again.output
    assert "resumes" in again.output
    assert_fired_once(tmp_path, LINES)
