"""A worker's JVM that ends or stands still, and how the ends of tasks come to the main process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.process_look import STOPPED, look_at
from penstock_worker.spark.jvm_watch import STANDS_LOOKS, JvmWatch
from penstock_worker.spark.task_ends import PIPE, TaskEnds

WITHIN_S = 10.0

DAEMON = """
import os, select, signal
from types import SimpleNamespace
from penstock_worker.spark.task_ends import report_ends
daemon = SimpleNamespace()
report_ends(daemon)
daemon.signal.signal(daemon.signal.SIGCHLD, daemon.signal.SIG_IGN)
for how in ("exit", "kill"):
    pid = os.fork()
    if pid == 0:
        if how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    print(pid, flush=True)
# As pyspark's waits: a signal that comes just before a wait is heard behind it.
poller = select.poll()
poller.register(0, select.POLLHUP)
while not poller.poll(1000):
    pass
"""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> TaskEnds:
    monkeypatch.delenv(PIPE, raising=False)
    return TaskEnds()


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """In the place of a JVM."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_the_end_of_the_jvm_is_told_at_once(jvm: subprocess.Popen[bytes], ends: TaskEnds) -> None:
    told: list[str] = []
    heard = threading.Event()

    def hear(why: str) -> None:
        told.append(why)
        heard.set()

    JvmWatch(jvm, hear, ends).start()
    jvm.kill()
    assert heard.wait(WITHIN_S)
    assert told == ["its JVM was killed by SIGKILL"]


def test_a_jvm_that_ends_with_its_worker_is_no_news(jvm: subprocess.Popen[bytes], ends: TaskEnds) -> None:
    told: list[str] = []
    watch = JvmWatch(jvm, told.append, ends)
    watch.dismiss()
    jvm.kill()
    watch._await_end()
    assert told == []


def test_a_jvm_that_stands_still_is_killed_and_one_that_goes_on_is_not(
    jvm: subprocess.Popen[bytes], ends: TaskEnds
) -> None:
    watch = JvmWatch(jvm, lambda _: None, ends)

    def look_stopped(times: int) -> None:
        jvm.send_signal(signal.SIGSTOP)
        while (seen := look_at(jvm.pid)) is not None and seen.state != STOPPED:
            os.sched_yield()
        for _ in range(times):
            watch.look()

    look_stopped(STANDS_LOOKS - 1)
    jvm.send_signal(signal.SIGCONT)
    while (seen := look_at(jvm.pid)) is not None and seen.state == STOPPED:
        os.sched_yield()
    watch.look()
    look_stopped(STANDS_LOOKS - 1)
    assert jvm.poll() is None
    watch.look()
    assert jvm.wait(WITHIN_S) == -signal.SIGKILL


def test_exit_codes_and_signals_of_forked_tasks_come_to_the_main_process(ends: TaskEnds) -> None:
    command = [sys.executable, "-c", DAEMON]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as daemon:
        assert daemon.stdout is not None
        exited, killed = int(daemon.stdout.readline()), int(daemon.stdout.readline())
        assert ends.code(exited, WITHIN_S) == 7
        assert ends.code(killed, WITHIN_S) == -signal.SIGKILL
        assert daemon.pid in ends.daemons
        daemon.kill()


def test_who_has_not_ended_has_no_code(ends: TaskEnds) -> None:
    assert ends.code(os.getpid(), 0.0) is None
