"""What a task tells its store though nobody waits for it: which outputs are in the sinks, and its metrics.

An acknowledgement stands for all before it, so only the last of each pair is told, now and then. Neighbours:
`task.loop` sends what is due along with its other calls; `sinks.delivery` and `task.metrics` know what to
say.
"""

from __future__ import annotations

from typing import Any

from penstock.store.port import Acknowledge, Request
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.task.metrics import TaskMetrics

ACKNOWLEDGE_US = 100_000
"""What was written to sinks is acknowledged this often."""
ACKNOWLEDGED_AT_ONCE = 16
ACKNOWLEDGE_GAP_US = 5_000
"""So many at a time, with such a gap: acknowledging all shards at once would hold up what comes next."""
SYNC_LOOK_US = 20_000
"""While sink files are being synced, so often is looked whether they are."""


class Tellings:
    """One per task. Times are the clock's `now_us`."""

    def __init__(self, sinks: SinkDelivery, metrics: TaskMetrics) -> None:
        self._sinks = sinks
        self._metrics = metrics
        self._written: dict[tuple[str, str], Acknowledge] = {}
        self._acknowledge_us = 0

    def written(self, acknowledge: Acknowledge) -> None:
        """A sink has all outputs up to this one."""
        self._written[acknowledge.producer, acknowledge.target] = acknowledge

    def acknowledge_soon(self, shard: str) -> None:
        """A shard waits until what it put out is acknowledged: it comes first, and at once."""
        mine = {pair: one for pair, one in self._written.items() if pair[0] == shard}
        if mine or self._sinks.is_syncing:
            self._written = {**mine, **self._written}
            self._acknowledge_us = 0

    def take(self, now_us: int) -> list[Request[Any]]:
        """What is due now."""
        told: list[Request[Any]] = []
        for sink, timestamps_us, at_us in self._sinks.take_batched():
            self._metrics.written(sink, timestamps_us, at_us)
        if now_us >= self._acknowledge_us:
            written = [self._written.pop(pair) for pair in list(self._written)[:ACKNOWLEDGED_AT_ONCE]]
            told.extend(self._sinks.tellable(written))
            self._acknowledge_us = now_us + self._acknowledge_pause_us()
        rows = self._metrics.due(now_us)
        if rows is not None:
            told.append(rows)
        return told

    def take_all(self, now_us: int) -> list[Request[Any]]:
        """All that there is, due or not: the task goes."""
        written = list(self._written.values())
        self._written.clear()
        return [*self._sinks.tellable(written), self._metrics.rows(now_us)]

    def forget(self) -> None:
        """The store is in doubt: what was written is written again by whoever claims the shards."""
        self._written.clear()

    def wait_us(self, now_us: int) -> int | None:
        """How long until something is due; None where all is told."""
        metrics_us = self._metrics.wait_us(now_us)
        if not self._written and not self._sinks.is_syncing:
            return metrics_us
        written_us = self._acknowledge_us - now_us
        return written_us if metrics_us is None else min(metrics_us, written_us)

    def _acknowledge_pause_us(self) -> int:
        if self._written:
            return ACKNOWLEDGE_GAP_US
        return SYNC_LOOK_US if self._sinks.is_syncing else ACKNOWLEDGE_US
