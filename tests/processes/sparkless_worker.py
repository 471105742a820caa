"""The product's worker without Spark: its main process and its tasks, all in one thread, turn by turn.

Only what a source reads is a test's own. Neighbours: `fleet_workers` has many of them in memory; as a process
it is `orders_worker`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.plan import Plan
from penstock.errors import PenstockError
from penstock.store.port import NodeStore, Request, WaitReady
from penstock_simulation.twins.passing_on import PassingOn
from penstock_worker.main_process.loop import MainProcess
from penstock_worker.main_process.prometheus import WorkerCollector
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.main_process.vitals import Vitals
from penstock_worker.main_process.worker_report import WorkerReport
from penstock_worker.process.clock import Clock
from penstock_worker.spark.task_entry import Readers, assemble
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.loop import TaskLoop

Connect = Callable[[], NodeStore]


class Unwaiting(PassingOn):
    """A connection that hardly blocks: others are in the same thread."""

    def call(self, call: Request[Any]) -> Any:
        return super().call(replace(call, timeout_ms=1) if isinstance(call, WaitReady) else call)


class TurnedTasks:
    """Keeps the port `TaskStarter`. Each task has a connection of its own."""

    def __init__(self, connect: Connect, clock: Clock, readers: Readers) -> None:
        self._connect = connect
        self._clock = clock
        self._readers = readers
        self._running: list[tuple[ResidentTask, TaskLoop, NodeStore]] = []

    def can_start(self, node: str) -> bool:
        return not node

    def start(self, launch: TaskLaunch) -> ResidentTask:
        store = self._connect()
        loop = assemble(launch, store, Unwaiting(store), self._clock, readers=self._readers)
        task = ResidentTask(launch, launch.name)
        self._running.append((task, loop, store))
        return task

    def cancel(self, task: ResidentTask) -> None:
        self._end(task)

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        return False

    def prepare(self, busy_share: float) -> None:
        """Nobody stands by."""

    def turn(self) -> None:
        """A turn of every task."""
        for task, loop, _ in list(self._running):
            try:
                loop.turn()
            except PenstockError as error:
                self._end(task, str(error))
            else:
                if loop.retired:
                    self._end(task)

    def close(self) -> None:
        for task, _, _ in list(self._running):
            self._end(task)

    def _end(self, task: ResidentTask, error: str = "") -> None:
        for one in [one for one in self._running if one[0] is task]:
            self._running.remove(one)
            one[2].close()
            task.error = error
            task.ended.set()


class SparklessWorker:
    """One start of a worker; its main process looks about every `look_s`."""

    def __init__(
        self,
        launch: WorkerLaunch,
        plan: Plan,
        connect: Connect,
        clock: Clock,
        readers: Readers,
        look_s: float = 0.0,
    ) -> None:
        self._clock = clock
        self._look_us = int(look_s * 1e6)
        self._due_us = 0
        self._store = connect()
        self._tasks = TurnedTasks(connect, clock, readers)
        report = WorkerReport(
            launch, self._store, WorkerCollector(plan.topology, launch.worker), clock, pid=1
        )
        self.process = MainProcess(launch, plan, self._store, self._tasks, report, clock, Vitals(clock))

    def turn(self) -> None:
        """A round of the main process where one is due, a turn of every task. Raises as the former does."""
        now_us = self._clock.monotonic_us()
        if now_us >= self._due_us:
            self._due_us = now_us + min(self._look_us, int(self.process.step() * 1e6))
        self._tasks.turn()

    def close(self) -> None:
        """It has ended, and its tasks with it."""
        self._tasks.close()
        self._store.close()
