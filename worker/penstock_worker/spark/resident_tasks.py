"""Resident tasks: Spark tasks that loop until their work is elsewhere (N-Storm's thread-level update).

Each is a job of one partition on the worker's one session, started from a thread of its own; starting or
stopping one leaves all others running. A task that ends is noticed through `wake`, with how its process ended
and what it was at (`task_ends`, `task.note`). Where another task is likely to come soon (`standby_rule`) a
process stands by, and that task starts at once.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.process_look import STOPPED, look_at
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.spark.crash_words import crash_words, killed_by_cgroup, told_by_run
from penstock_worker.spark.hang_rule import HangRule
from penstock_worker.spark.places import PlaceAway, Places
from penstock_worker.spark.standby import StandbyDoor, StandbyLaunch, hand_over, run_standby_task
from penstock_worker.spark.standby_rule import StandbyRule
from penstock_worker.spark.standing_rule import Patience, StandingRule
from penstock_worker.spark.task_ends import TaskEnds
from penstock_worker.spark.task_entry import run_resident_task
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.note import NotePage

_LOG = logging.getLogger(__name__)

_END_TOLD_S = 1.5
"""How a process ended is told about when its job fails; asked for so long. The process that forks tasks hears
of an end at once, or within a second when it was just about to wait."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What is known of the worker's memory: the limit in words, and the file in which `penstock run` writes
    whom it has killed for it ("" in a cluster)."""

    words: str = "not known"
    kills_file: str = ""


@dataclass(slots=True)
class _Watched:
    """A task that runs, as it is seen from outside."""

    page: NotePage
    timeout_us: int = 0
    rule: StandingRule = field(default_factory=StandingRule)
    hang: HangRule = field(default_factory=HangRule)
    hung: bool = False


@dataclass(slots=True)
class _Standby:
    """A process that stands by. `task` is what it was given to run; `is_over`: its job has ended."""

    group: str
    task: ResidentTask | None = None
    is_over: bool = False


class ResidentTasks:
    """Starts and ends resident tasks of one session. `wake` is called from other threads. Tasks write batches
    through `batch_door` (`batch_door.BatchDoor`)."""

    def __init__(
        self,
        context: SparkContext,
        places: Places,
        wake: Callable[[], None],
        monotonic_s: Callable[[], float] = time.monotonic,
        ends: TaskEnds | None = None,
        memory: MemoryLimit = MemoryLimit(),
        batch_door: str = "",
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
        self._ends = ends
        self._memory = memory
        self._batch_door = batch_door
        self._killed = killed_by_cgroup()
        self._watched: dict[str, _Watched] = {}
        self._cancelled: set[str] = set()
        self._patience = Patience()
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
        page = None if launch.node else _new_page()
        launch = replace(launch, note=page.place if page is not None else None, batch_door=self._batch_door)
        task = None
        if not launch.node:
            self._rule.started(self._monotonic_s())
            task = self._start_in_standby(launch, page)
        if task is not None:
            return task
        with self._lock:
            self._started += 1
            task = ResidentTask(launch, f"{launch.name}#{self._started}")
            self._watch(task, page)
        threading.Thread(target=self._run, args=(task,), name=task.group, daemon=True).start()
        return task

    def cancel(self, task: ResidentTask) -> None:
        """End a task that did not retire in time: its process is killed. Its epochs fence it."""
        with self._lock:
            if task.ended.is_set() or task.group in self._cancelled:
                return
            self._cancelled.add(task.group)
            watched = self._watched.get(task.group)
            pid = watched.page.read().pid if watched is not None else 0
            if pid:
                # Spark would have it done by the process that forked the task, which may stand still as well.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # A JVM that stands still must not hold up the main process.
        threading.Thread(target=self._cancel, args=(task.group,), name="cancel", daemon=True).start()

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        with self._lock:
            watched = self._watched.get(task.group)
            if watched is None:
                return False
            seen = watched.page.read()
            if not seen.pid:
                return watched.rule.is_unborn(now_us)
            if watched.hang.is_hanging(now_us, seen, watched.timeout_us) and not watched.hung:
                # Its job ends by that, and it is told as a crash at what it was at.
                watched.hung = True
                with suppress(ProcessLookupError):
                    os.kill(seen.pid, signal.SIGKILL)
            if watched.rule.is_beating(now_us, seen.beats):
                return False
            look = look_at(seen.pid)
            if look is None:
                return False
            doublings = self._patience.doublings(seen.shard)
            if not watched.rule.is_standing(now_us, look, doublings):
                return False
            if look.state != STOPPED:
                self._patience.taken(seen.shard, now_us)
            return True

    def _cancel(self, group: str) -> None:
        # Whoever is gone by now runs no task either.
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(group)

    def _watch(self, task: ResidentTask, page: NotePage | None) -> None:
        if page is not None:
            self._watched[task.group] = _Watched(page, task.launch.stage.processor_timeout_us)

    def _start_in_standby(self, launch: TaskLaunch, page: NotePage | None) -> ResidentTask | None:
        while self._door is not None and (waiting := self._door.take()) is not None:
            number, connection = waiting
            with self._lock:
                standby = self._standbys.get(number)
                if standby is None or standby.is_over:
                    connection.close()
                    continue
                task = standby.task = ResidentTask(launch, standby.group)
                self._watch(task, page)
            if hand_over(connection, launch):
                return task
            with self._lock:
                standby.task = None
                self._watched.pop(task.group, None)
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
        except OSError as error:
            # Nobody listens where the JVM was.
            return f"Spark's JVM does not answer: {error}"
        except PlaceAway as away:
            return str(away)
        return ""

    def _end(self, task: ResidentTask, error: str) -> None:
        with self._lock:
            watched = self._watched.pop(task.group, None)
            was_cancelled = task.group in self._cancelled
            self._cancelled.discard(task.group)
        if watched is not None:
            if error and not was_cancelled:
                error = self._told(task, watched, error)
            watched.page.close()
        task.error = error
        task.ended.set()
        self._wake()

    def _told(self, task: ResidentTask, watched: _Watched, error: str) -> str:
        """How a task ended that did not end well; of one that crashed, what it was at is left in `task`."""
        page = watched.page
        seen = page.read()
        code = self._ends.code(seen.pid, _END_TOLD_S) if self._ends is not None and seen.pid else None
        # One that raised has told so before it ended, and ends with a code of Spark's.
        if not (_is_crash(error) or (code is not None and code < 0)):
            return error
        task.crashed, task.shard, task.key, task.works = True, seen.shard, seen.key, seen.works
        task.commits = seen.commits
        reason = told_by_run(self._memory.kills_file, seen.pid)
        if watched.hung:
            task.hung_us = watched.timeout_us
            reason = f"it did not return within {watched.timeout_us / 1e6:g} s (processorTimeout)"
        killed = killed_by_cgroup()
        if code == -signal.SIGKILL and killed is not None and killed > (self._killed or 0):
            reason = f"the container was out of memory (workers.memory is {self._memory.words})"
        self._killed = killed
        return crash_words(code, seen, memory=self._memory.words, reason=reason, fault=page.fault())


def _new_page() -> NotePage | None:
    """None without memory for it: the task is not watched then."""
    try:
        return NotePage()
    except OSError as error:
        _LOG.warning("a task starts unwatched: %s", error)
        return None


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
        if _is_crash(line) or "cancelled" in line:
            return line
    return told[-1] if told else type(error).__name__


def _is_crash(line: str) -> bool:
    """By Spark's words for a Python process that is gone."""
    return "crashed" in line or "exited unexpectedly" in line
