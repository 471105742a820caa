"""The workers of a `MemoryFleet`, without Spark, over a twin of the store: they go on when they are told."""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.plan import Plan
from penstock.errors import PenstockError
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.node_clock import ClockAnchor
from penstock.store.port import Bounds, NodeStore
from penstock_operator.fleet.port import WorkerState
from penstock_simulation.twins.memory_fleet import MemoryFleet
from penstock_worker.main_process.loop import Replaced
from processes.numbered_rows import NumberedRows
from processes.sparkless_worker import SparklessWorker


class PassedClock:
    """Goes by what a test lets pass. Keeps the port `Clock`."""

    anchor: ClockAnchor | None = None

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = self.monotonic_us = self.wall_us = now_us

    def share(self, store: NodeStore) -> None:
        """There is no other process."""

    def sleep_us(self, microseconds: int) -> None:
        """Until the next turn."""


class FleetWorkers:
    """Each source partition of `plan` has `records` rows, and gives one a turn."""

    def __init__(
        self, fleet: MemoryFleet, node: MemoryNode, plan: Plan, records: int, now_us: Callable[[], int]
    ) -> None:
        self.fleet = fleet
        self._node = node
        self._plan = plan
        self._records = records
        self._clock = PassedClock(now_us)
        self._workers: dict[str, SparklessWorker] = {}

    def launch(self, launch: WorkerLaunch) -> None:
        self.fleet.start(launch)
        self._workers[launch.worker] = SparklessWorker(
            launch,
            self._plan,
            lambda: MemoryStore(self._node, launch.topology_uid, Bounds()),
            self._clock,
            lambda *_: NumberedRows(self._records, gap_us=1),
        )

    def turn(self) -> None:
        for seen in self.fleet.workers():
            if seen.state is WorkerState.ENDED:
                continue
            worker = self._workers[seen.worker]
            if seen.state is WorkerState.STOPPING:
                worker.process.request_stop()
            try:
                worker.turn()
            except Replaced:
                self.fleet.leave(seen.worker, 3)
            except PenstockError:
                self.fleet.leave(seen.worker, 1)
            else:
                if worker.process.ended:
                    self.fleet.leave(seen.worker, 0)
