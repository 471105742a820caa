"""The spine end to end: `penstock run` of the word count with real Spark, killed in every way it promises
to survive, gives the totals of a one-pass count."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from clocks.eventually import eventually
from house import ROOT
from penstock.metrics.rows import TaskRow
from processes.live_processes import is_another, left_running, process_tree
from processes.run_harness import (
    Run,
    assert_counted_exactly_once,
    assert_figures_are_right,
    kill_with_records_waiting,
    read_rows,
    tasks_held,
    write_texts,
)

EXAMPLE = ROOT / "examples" / "word-count"
SHARDS = 64

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("word_count.py", "topology.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    return tmp_path


def start(runs: list[Run], folder: Path, *arguments: str, **env: str) -> Run:
    run = Run(folder / "topology.yaml", folder / "state", arguments, env)
    runs.append(run)
    run.start()
    return run


def paced(lines_per_s: int) -> tuple[str, str]:
    return ("--set", f"lines.source.files.ratePerSecond={lines_per_s}")


@pytest.mark.slow(held_by="test_killed_workers_lose_and_repeat_no_row")
def test_killed_workers_lose_nothing_and_count_nothing_twice(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=1, files=5, lines=2_400)
    # Both workers read, so that records go on arriving for the one that is stopped.
    run = start(runs, folder, "--workers", "2", "--set", "lines.tasks.initial=2", *paced(400))
    killed: list[int] = []
    for victim in ("w1", "w0", "w1"):
        eventually(lambda name=victim: is_another(run.worker(name), killed), f"worker {victim} ready")
        eventually(
            lambda name=victim: any(c.executor.endswith(name) for c in run.counters("count", SHARDS)),
            f"shards at worker {victim}",
        )
        row = run.worker(victim)
        assert row is not None
        pids = [process.pid for process in process_tree(row.pid)]
        seen = kill_with_records_waiting(run, pids, lambda name=victim: run.waiting("count", SHARDS, name))
        killed.extend(pids)
        assert seen > 0
        assert run.process is not None
        assert run.process.poll() is None, "the input ended before the kill"
    with tasks_held(run, "lines"):
        eventually(lambda: is_another(run.worker("w1"), killed), "the last victim again")
    assert run.finish() == 0, run.output
    assert_counted_exactly_once(folder, expected)
    assert_figures_are_right(folder, run.summary, expected)
    assert run.summary["restarts"] == {"w0": 1, "w1": 2}


@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
def test_killed_task_processes_lose_nothing_and_count_nothing_twice(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=2, files=3, lines=3_000)
    run = start(runs, folder, "--workers", "1", *paced(600))
    generator = random.Random(2)
    killed: set[int] = set()
    for _ in range(5):
        operator = generator.choice(["count", "count", "lines"])

        def living(name: str = operator) -> list[TaskRow]:
            # A killed one may still be seen, though another task counts on already.
            return [row for row in run.tasks(name) if is_another(row, killed)]

        eventually(lambda seen=living: bool(seen()), f"a task of {operator}")
        task = generator.choice(living())
        if operator == "count":
            kill_with_records_waiting(run, [task.pid], lambda: run.waiting("count", SHARDS))
        else:
            with tasks_held(run, "count"):
                eventually(lambda: run.waiting("count", SHARDS) > 0, "words in the inboxes")
                os.kill(task.pid, signal.SIGKILL)
        killed.add(task.pid)
        before = run.completed("count", SHARDS)
        eventually(lambda seen=before: run.completed("count", SHARDS) > seen, "the count to go on")
    assert run.finish() == 0, run.output
    assert len(killed) == 5
    assert_counted_exactly_once(folder, expected)
    assert_figures_are_right(folder, run.summary, expected)
    assert run.summary["restarts"] == {}


@pytest.mark.slow(held_by="test_a_killed_store_loses_and_repeats_no_row")
def test_a_killed_store_and_a_killed_run_lose_nothing_and_count_nothing_twice(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=3, files=3, lines=2_000)
    run = start(runs, folder, "--workers", "1", *paced(500))
    killed: set[int] = set()
    for kill in range(2):
        with tasks_held(run, "count"):
            eventually(lambda: run.waiting("count", SHARDS) > 0, "words in the inboxes")
            killed.add(run.store_pid())
            os.kill(run.store_pid(), signal.SIGKILL)
        eventually(lambda: bool(run.counters("count", SHARDS)), "a store that answers again")
        before = run.completed("count", SHARDS)
        eventually(
            lambda seen=before: run.completed("count", SHARDS) > seen,
            f"the count to go on after kill {kill}",
        )
    assert len(killed) == 2
    assert run.store_pid() not in killed
    assert run.process is not None
    everything = process_tree(run.process.pid)
    with tasks_held(run, "count"):
        eventually(lambda: run.waiting("count", SHARDS) > 0, "words in the inboxes")
        run.process.kill()
    assert run.finish() == -signal.SIGKILL
    eventually(lambda: left_running(everything) == [], "nothing outlives the run")
    some = sum(1 for _ in read_rows(folder / "out"))

    second = start(runs, folder, "--workers", "1")
    assert second.finish() == 0, second.output
    assert "resumes" in second.output
    assert sum(1 for _ in read_rows(folder / "out")) > some > 0
    assert_counted_exactly_once(folder, expected)


@pytest.mark.slow(held_by="test_after_an_interrupt_a_second_run_goes_on")
def test_a_stopped_run_is_resumed_and_fresh_starts_anew(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=4, files=2, lines=2_000)
    first = start(runs, folder, "--workers", "1", *paced(300))
    eventually(lambda: first.completed("count", SHARDS) > 100, "records counted")
    assert first.process is not None
    everything = process_tree(first.process.pid)
    assert {"java", "redis-server"} <= {process.name() for process in everything}
    first.process.send_signal(signal.SIGINT)
    assert first.finish() == 0, first.output
    eventually(lambda: left_running(everything) == [], "nothing runs any more", 5)
    some = sum(1 for _ in read_rows(folder / "out"))
    assert 0 < some < sum(expected.values())

    second = start(runs, folder, "--workers", "1")
    assert second.finish() == 0, second.output
    assert "resum" in second.output.lower()
    assert_counted_exactly_once(folder, expected)

    third = start(runs, folder, "--workers", "1", "--fresh")
    assert third.finish() == 0, third.output
    assert "fresh" in third.output.lower() or "anew" in third.output.lower()
    assert_counted_exactly_once(folder, expected)
    assert_figures_are_right(folder, third.summary, expected)


def test_a_processor_that_raises_stops_the_run_and_nothing_is_lost(folder: Path, runs: list[Run]):
    expected = write_texts(folder / "texts", seed=5, files=2, lines=400)
    code = (folder / "word_count.py").read_text(encoding="utf-8")
    broken = code + (
        "\n\n_counted = Count.handleInputRows\n\n\n"
        "def _refuse(self, key, rows, timerValues):\n"
        "    if key[0] == 'tide7':\n"
        "        raise ValueError('no tides today')\n"
        "    return _counted(self, key, rows, timerValues)\n\n\n"
        "Count.handleInputRows = _refuse\n"
    )
    (folder / "word_count.py").write_text(broken, encoding="utf-8")
    run = start(runs, folder, "--workers", "1")
    assert run.finish() == 1, run.output
    assert run.output.count("ValueError: no tides today") == 1, run.output
    assert run.output.count("Traceback") == 1, run.output

    (folder / "word_count.py").write_text(code, encoding="utf-8")
    mended = start(runs, folder, "--workers", "1")
    assert mended.finish() == 0, mended.output
    assert_counted_exactly_once(folder, expected)

    # What stands there is no other state's.
    other = Run(folder / "topology.yaml", folder / "other", ("--fresh",))
    runs.append(other)
    other.start()
    assert other.finish() != 0
    assert "holds the output of topology word-count" in other.output
    assert_counted_exactly_once(folder, expected)
