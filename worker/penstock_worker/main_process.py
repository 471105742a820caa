"""The worker's main process: one session, and the executors that the schedule assigns to it.

Every cycle (the control stream's message, a task that ended, or T_W = 300 ms) it reads its
assignment from its node's store, compares it with what runs (thread-level update, N-Storm III.C),
starts and retires resident tasks, and every 0.5 s balances the shards of each executor over
its tasks (Elasticutor 3.1). It decides nothing else, and nothing waits for it: while it is away, tasks go on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from penstock.api.worker_launch import WorkerLaunch
from penstock.dataflow.plan import Plan
from penstock.metrics.rows import ShardRow, TaskRow, WorkerRow, pack, unpack, worker_row_name
from penstock.schedule.diff import update
from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Bounds,
    Enroll,
    Failures,
    Measure,
    NodeStore,
    Owner,
    PutMetrics,
    ReadMetrics,
    SetTasks,
    StoreUnreachable,
    Tasks,
    WorkerAssignment,
)
from penstock_worker.clock import Clock
from penstock_worker.control_watch import ControlWatch
from penstock_worker.prometheus import WorkerCollector, WorkerReading
from penstock_worker.resident_task import ResidentTask
from penstock_worker.resident_tasks import ResidentTasks
from penstock_worker.running_executor import RunningExecutor
from penstock_worker.shard_loads import ShardLoads
from penstock_worker.task_launch import TaskLaunch

_LOG = logging.getLogger(__name__)

WORKER_CYCLE_S = 0.3
"""T_W of N-Storm: the safety net under the control stream."""
STARTING_CYCLE_S = 0.02
"""While a task starts, its shards wait for the map that names it."""
BALANCE_US = 500_000
REPORT_US = 1_000_000
RETIRE_US_MAX = 5_000_000
TASK_FAILURES_MAX = 5


class Replaced(Exception):
    """The schedule names another start of this worker, or none: there is nothing to do here any more."""


class MainProcess:
    """`store` is the main thread's connection. `run` returns after `request_stop`; it raises Replaced, or
    PermanentError when this worker can never work."""

    def __init__(
        self,
        launch: WorkerLaunch,
        plan: Plan,
        store: NodeStore,
        resident: ResidentTasks,
        watch: ControlWatch,
        collector: WorkerCollector,
        clock: Clock,
    ) -> None:
        self._launch = launch
        self._plan = plan
        self._store = store
        self._resident = resident
        self._watch = watch
        self._collector = collector
        self._clock = clock
        self._incarnation = f"{launch.uid}/{launch.start_ms}/{launch.attempt}"
        self._executors: dict[str, RunningExecutor] = {}
        self._assigned: dict[str, AssignedExecutor] = {}
        self._loads = ShardLoads()
        self._starts = 0
        self._balance_us = 0
        self._report_us = 0
        self._stopping = False
        self._state = "starting"

    def request_stop(self) -> None:
        """From a signal handler: retire all tasks, then return from `run`."""
        self._stopping = True
        self._watch.wake()

    def run(self) -> None:
        answer = self._store.call(
            Enroll(self._launch.worker, self._launch.uid, self._launch.start_ms, self._launch.attempt)
        )
        if answer is not Answer.OK:
            raise Replaced(f"enrolling worker {self._launch.worker} was answered {answer}")
        self._state = "ready"
        while not self._stopping:
            try:
                self._cycle()
            except StoreUnreachable as error:
                _LOG.warning("store away: %s", error)
            starting = any(executor.starting for executor in self._executors.values())
            self._watch.wait(STARTING_CYCLE_S if starting else WORKER_CYCLE_S)
        self._retire()

    # --- one cycle ------------------------------------------------------------------------------

    def _cycle(self) -> None:
        now_us = self._clock.monotonic_us()
        assignment, failures, rows = self._store.pipeline(
            [Assignment(self._launch.worker), Failures(), ReadMetrics()]
        )
        self._follow(assignment, failures)
        tasks, shard_rows = self._own_rows(rows)
        self._loads.observe(shard_rows, now_us)
        balancing = now_us >= self._balance_us
        if balancing:
            self._balance_us = now_us + BALANCE_US
        up = {row.ready for row in tasks}
        for name, executor in self._executors.items():
            loads = self._loads.last_second(self._shards_of(name), now_us)
            executor.turn(now_us, up, loads, balance=balancing)
        self._tell_tasks()
        for name in [name for name, executor in self._executors.items() if executor.idle]:
            if name not in self._assigned:
                del self._executors[name]
        if now_us >= self._report_us:
            self._report_us = now_us + REPORT_US
            self._report(tasks)

    def _follow(self, assignment: WorkerAssignment, failures: dict[str, str]) -> None:
        """Bring the set of executors to the assignment; operators that failed run nothing."""
        if assignment.uid != self._launch.uid and not assignment.retracted:
            raise Replaced("the schedule names another start of this worker")
        assigned = {executor.executor: executor for executor in assignment.executors}
        change = update(self._assigned, assigned, topology_gone=assignment.retracted)
        if change.turn_off:
            raise Replaced("the topology is gone")
        if change:
            _LOG.info("schedule: %s", change)
        self._assigned = assigned
        for name in change.start:
            # One that was stopped a moment ago may still have tasks that leave.
            if name not in self._executors:
                self._executors[name] = self._new_executor(assigned[name])
        for name, executor in self._executors.items():
            now = assigned.get(name)
            if now is None or executor.operator in failures:
                executor.stop()
            else:
                executor.assign(now.tasks, now.shards)

    def _new_executor(self, executor: AssignedExecutor) -> RunningExecutor:
        stage = self._plan.stage(executor.operator)

        def start(index: int) -> ResidentTask:
            self._starts += 1
            ready = f"{executor.executor}.{index}.{self._starts}.{self._incarnation}"
            return self._resident.start(
                TaskLaunch(
                    topology_uid=self._launch.topology_uid,
                    store_url=self._launch.store_url,
                    worker=self._launch.worker,
                    owner=Owner(executor.executor, self._incarnation, ready),
                    task=index,
                    stage=stage,
                    base_dir=self._launch.base_dir,
                    durable=self._plan.durability != "Process",
                    bounds=Bounds(),
                )
            )

        return RunningExecutor(executor.executor, executor.operator, start, self._resident.cancel)

    def _shards_of(self, executor: str) -> tuple[str, ...]:
        assigned = self._assigned.get(executor)
        return assigned.shards if assigned else ()

    def _own_rows(self, rows: dict[str, bytes]) -> tuple[list[TaskRow], dict[str, ShardRow]]:
        mine = {shard for executor in self._assigned.values() for shard in executor.shards}
        tasks = []
        shard_rows = {}
        for name, data in rows.items():
            row = unpack(name, data)
            if isinstance(row, TaskRow) and row.executor in self._executors:
                tasks.append(row)
            elif isinstance(row, ShardRow):
                shard = name.removeprefix("shard:")
                if shard in mine:
                    shard_rows[shard] = row
        return tasks, shard_rows

    def _tell_tasks(self) -> None:
        """Write the shard-to-task maps that differ from the store's; it wakes the tasks concerned.

        The store's are read anew each time: a write of ours that came late may have put an old one there.
        """
        executors = list(self._executors.values())
        maps = self._store.pipeline([Tasks(executor.name, executor.operator) for executor in executors])
        for executor, there in zip(executors, maps, strict=True):
            mapping = executor.mapping()
            if there.incarnation == self._incarnation and there.mapping == mapping:
                continue
            answer = self._store.call(
                SetTasks(
                    self._launch.worker, self._incarnation, executor.name, tuple(sorted(mapping.items()))
                )
            )
            if answer is Answer.STALE:
                raise Replaced("another start of this worker has enrolled")

    # --- what others see --------------------------------------------------------------------------

    def _report(self, tasks: Iterable[TaskRow]) -> None:
        broken = [e for e in self._executors.values() if e.failures_max >= TASK_FAILURES_MAX]
        if broken:
            self._put_status("failed", f"executor {broken[0].name}: {broken[0].last_error}")
        else:
            self._put_status(self._state, "")
        shards = {}
        for executor in self._assigned.values():
            counters = self._store.call(Measure(executor.shards))
            shards[executor.operator] = [c for c in counters if c is not None]
        self._collector.reading = WorkerReading(tuple(tasks), shards)

    def _put_status(self, state: str, message: str) -> None:
        row = WorkerRow(
            worker=self._launch.worker,
            uid=self._launch.uid,
            attempt=self._launch.attempt,
            pid=os.getpid(),
            state=state,
            message=message,
            at_us=self._clock.now_us(),
            tasks={name: executor.running for name, executor in self._executors.items()},
        )
        self._store.call(PutMetrics(((worker_row_name(self._launch.worker), pack(row)),)))

    # --- the end ------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Let every task finish its batch and go; bounded, because the session's end kills the rest."""
        deadline_us = self._clock.monotonic_us() + RETIRE_US_MAX
        try:
            self._put_status("stopping", "")
            for executor in self._executors.values():
                executor.stop()
            while not all(e.idle for e in self._executors.values()):
                now_us = self._clock.monotonic_us()
                if now_us > deadline_us:
                    break
                for executor in self._executors.values():
                    executor.turn(now_us, set(), {})
                self._tell_tasks()
                self._watch.wait(STARTING_CYCLE_S)
        except (StoreUnreachable, Replaced) as error:
            _LOG.warning("stopping without the store: %s", error)
