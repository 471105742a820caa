"""Resident tasks: Spark tasks that loop until their work is elsewhere (N-Storm's thread-level update).

Each is a job of one partition on the worker's one session, started from a thread of its own; starting or
stopping one leaves all others running. A task that ends is noticed through `wake`. Where another task is
likely to come soon (`standby_rule`) a process stands by, and that task starts at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock_worker.resident_task import ResidentTask
from penstock_worker.spark_places import PlaceAway, Places
from penstock_worker.standby import StandbyDoor, StandbyLaunch, hand_over, run_standby_task
from penstock_worker.standby_rule import StandbyRule
from penstock_worker.task import run_resident_task
from penstock_worker.task_launch import TaskLaunch

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Standby:
    """A process that stands by. `task` is what it was given to run; `is_over`: its job has ended."""

    group: str
    task: ResidentTask | None = None
    is_over: bool = False


class ResidentTasks:
    """Starts and ends resident tasks of one session. `wake` is called from other threads."""

    def __init__(
        self,
        context: SparkContext,
        places: Places,
        wake: Callable[[], None],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._places = places
        self._monotonic_s = monotonic_s
        self._rule = StandbyRule(monotonic_s())
        self._wake = wake
        self._started = 0
        self._lock = threading.Lock()
        self._door = _open_door()
        self._standbys: dict[int, _Standby] = {}
        self._closed = False

    def prepare(self, busy_share: float) -> None:
        """To be told now and then how busy tasks are that others may come beside; a process stands by from
        when that makes another task likely, and as long as it does. Returns at once."""
        now_s = self._monotonic_s()
        self._rule.worked(now_s, busy_share)
        if not self._rule.is_wanted(now_s):
            self._send_away()
        elif self._rule.is_time(now_s):
            self._stand_by()

    def _stand_by(self) -> None:
        """If nobody does. The first one also brings up the process that Spark forks tasks from, which takes a
        second or more."""
        if self._door is None:
            return
        with self._lock:
            if self._closed or any(one.task is None and not one.is_over for one in self._standbys.values()):
                return
            self._started += 1
            number = self._started
            standby = self._standbys[number] = _Standby(f"standby#{number}")
        given = StandbyLaunch(self._door.path, number)
        threading.Thread(target=self._keep, args=(given, standby), name=standby.group, daemon=True).start()

    def close(self) -> None:
        """No process stands by any more; tasks that run go on."""
        with self._lock:
            self._closed = True
        if self._door is not None:
            self._door.close()

    def can_start(self, node: str) -> bool:
        return self._places.has(node)

    def start(self, launch: TaskLaunch) -> ResidentTask:
        """Launch a task; returns at once."""
        task = None
        if not launch.node:
            self._rule.started(self._monotonic_s())
            task = self._start_in_standby(launch)
        if task is not None:
            return task
        with self._lock:
            self._started += 1
            task = ResidentTask(launch, f"{launch.name}#{self._started}")
        threading.Thread(target=self._run, args=(task,), name=task.group, daemon=True).start()
        return task

    def cancel(self, task: ResidentTask) -> None:
        """End a task that did not retire in time: its process is killed. Its epochs fence it."""
        if not task.ended.is_set():
            self._context.cancelJobGroup(task.group)

    def _start_in_standby(self, launch: TaskLaunch) -> ResidentTask | None:
        while self._door is not None and (waiting := self._door.take()) is not None:
            number, connection = waiting
            with self._lock:
                standby = self._standbys.get(number)
                if standby is None or standby.is_over:
                    connection.close()
                    continue
                task = standby.task = ResidentTask(launch, standby.group)
            if hand_over(connection, launch):
                return task
            with self._lock:
                standby.task = None
        return None

    def _send_away(self) -> None:
        while self._door is not None and (waiting := self._door.take()) is not None:
            waiting[1].close()

    def _keep(self, given: StandbyLaunch, standby: _Standby) -> None:
        """One standby's job, and what it was given to run in it."""
        error = self._job(standby.group, given, "", run_standby_task)
        with self._lock:
            del self._standbys[given.number]
            standby.is_over = True
            task = standby.task
        if task is None:
            if error and not self._closed:
                _LOG.warning("%s: %s", standby.group, error)
            return
        self._end(task, error)

    def _run(self, task: ResidentTask) -> None:
        self._end(task, self._job(task.group, task.launch, task.launch.node, run_resident_task))

    def _job(self, group: str, given: object, node: str, entry: Callable[..., None]) -> str:
        """Run a job of one partition to its end. Why it did not end well, "" when it did."""
        try:
            # In pinned thread mode the group is this thread's own.
            self._context.setJobGroup(group, f"resident task {group}", interruptOnCancel=True)
            self._places.one(given, node).foreach(entry)
        except (Py4JError, PySparkException) as error:
            # What the task itself has raised comes as the second.
            return _cause(error)
        except PlaceAway as away:
            return str(away)
        return ""

    def _end(self, task: ResidentTask, error: str) -> None:
        task.error = error
        task.ended.set()
        self._wake()


def _open_door() -> StandbyDoor | None:
    """None where there is no place for it: tasks start all the same, a little later."""
    try:
        return StandbyDoor()
    except OSError as error:
        _LOG.warning("no process stands by for tasks: %s", error)
        return None


def _cause(error: Py4JError | PySparkException) -> str:
    """The line that says why a Spark job failed, without the JVM's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "...", ":", "Traceback"))]
    for line in told:
        if "crashed" in line or "exited unexpectedly" in line or "cancelled" in line:
            return line
    return told[-1] if told else type(error).__name__
