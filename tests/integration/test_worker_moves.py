"""The product's workers while their shards go to another node: a task that stood still, workers killed.

Two nodes as processes (`bench/two_nodes.py`), a worker with real Spark on each, the word count over
paced texts. `test_kills` does this at every step, with workers that are cheaper; those that are
killed here are a part of `make test-kills` alone.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from bench.two_nodes import Nodes

from clocks.eventually import eventually
from house import ROOT
from penstock.metrics.rows import TaskRow, WorkerRow, unpack
from penstock.schedule.record import ExecutorPlace
from penstock.store.port import ReadMetrics
from processes.live_processes import kill_tree
from processes.run_harness import read_rows, write_texts
from scenes.kill_scene import let_pass

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

EXAMPLE = ROOT / "examples" / "word-count"
SHARDS = 8
LINES_PER_S = 100
LONGER_THAN_THE_DELAYED_KILL_S = 3.0
LINES = ExecutorPlace("lines-wa", "wa", 1)
OLD = ExecutorPlace("count-wa", "wa", 1)
NEW = ExecutorPlace("count-wb", "wb", 1)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[Nodes, Counter[str]]]:
    """The word count runs, all of it on node a."""
    shutil.copy(EXAMPLE / "word_count.py", tmp_path)
    topology = (EXAMPLE / "topology.yaml").read_text(encoding="utf-8")
    topology = topology.replace("shards: 64", f"shards: {SHARDS}")
    topology = topology.replace("format: text}", f"format: text, ratePerSecond: {LINES_PER_S}}}")
    (tmp_path / "topology.yaml").write_text(topology, encoding="utf-8")
    expected = write_texts(tmp_path / "texts", seed=5, files=2, lines=2_000)
    nodes = Nodes(tmp_path, {"wa": "a", "wb": "b"})
    try:
        nodes.begin([LINES, OLD, NEW], {"lines": LINES.name, "count": OLD.name})
        nodes.start_stores()
        nodes.wait_applied()
        nodes.start_workers()
        nodes.wait_running([LINES, OLD, NEW])
        nodes.wait_committed(all_to(OLD), 60, "words are counted")
        yield nodes, expected
    finally:
        nodes.stop()


def all_to(executor: ExecutorPlace) -> dict[str, str]:
    return {f"count/{number}": executor.name for number in range(SHARDS)}


def rows_of(nodes: Nodes, executor: ExecutorPlace) -> list[object]:
    """The metric rows in the store of an executor's node."""
    node = nodes.workers[executor.worker].node.name
    return [unpack(name, data) for name, data in nodes.store(node).call(ReadMetrics()).items()]


def task_pid(nodes: Nodes, executor: ExecutorPlace) -> int:
    """The process of an executor's task."""
    rows = rows_of(nodes, executor)
    return next(row.pid for row in rows if isinstance(row, TaskRow) and row.executor == executor.name)


def worker_pid(nodes: Nodes, executor: ExecutorPlace) -> int:
    """The main process of an executor's worker."""
    rows = rows_of(nodes, executor)
    return next(row.pid for row in rows if isinstance(row, WorkerRow) and row.worker == executor.worker)


@contextmanager
def input_held(nodes: Nodes) -> Iterator[None]:
    """The source stands still meanwhile, so that words are left however long a worker takes to start; and its
    main process, which would start another one."""
    held = [psutil.Process(worker_pid(nodes, LINES)), psutil.Process(task_pid(nodes, LINES))]
    for process in held:
        process.suspend()
    try:
        yield
    finally:
        for process in held:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def assert_exact(nodes: Nodes, expected: Counter[str]) -> None:
    """All is counted by and by; a row of the sink is there once, and a word's rows lead up to its total."""

    def totals() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in read_rows(nodes.folder / "out"):
            found.setdefault(str(row["word"]), []).append(int(str(row["total"])))
        return found

    eventually(lambda: sum(map(max, totals().values())) >= expected.total(), "all words are counted")
    assert {word: max(found) for word, found in totals().items()} == dict(expected)
    for word, found in totals().items():
        assert found == sorted(set(found)), f"{word}: rows out of order or twice"


@pytest.mark.slow(held_by="test_every_promise_holds_whatever_fails_and_moves")
def test_a_task_that_stood_still_for_longer_than_the_delayed_kill_commits_nothing(
    counting: tuple[Nodes, Counter[str]],
) -> None:
    """Its executor is dropped in the schedule that sends its shards to the other node."""
    nodes, expected = counting
    zombie = psutil.Process(task_pid(nodes, OLD))
    zombie.suspend()
    try:
        nodes.place("count", all_to(NEW), [NEW])
        nodes.wait_moved()
        nodes.wait_committed(all_to(NEW), 60, "the new executor counts")
        let_pass(LONGER_THAN_THE_DELAYED_KILL_S)
    finally:
        with suppress(psutil.NoSuchProcess):
            zombie.resume()
    assert_exact(nodes, expected)
    counters = nodes.counters(all_to(NEW))
    assert {shard: one.executor for shard, one in counters.items()} == all_to(NEW)


@pytest.mark.skipif(os.environ.get("PENSTOCK_KILLS") != "all", reason="make test-kills kills Spark workers")
@pytest.mark.parametrize("victim", [OLD, NEW], ids=lambda executor: executor.worker)
def test_a_worker_that_is_killed_while_shards_change_nodes_loses_and_doubles_nothing(
    counting: tuple[Nodes, Counter[str]], victim: ExecutorPlace
) -> None:
    nodes, expected = counting
    worker = nodes.workers[victim.worker]
    for executor in (NEW, OLD, NEW):
        nodes.place("count", all_to(executor), [OLD, NEW])
        if executor is NEW:
            with input_held(nodes):
                killed = worker_pid(nodes, victim)
                kill_tree(killed)
                worker.wait_stopped()
                worker.start()
                eventually(lambda pid=killed: worker_pid(nodes, victim) != pid, "the worker is there again")
                nodes.wait_running([LINES, OLD, NEW])
        nodes.wait_moved()
        nodes.wait_committed(all_to(executor), 60, f"{executor.name} counts")
    assert_exact(nodes, expected)
