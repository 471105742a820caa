"""What others see of a worker: its row in the store, and the readings behind its metrics.

Neighbours: `loop` has it told once a second, `prometheus` serves the readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.metrics.rows import TaskRow, WorkerRow, pack, worker_row_name
from penstock.store.port import AssignedExecutor, Measure, NodeStore, PutMetrics, ShardCounters, told_here
from penstock_worker.main_process.prometheus import WorkerCollector
from penstock_worker.main_process.running_executor import RunningExecutor
from penstock_worker.main_process.worker_counts import WorkerReading
from penstock_worker.process.clock import Clock

TASK_FAILURES_MAX = 5


class WorkerReport:
    """`pid` is the main process'; Spark workers on other nodes join `spark_master`, "" where none do."""

    def __init__(
        self,
        launch: WorkerLaunch,
        store: NodeStore,
        collector: WorkerCollector,
        clock: Clock,
        pid: int,
        spark_master: str = "",
    ) -> None:
        self._launch = launch
        self._store = store
        self._collector = collector
        self._clock = clock
        self._pid = pid
        self._spark_master = spark_master
        self._told: dict[str, str] = {}
        self._trouble = ""

    def tell(
        self,
        executors: Mapping[str, RunningExecutor],
        assigned: Iterable[AssignedExecutor],
        tasks: Iterable[TaskRow],
        sources: tuple[str, ...],
    ) -> None:
        """`tasks` are the rows of this start's tasks, `sources` those whose partitions are announced."""
        failures = {e.operator: why for e in executors.values() if (why := e.failure(TASK_FAILURES_MAX))}
        if failures:
            operator, why = min(failures.items())
            row = self._row("failed", f"operator {operator}: {why}", executors, sources)
        else:
            row = self._row("ready", self._news(executors), executors, sources)
        asked = list(assigned)
        _, *measured = self._store.pipeline([row, *(Measure(executor.shards) for executor in asked)])
        shards: dict[str, dict[str, ShardCounters]] = {}
        for executor, counters in zip(asked, measured, strict=True):
            found = zip(executor.shards, told_here(counters), strict=True)
            shards.setdefault(executor.operator, {}).update({s: c for s, c in found if c is not None})
        self._collector.read(WorkerReading(tuple(tasks), shards))

    def put_state(
        self, state: str, message: str, executors: Mapping[str, RunningExecutor], sources: tuple[str, ...]
    ) -> None:
        """Write the worker's row."""
        self._store.call(self._row(state, message, executors, sources))

    def _row(
        self, state: str, message: str, executors: Mapping[str, RunningExecutor], sources: tuple[str, ...]
    ) -> PutMetrics:
        row = WorkerRow(
            worker=self._launch.worker,
            uid=self._launch.uid,
            attempt=self._launch.attempt,
            pid=self._pid,
            state=state,
            message=message,
            at_us=self._clock.now_us(),
            tasks={name: executor.running for name, executor in executors.items()},
            sources=sources,
            spark_master=self._spark_master,
        )
        return PutMetrics(((worker_row_name(self._launch.worker), pack(row)),))

    def _news(self, executors: Mapping[str, RunningExecutor]) -> str:
        """The last trouble with a task that was not told before, for as long as there is no newer one."""
        for name, executor in executors.items():
            if executor.trouble != self._told.get(name, ""):
                self._told[name] = self._trouble = executor.trouble
        return self._trouble
