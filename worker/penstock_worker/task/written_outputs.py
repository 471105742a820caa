"""A task's outputs on their way into sinks: written, counted, and to be acknowledged.

Neighbours: `sinks.delivery` writes, `tellings` has them acknowledged by and by, `task.loop` gives what
commits placed.
"""

from __future__ import annotations

from penstock.store.ownership import OwnedShard
from penstock.store.port import NodeStore
from penstock_worker.process.clock import Clock
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.task.large_commit import Placed
from penstock_worker.task.metrics import TaskMetrics
from penstock_worker.task.tellings import Tellings


class WrittenOutputs:
    """One per task. What a sink cannot take raises WorkFailed."""

    def __init__(self, sinks: SinkDelivery, tellings: Tellings, metrics: TaskMetrics, clock: Clock) -> None:
        self._sinks = sinks
        self._tellings = tellings
        self._metrics = metrics
        self._clock = clock

    def write(self, owned: OwnedShard, placed: Placed) -> None:
        """What a commit of `owned` placed for sinks."""
        for acknowledge, payloads in self._sinks.write(owned, placed):
            self._tellings.written(acknowledge)
            self._count(acknowledge.target, payloads)

    def catch_up(self, owned: OwnedShard, store: NodeStore) -> None:
        """What earlier owners committed and did not write, of a shard that is this task's from now on."""
        self._sinks.adopt(owned)
        for target in owned.unwritten():
            for payloads in self._sinks.catch_up(owned, target, store):
                self._count(target, payloads)

    def _count(self, target: str, payloads: list[bytes]) -> None:
        self._metrics.written(target, self._sinks.timestamps(payloads), self._clock.now_us())
