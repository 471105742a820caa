"""Every process of a worker's tree is watched: real Spark, processes killed and stopped one by one, and user
code that takes its process down. `test_run_processes` does the same for the run's own processes.

Gaps are not asserted here: `docs/decisions/0024` has those of a quiet machine, a busy one has others.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from clocks.eventually import eventually
from house import ROOT
from processes.gap_meter import GapMeter
from processes.live_processes import (
    command_line,
    is_another,
    is_child_of,
    is_sentinel,
    left_running,
    process_tree,
    runs_program,
)
from processes.run_harness import Run, assert_counted_exactly_once, write_texts

EXAMPLE = ROOT / "examples" / "word-count"
NOTICED_S = 10.0
"""A death is noticed at once; the rest is what a busy machine takes to tell."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("word_count.py", "topology.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    return tmp_path


def start(runs: list[Run], folder: Path, *arguments: str) -> Run:
    told = ("--workers", "1", *arguments)
    run = Run(folder / "topology.yaml", folder / "state", told)
    runs.append(run)
    run.start()
    return run


def settings(*values: str) -> tuple[str, ...]:
    return tuple(part for value in values for part in ("--set", value))


def worker_tree(run: Run) -> list[psutil.Process]:
    """The main process first."""
    return process_tree(run.ready_worker("w0").pid)


def jvm(tree: list[psutil.Process]) -> psutil.Process:
    return next(process for process in tree if runs_program("java", process))


def forker(tree: list[psutil.Process]) -> psutil.Process:
    """The process that Spark forks tasks from."""
    parent = jvm(tree).pid
    return next(p for p in tree if is_child_of(parent, p) and "task_daemon" in command_line(p))


def wait_for_rows(run: Run, meter: GapMeter) -> None:
    now_s = time.monotonic()
    eventually(lambda: meter.rows_since(now_s), "rows in the sink")


def test_whoever_of_a_workers_tree_is_killed_or_stopped_is_replaced(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=7, files=2, lines=4_000)
    rate = settings("lines.source.files.ratePerSecond=60", "count.tasks.initial=1")
    run = start(runs, folder, *rate)
    with GapMeter(folder / "out").looking() as meter:
        wait_for_rows(run, meter)

        # The only task of an operator stands still: another one takes its place, and it leaves in peace.
        (task,) = run.tasks("count")
        os.kill(task.pid, signal.SIGSTOP)
        try:
            eventually(
                lambda: any(is_another(row, [task.pid]) for row in run.tasks("count")),
                "another task",
            )
            wait_for_rows(run, meter)
        finally:
            with suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGCONT)
        eventually(lambda: not psutil.pid_exists(task.pid), "the end of the one that stood still")

        # Who forks tasks is needed for the next one only.
        tree = worker_tree(run)
        first = forker(tree)
        first.kill()
        wait_for_rows(run, meter)
        (task,) = run.tasks("count")
        os.kill(task.pid, signal.SIGKILL)
        eventually(
            lambda: any(is_another(row, [task.pid]) for row in run.tasks("count")),
            "a task after the kill",
        )
        wait_for_rows(run, meter)

        # Without its JVM a worker is none.
        tree = worker_tree(run)
        jvm(tree).kill()
        eventually(lambda: left_running(tree) == [], "the end of the worker", NOTICED_S)
        wait_for_rows(run, meter)

        # Killed as it starts again, too.
        last = jvm(worker_tree(run))
        last.kill()
        eventually(lambda: kill_next_jvm(run, last), "the next JVM")
        wait_for_rows(run, meter)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0, run.output
    assert "stands still; others take its shards" in run.output
    assert "worker w0 ended, because its JVM had" in run.output

    second = start(runs, folder)
    assert second.finish() == 0, second.output
    assert_counted_exactly_once(folder, expected)


def kill_next_jvm(run: Run, last: psutil.Process) -> bool:
    """Kill the JVM that the run's worker has started after `last`; False while there is none."""
    assert run.process is not None
    for process in process_tree(run.process.pid):
        if runs_program("java", process) and process.pid != last.pid:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                return True
    return False


def test_nothing_of_a_worker_outlives_its_main_process_though_nobody_ends_it(folder: Path, runs: list[Run]):
    write_texts(folder / "texts", seed=8, files=1, lines=4_000)
    run = start(runs, folder, *settings("lines.source.files.ratePerSecond=20"))
    tree = worker_tree(run)
    eventually(lambda: bool(run.tasks("count")), "tasks")
    assert run.process is not None
    beside = [p for p in process_tree(run.process.pid) if p.pid == run.process.pid or is_sentinel(p)]
    assert len(beside) == 2
    tree = worker_tree(run)
    for process in beside:
        process.suspend()
    try:
        # So that nobody tells the tasks, either.
        forker(tree).kill()
        tree[0].kill()
        eventually(lambda: left_running(tree) == [], "the end of all", NOTICED_S)
    finally:
        for process in beside:
            process.resume()


CRASH = """

_counted = Count.handleInputRows


def _crash(self, key, rows, timerValues):
    if key[0] == "tide7":
        {how}
    return _counted(self, key, rows, timerValues)


Count.handleInputRows = _crash
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        pytest.param(
            "import os; os._exit(7)",
            "ended itself with exit code 7",
            marks=pytest.mark.slow(held_by="test_a_crash_is_told_with_what_ended_it_and_where"),
        ),
        ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV"),
        pytest.param(
            "hold = bytearray(4 << 30); hold[::4096] = bytes(1 << 20)",
            "out of memory: the worker held",
            marks=pytest.mark.slow(
                held_by="test_the_largest_process_of_a_worker_that_holds_too_much_is_killed_and_it_is_said_why"
            ),
        ),
    ],
)
def test_a_crash_of_user_code_is_told_with_operator_shard_key_and_ending(
    how: str, told: str, folder: Path, runs: list[Run]
):
    write_texts(folder / "texts", seed=9, files=1, lines=400)
    with (folder / "word_count.py").open("a", encoding="utf-8") as code:
        code.write(CRASH.format(how=how))
    run = start(runs, folder, *settings("workers.memory=2Gi"))
    assert run.finish() == 1, run.output
    message = str(run.summary["message"])
    first = message.splitlines()[0]
    assert re.search(r"operator count: tasks crashed \d+ times in a row at shard count/\d+; last: its", first)
    assert "key tuple ('tide7',)" in first
    assert told in first
    if "SIGSEGV" in told:
        assert f'File "{folder / "word_count.py"}", line' in message
    assert "org.apache.spark" not in run.output, run.output
