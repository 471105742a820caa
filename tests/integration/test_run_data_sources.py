"""Data sources of users' own and sinks of user code end to end: `penstock run` with real Spark, killed in
parts while they are read and written."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.live_processes import kill_tree
from processes.run_harness import Run, read_rows, rows_so_far

NUMBERS, FILES, LINES, SQUARES = 3000, 60, 50, 3000
SHARDS = 4
PATIENCE_S = 200.0
"""A worker with five executors starts, twice; that takes its time where others work."""
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: sources}}
spec:
  code: {{module: users_code}}
  operators:
  - name: numbers
    source:
      dataSource:
        class: users_sources:Counter
        schema: "number bigint, partition int"
        options: {{upTo: "{NUMBERS}", perRange: "70", rowsPerSecond: "150", log: "{folder}/numbers.log"}}
        pollInterval: 200ms
  - name: lines
    source:
      dataSource:
        class: users_sources:FolderLines
        schema: "file string, line string"
        options: {{folder: "{folder}/texts", filesMax: "2", rowsPerSecond: "150", log: "{folder}/lines.log"}}
  - name: squares
    source:
      dataSource:
        class: users_sources:Table
        schema: "number bigint, square double"
        options: {{rows: "{SQUARES}", partitions: "60", rowsPerSecond: "150", batchRows: "7"}}
  - name: named
    inputs: [numbers]
    map: users_code:named
    outputSchema: "word string, n bigint"
  - name: count
    inputs: [named]
    keyBy: [word]
    processor: users_code:Count
    outputSchema: "word string, n bigint"
    shards: {SHARDS}
  - name: numbers-out
    inputs: [numbers]
    sink: {{files: {{path: numbers/}}}}
  - name: lines-out
    inputs: [lines]
    sink: {{files: {{path: lines/}}}}
  - name: squares-out
    inputs: [squares]
    sink: {{files: {{path: squares/}}}}
  - name: ledger
    inputs: [count]
    sink: {{dataSource: {{class: "users_sinks:Ledger", options: {{folder: "{folder}/ledger"}}}}}}
  - name: notes
    inputs: [count]
    sink: {{foreach: {{call: "users_sinks:Notes"}}}}
"""
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def started(folder: Path, runs: list[Run], text: str) -> Run:
    for name in ("users_code.py", "users_sources.py", "users_sinks.py"):
        shutil.copy(Path(__file__).parents[1] / "scenes" / name, folder)
    (folder / "topology.yaml").write_text(text)
    env = {"NOTES": str(folder / "notes.log")}
    run = Run(folder / "topology.yaml", folder / "state", ("--workers", "1"), env)
    runs.append(run)
    run.start()
    return run


def written(folder: Path, name: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in read_rows(folder / name)]


def noted(file: Path) -> list[list[object]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow(held_by="test_owners_that_are_killed_at_any_step_lose_and_double_nothing")
def test_each_row_is_read_once_whatever_is_killed(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(FILES):
        lines = "".join(f"line {line} of {number}\n" for line in range(LINES))
        (tmp_path / f"texts/{number:03}.txt").write_text(lines)
    text = MANIFEST.format(folder=tmp_path, NUMBERS=NUMBERS, SQUARES=SQUARES, SHARDS=SHARDS)
    run = started(tmp_path, runs, text)

    totals = {"numbers": NUMBERS, "lines": FILES * LINES, "squares": SQUARES}

    def unread() -> dict[str, int]:
        """Of the sources that are not at their end: rows that are written."""
        seen = {name: rows_so_far(tmp_path / name) for name in totals}
        return {name: rows for name, rows in seen.items() if rows < totals[name]}

    for victim in ("numbers", "lines", "squares", "count", "store", "worker"):
        before = unread()
        assert victim in before or (victim not in totals and before), "all was read before all were killed"
        eventually(
            lambda: all(rows > before.get(name, 0) + 60 for name, rows in unread().items()),  # noqa: B023
            f"some rows before {victim} is killed",
            PATIENCE_S,
        )
        if victim == "store":
            os.kill(run.store_pid(), signal.SIGKILL)
        elif victim == "worker":
            kill_tree(run.ready_worker("w0").pid)
        else:
            eventually(lambda name=victim: bool(run.tasks(name)), "its task")
            os.kill(run.tasks(victim)[0].pid, signal.SIGKILL)

    def are_all_there() -> bool:
        # What a shard's last batch has is told before it is acknowledged; the files are the ledger's own.
        in_ledger = sum(len(json.loads(f.read_text())) for f in (tmp_path / "ledger").glob("*.json"))
        return not unread() and in_ledger == NUMBERS

    while not are_all_there():
        before = unread()
        # A worker's start takes its time where others work; while some come, all will.
        eventually(
            lambda: are_all_there() or unread() != before,  # noqa: B023
            f"more rows than {before}, or those of the ledger",
            PATIENCE_S,
        )
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() in (0, 130), run.output

    assert [number for number, _ in sorted(written(tmp_path, "numbers"))] == list(range(NUMBERS))
    assert sorted(written(tmp_path, "lines")) == sorted(
        (f"{number:03}.txt", f"line {line} of {number}") for number in range(FILES) for line in range(LINES)
    )
    assert sorted(written(tmp_path, "squares")) == [(n, float(n * n)) for n in range(SQUARES)]
    committed = [int(line.split()[1]) for line in (tmp_path / "numbers.log").read_text().splitlines()
                 if line.startswith("commit")]  # fmt: skip
    assert committed == sorted(committed), "ranges are told in order"
    assert set(committed) >= {*range(70, NUMBERS, 70)}, "each at least once"
    _assert_batches(tmp_path)


def _assert_batches(folder: Path) -> None:
    """What user code was given: ids without a hole, a batch that came again as it was, each row once."""
    expected = sorted(
        (f"w{word}", n) for word in range(7) for n in range(1, len(range(word, NUMBERS, 7)) + 1)
    )
    batches = {int(file.stem): json.loads(file.read_text()) for file in (folder / "ledger").glob("*.json")}
    _assert_no_hole({(key >> 40, key & (1 << 40) - 1) for key in batches})
    assert sorted((row["word"], row["n"]) for rows in batches.values() for row in rows) == expected

    given: dict[tuple[int, int], list[object]] = {}
    closed: dict[tuple[int, int], list[object]] = {}
    for step, partition, epoch, *more in noted(folder / "notes.log"):
        key = (int(str(partition)), int(str(epoch)))
        if step == "open":
            given[key] = []
        elif step == "process":
            given[key].append(more[0])
        else:
            assert more == [None]
            assert closed.setdefault(key, given[key]) == given[key], "a batch came again with other rows"
    assert closed.keys() == given.keys()
    _assert_no_hole(set(closed))
    rows = [row for rows in closed.values() for row in rows]
    assert sorted((row["word"], row["n"]) for row in rows if isinstance(row, dict)) == expected


def _assert_no_hole(keys: set[tuple[int, int]]) -> None:
    by_shard: dict[int, set[int]] = {}
    for shard, number in keys:
        by_shard.setdefault(shard, set()).add(number)
    assert by_shard.keys() <= set(range(SHARDS))
    for numbers in by_shard.values():
        assert numbers == set(range(len(numbers)))


@pytest.mark.slow(held_by="test_a_processor_that_raises_stops_the_run_and_nothing_is_lost")
def test_a_source_that_raises_stops_the_run_with_file_and_line(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "broken.py").write_text(
        "from pyspark.sql.datasource import *\n"
        "class Broken(DataSource):\n"
        "    def reader(self, schema):\n"
        "        return Reader()\n"
        "class Reader(DataSourceReader):\n"
        "    def read(self, partition):\n"
        "        yield (1,)\n"
        "        raise ValueError('no more today')\n"
    )
    text = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: broken}
spec:
  operators:
  - name: in
    source: {dataSource: {class: "broken:Broken", schema: "n bigint"}}
  - name: out
    inputs: [in]
    sink: {files: {path: out/}}
"""
    run = started(tmp_path, runs, text)
    assert run.finish() == 1
    told = " ".join(run.output.split())
    assert "operator in: Reader.read raised on InputPartition" in told
    assert f'File "{tmp_path}/broken.py", line 8, in read' in told
    assert "ValueError: no more today" in told


@pytest.mark.slow(held_by="test_a_crash_of_user_code_is_told_with_operator_shard_key_and_ending")
def test_a_sink_that_crashes_its_process_stops_the_run_with_its_shard(
    tmp_path: Path, runs: list[Run]
) -> None:
    text = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: crashing}
spec:
  operators:
  - name: in
    source:
      dataSource: {class: "users_sources:Table", schema: "number bigint, square double", options: {rows: "9"}}
  - name: out
    inputs: [in]
    sink: {foreach: {call: "crashing:crash"}}
"""
    (tmp_path / "crashing.py").write_text(
        "import os, signal\ndef crash(row):\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    run = started(tmp_path, runs, text)
    assert run.finish() == 1
    told = " ".join(run.output.split())
    assert "was killed by SIGSEGV as it worked on shard in/0" in told
    assert f'File "{tmp_path}/crashing.py", line 3 in crash' in told
