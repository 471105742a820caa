"""What only real processes can show: nothing of a worker, or of a killed run, is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.fleet_harness import LocalHarness
from clocks.eventually import eventually
from penstock_operator.fleet.port import WorkerState
from penstock_operator.local.processes.marked_processes import MARK, marked
from penstock_operator.local.processes.sentinel import Sentinel

pytestmark = pytest.mark.integration


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    local = LocalHarness(tmp_path)
    yield local
    local.local.close()


def worker_processes() -> set[int]:
    return marked(f"test-{os.getpid()}/")


def test_children_of_a_killed_worker_in_other_process_groups_are_killed_too(harness: LocalHarness) -> None:
    harness.start("w0")
    eventually(lambda: len(worker_processes()) == 2)
    tree = worker_processes()
    harness.kill("w0")
    harness.until("w0", WorkerState.ENDED)
    eventually(lambda: not worker_processes())
    eventually(lambda: bool(harness.fleet.workers()) and not any(Path(f"/proc/{p}").exists() for p in tree))


def test_closing_the_fleet_leaves_neither_processes_nor_zombies(harness: LocalHarness) -> None:
    harness.start("w0")
    harness.start("deaf")
    eventually(lambda: len(worker_processes()) == 4)
    tree = worker_processes()
    harness.local.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in tree)


def test_a_resized_worker_is_bound_with_its_children_to_that_many_processors(harness: LocalHarness) -> None:
    harness.start("w0")
    eventually(lambda: len(worker_processes()) == 2)
    harness.fleet.resize("w0", 0.2)
    assert [len(os.sched_getaffinity(pid)) for pid in worker_processes()] == [1, 1]


def test_two_resized_workers_are_bound_to_different_processors(harness: LocalHarness) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    for worker in ("w0", "w1"):
        harness.start(worker)
        harness.fleet.resize(worker, 1.0)
    bound = [os.sched_getaffinity(harness.local.pid(worker)) for worker in ("w0", "w1")]
    assert not bound[0] & bound[1]


RUN = """
import os, subprocess, sys, time
from penstock_operator.local.processes.sentinel import Sentinel
token, mark, lock = sys.argv[1:]
descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
import fcntl; fcntl.flock(descriptor, fcntl.LOCK_EX)
sentinel = Sentinel(token, [descriptor])
subprocess.Popen(["sleep", "600"], env={**os.environ, mark: token + "/worker/a"}, start_new_session=True)
print(sentinel.pid, flush=True)
if "ends" in token:
    time.sleep(0.1); sentinel.dismiss()
else:
    time.sleep(600)
"""


def start_run(token: str, lock: Path) -> tuple[subprocess.Popen[str], int]:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, token, MARK, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    return run, int(run.stdout.readline())


def test_the_sentinel_ends_what_a_killed_run_left_and_holds_its_lock_until_then(tmp_path: Path) -> None:
    token = f"killed-{os.getpid()}"
    run, sentinel = start_run(token, tmp_path / "lock")
    eventually(lambda: len(marked(f"{token}/")) == 1)
    run.kill()
    run.wait()
    assert run.stdout is not None
    run.stdout.close()
    locked = subprocess.run(["flock", "--timeout", "10", tmp_path / "lock", "true"], check=False)
    assert locked.returncode == 0
    assert not marked(f"{token}/")
    eventually(lambda: not is_alive(sentinel))


def test_a_dismissed_sentinel_kills_nothing(tmp_path: Path) -> None:
    token = f"ends-{os.getpid()}"
    run, sentinel = start_run(token, tmp_path / "lock")
    assert run.wait(timeout=10) == 0
    assert run.stdout is not None
    run.stdout.close()
    left = marked(f"{token}/")
    assert len(left) == 1
    assert not is_alive(sentinel)
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_sentinel_is_gone_soon_after_it_is_dismissed() -> None:
    sentinel = Sentinel(f"none-{os.getpid()}")
    before_s = time.monotonic()
    sentinel.dismiss()
    assert time.monotonic() - before_s < 2
    assert not is_alive(sentinel.pid)
