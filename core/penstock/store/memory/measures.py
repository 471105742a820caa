"""The twin's part about looking: counters, weights, memory, and the metric rows of workers."""

from __future__ import annotations

from penstock.store.memory.node import ShardRecord
from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import (
    Answer,
    Measure,
    PutMetrics,
    ReadMemory,
    ReadMetrics,
    ShardCounters,
    StoreMemory,
    Weigh,
)


class MemoryMeasures(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={PutMetrics: self._put_metrics},
            reads={
                ReadMetrics: self._read_metrics,
                Measure: self._measure,
                Weigh: self._weigh,
                ReadMemory: self._read_memory,
            },
        )

    def _put_metrics(self, call: PutMetrics) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._data.metrics.update(call.rows)
        return Answer.OK

    def _read_metrics(self, _: ReadMetrics) -> dict[str, bytes]:
        return dict(self._data.metrics)

    def _measure(self, call: Measure) -> list[ShardCounters | None]:
        return [self._counters(self._data.shards.get(shard)) for shard in call.shards]

    def _counters(self, record: ShardRecord | None) -> ShardCounters | None:
        if record is None:
            return None
        return ShardCounters(
            epoch=record.epoch,
            generation=self._node.generation,
            commit=record.commit,
            arrived_rows=record.arrived_rows,
            completed_rows=record.completed_rows,
            inbox_entries=len(record.inbox),
            inbox_bytes=record.inbox_bytes,
            outbox_entries=record.outbox_entries,
            outbox_bytes=record.outbox_bytes,
            outbox_limit_bytes=record.outbox_limit_bytes,
            executor=record.owner.executor if record.owner else "",
            finished=record.finished,
            status=record.status,
            counts=record.counts,
            position=record.position,
            watermark_ms=record.watermark_ms,
            next_timer_ms=None if record.source else min(record.timers.values(), default=None),
            told=record.told,
        )

    def _weigh(self, call: Weigh) -> list[int | None]:
        records = (self._data.shards.get(shard) for shard in call.shards)
        return [record.weight_bytes() if record is not None else None for record in records]

    def _read_memory(self, _: ReadMemory) -> StoreMemory:
        return StoreMemory(self._node.memory_used_bytes(), self._node.memory_bytes_max or 0)
