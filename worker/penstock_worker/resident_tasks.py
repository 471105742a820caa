"""Resident tasks: Spark tasks that loop until their work is elsewhere (N-Storm's thread-level update).

Each is a job of one partition on the worker's one session, started from a thread of its own; starting
or stopping one leaves all others running. A task that ends is noticed through `wake`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import SparkContext

from penstock_worker.resident_task import ResidentTask
from penstock_worker.task import run_resident_task
from penstock_worker.task_launch import TaskLaunch

_LOG = logging.getLogger(__name__)


class ResidentTasks:
    """Starts and ends resident tasks of one session. `wake` is called from other threads."""

    def __init__(self, context: SparkContext, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake
        self._started = 0

    def warm_up(self) -> None:
        """Let Spark start the process that tasks are forked from: a warm worker's first task finds it.

        Returns at once. A first task that comes earlier waits for the very same process.
        """
        threading.Thread(target=self._start_daemon, name="warm-up", daemon=True).start()

    def _start_daemon(self) -> None:
        try:
            self._context.parallelize([0], 1).foreach(_nothing)
        except Py4JError as error:
            _LOG.warning("warm-up: %s", _cause(error))

    def start(self, launch: TaskLaunch) -> ResidentTask:
        """Launch a task; returns at once."""
        self._started += 1
        task = ResidentTask(launch, f"{launch.name}#{self._started}")
        threading.Thread(target=self._run, args=(task,), name=task.group, daemon=True).start()
        return task

    def _run(self, task: ResidentTask) -> None:
        try:
            # In pinned thread mode the group is this thread's own.
            self._context.setJobGroup(task.group, f"resident task {task.launch.name}", interruptOnCancel=True)
            self._context.parallelize([task.launch], 1).foreach(run_resident_task)
        except Py4JError as error:
            task.error = _cause(error)
        finally:
            task.ended.set()
            self._wake()

    def cancel(self, task: ResidentTask) -> None:
        """End a task that did not retire in time: its process is killed. Its epochs fence it."""
        if not task.ended.is_set():
            self._context.cancelJobGroup(task.group)


def _nothing(_: object) -> None:
    """What the first of a session's Python processes does."""


def _cause(error: Py4JError) -> str:
    """The line that says why a Spark job failed, without the JVM's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "...", ":", "Traceback"))]
    for line in told:
        if "crashed" in line or "exited unexpectedly" in line or "cancelled" in line:
            return line
    return told[-1] if told else type(error).__name__
