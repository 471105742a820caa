"""Looking: counters and weights of shards, a store's memory, and the metric rows that workers leave in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from penstock.store.port.answers import Answer, ShardStatus, Watermark
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class PutMetrics(Request[Answer]):
    """Keep the newest metric rows: [(name, packed row), ...]. OK. Lost with no harm."""

    rows: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReadMetrics(Request[dict[str, bytes]]):
    """Answers {name: packed row} of all rows."""


class ShardCounters(msgspec.Struct, frozen=True, gc=False):
    """Totals since creation; they survive every owner. A difference across `generation` is
    missing, not zero (promise 7), and so is every figure of a shard that is not here: see `is_here`.
    `counts` and `position` are those of the last commit that had some. `watermark_ms` is what its owner has
    taken, `told` what was told of that last, and `next_timer_ms` when its next timer is due.
    `outbox_limit_bytes` is what its outbox may hold, where that is less than the bound.

    The operator has tens of thousands: the cycle collector passes them by, for none refers to what could
    refer back."""

    epoch: int
    generation: int
    commit: int
    arrived_rows: int
    completed_rows: int
    inbox_entries: int
    inbox_bytes: int
    outbox_entries: int
    outbox_bytes: int
    executor: str
    finished: bool
    status: ShardStatus = ShardStatus.ACTIVE
    counts: bytes = b""
    position: bytes = b""
    watermark_ms: int | None = None
    next_timer_ms: int | None = None
    told: Watermark | None = None
    outbox_limit_bytes: float = math.inf

    @property
    def is_here(self) -> bool:
        """Whether the figures are the shard's own. Those of one that is on its way, or gone, are another
        store's to tell: what stands here is a part of them, or zeros."""
        return self.status in _OWNED_AT


_OWNED_AT = frozenset({ShardStatus.ACTIVE, ShardStatus.COPYING})


def told_here(counters: Iterable[ShardCounters | None]) -> list[ShardCounters | None]:
    """What a store's counters say of their shards: None for one that is unknown, or not here (promise 7)."""
    return [one if one is not None and one.is_here else None for one in counters]


@dataclass(frozen=True, slots=True)
class Measure(Request[list[ShardCounters | None]]):
    """Counters of the named shards' records, whatever their status. Answers [ShardCounters | None, ...] in
    their order; who wants figures asks `told_here` of them.

    A store is asked for some hundred at a time: each counter is as of one moment, all of many are not.
    """

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Weigh(Request[list[int | None]]):
    """What the named shards take of the store's memory, in bytes: record, state, timers, inbox, outbox.

    Answers [bytes | None, ...] in their order. An estimate from `samples` elements of each part (1 at the
    least): its cost does not grow with the state. To be asked of a few shards at a time, now and then.
    """

    shards: tuple[str, ...]
    samples: int = 8


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Bytes of memory that a store uses, of all topologies, and its limit: 0 for none."""

    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ReadMemory(Request[StoreMemory]):
    """How full the store is. Answers a `StoreMemory`. Not for workers: their users may not ask."""
