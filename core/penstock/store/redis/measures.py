"""Looking: counters, weights, memory and metric rows, as commands."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from penstock.store.port import (
    Measure,
    PutMetrics,
    ReadMemory,
    ReadMetrics,
    ShardCounters,
    StoreMemory,
    Weigh,
)
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import (
    STATUSES,
    CallForm,
    PartsForm,
    RedisRole,
    answer,
    unpacked_watermark,
)

_RECORD = struct.Struct("<21d")

_MEASURED_PER_COMMAND = 256
"""At about 4 microseconds each."""
_METRICS_MAX = 100_000
"""No more rows are read: each costs its reader some 300 bytes."""
_NUMBER_MAX = 2.0**63
_COUNTS_BYTES_MAX = 64 << 10
_WEIGHT_MAX = 1 << 50


class RedisMeasures(RedisRole):
    """A part of `redis.calls`."""

    writes = ("put_metrics",)
    reads = ("measure", "weigh")

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            PutMetrics: CallForm(self._put_metrics, answer),
            ReadMetrics: CallForm(self._read_metrics, _rows),
            Measure: PartsForm(self._measures, _counters),
            Weigh: CallForm(self._weigh, _weights),
            ReadMemory: CallForm(self._read_memory, _memory),
        }

    def _put_metrics(self, call: PutMetrics) -> Command:
        return (*self._heads["put_metrics"], *[part for row in call.rows for part in row])

    def _read_metrics(self, _: ReadMetrics) -> Command:
        return (b"HRANDFIELD", self._keys.metrics, _METRICS_MAX, b"WITHVALUES")

    def _measures(self, call: Measure) -> list[Command]:
        shards = call.shards
        return [
            (*self._heads["measure"], *shards[first : first + _MEASURED_PER_COMMAND])
            for first in range(0, max(1, len(shards)), _MEASURED_PER_COMMAND)
        ]

    def _weigh(self, call: Weigh) -> Command:
        return (*self._heads["weigh"], str(max(1, call.samples)), *call.shards)

    def _read_memory(self, _: ReadMemory) -> Command:
        return (b"INFO", b"memory")


def _rows(_: ReadMetrics, reply: list[tuple[bytes, bytes]]) -> dict[str, bytes]:
    return {name.decode(errors="replace"): row for name, row in reply}


def _counters(_: Measure, replies: list[Any]) -> list[ShardCounters | None]:
    return [
        _shard_counters(reply[0], *reply[at : at + 5]) for reply in replies for at in range(1, len(reply), 5)
    ]


_LIMITS = struct.Struct("<dd")
"""Of the inbox, of the outbox: behind a record that has some."""


def _shard_counters(
    generation: int,
    record: bytes | None,
    executor: bytes | None,
    counts: bytes | None,
    position: bytes | None,
    next_timer_ms: bytes | None,
) -> ShardCounters | None:
    if record is None:
        return None
    numbers = _RECORD.unpack_from(record)
    outbox_limit_bytes = math.inf
    if len(record) > _RECORD.size:
        _, outbox_limit_bytes = _LIMITS.unpack_from(record, _RECORD.size)
    if max(numbers) > _NUMBER_MAX or min(numbers) < -_NUMBER_MAX or len(counts or b"") > _COUNTS_BYTES_MAX:
        raise ValueError("a record counts what nobody can count")
    (
        epoch, commit, offset, placed, inbox_bytes, arrived_rows, completed_rows,
        outbox_entries, outbox_bytes, _table_version, _ready, _source, finished, status,
        _pending, _waiters, watermark_ms, _reached, told, *_
    ) = map(int, numbers)  # fmt: skip
    return ShardCounters(
        epoch=epoch,
        generation=generation,
        commit=commit,
        arrived_rows=arrived_rows,
        completed_rows=completed_rows,
        inbox_entries=placed - offset,
        inbox_bytes=inbox_bytes,
        outbox_entries=outbox_entries,
        outbox_bytes=outbox_bytes,
        outbox_limit_bytes=outbox_limit_bytes,
        executor=(executor or b"").decode(),
        finished=finished == 1,
        status=STATUSES[status],
        counts=counts or b"",
        position=position or b"",
        watermark_ms=watermark_ms or None,
        next_timer_ms=None if next_timer_ms is None else int(next_timer_ms),
        told=unpacked_watermark(told) if told else None,
    )


def _weights(_: Weigh, reply: list[int]) -> list[int | None]:
    if max(reply, default=0) > _WEIGHT_MAX:
        raise ValueError("a record says that more waits than any store can hold")
    return [None if weight < 0 else weight for weight in reply]


def _memory(_: ReadMemory, reply: bytes) -> StoreMemory:
    return memory_use(reply)


def memory_use(info: bytes) -> StoreMemory:
    """What a server says of its memory."""
    fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return StoreMemory(int(fields["used_memory"]), int(fields["maxmemory"]))
