"""How far event time is: of a source by its own rows, of a keyed stage by what comes to it.

Neighbours: `source_stage` and `keyed_stage` commit what these say; `store.port.watermarks` has what becomes
of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.dataflow.plan import EventTime, Fanout
from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, Watermark
from penstock_worker.state.cache import ShardState
from penstock_worker.values.column_rows import ColumnRows
from penstock_worker.values.rows import WireRow

US_PER_MS = 1000
LONG_AGO_MS = -(1 << 63)
RAISED_US = 5_000
"""A source tells a new watermark at most this often: each costs the store as much as a small output."""


class SourceTime:
    """The watermark of one partition: behind the latest event time of its rows, and idle without any.

    `declared` are the places where the stage's rows have an event time, by name; the least of them counts.
    """

    def __init__(self, declared: Mapping[str, EventTime], now_us: int) -> None:
        self._declared = declared
        self._latest_us: dict[str, int] = {}
        self._idle_us = 1000 * min(time.idle_ms for time in declared.values())
        self._rows_us = now_us
        self._raised_us = now_us - RAISED_US

    def seen(self, latest_us: Mapping[str, int], now_us: int) -> None:
        """Rows were read; their latest event times, where they have one."""
        self._rows_us = now_us
        for name, found_us in latest_us.items():
            self._latest_us[name] = max(found_us, self._latest_us.get(name, found_us))

    def watermark(self, owned: OwnedShard, now_us: int, *, finished: bool) -> Watermark | None:
        """What to commit, where that is news and not too early for it."""
        is_idle = finished or self.idle_at_us() <= now_us
        told = owned.watermark
        found_ms = self._ms()
        ms = told.ms if found_ms is None else max(found_ms, found_ms if told.ms is None else told.ms)
        if Watermark(ms, is_idle) == told:
            return None
        if is_idle is told.is_idle and now_us < self._raised_us + RAISED_US:
            return None
        self._raised_us = now_us
        return Watermark(ms, is_idle)

    def idle_at_us(self) -> int:
        """When it is idle if no rows come."""
        return self._rows_us + self._idle_us

    def is_behind(self, owned: OwnedShard) -> bool:
        """Whether the latest watermark was too early to be told."""
        ms = self._ms()
        return ms is not None and (owned.watermark.ms is None or ms > owned.watermark.ms)

    def tell_at_us(self) -> int:
        """When the next watermark is not too early."""
        return self._raised_us + RAISED_US

    def _ms(self) -> int | None:
        if len(self._latest_us) < len(self._declared):
            return None
        return min(
            self._latest_us[name] // US_PER_MS - time.delay_ms for name, time in self._declared.items()
        )


class InputTime:
    """The watermarks of one task's keyed shards: each takes its stage's when it has worked off what was in
    its inbox when the store told it."""

    def __init__(self) -> None:
        self._ahead: dict[str, tuple[int, Watermark]] = {}

    def told(self, owned: OwnedShard, fetched: FetchedShard) -> None:
        """The store told the stage's watermark with a fetch. One that is waited for already comes first:
        under load the inbox is never empty. Unless nothing waits: then timers came up to the new one."""
        watermark = fetched.watermark
        if watermark is None or watermark == Watermark(None):
            return
        if fetched.placed <= owned.offset:
            self.release(owned.shard)
        if owned.shard not in self._ahead and watermark != owned.watermark:
            self._ahead[owned.shard] = (fetched.placed, watermark)

    def taken(self, owned: OwnedShard, offset: int) -> Watermark | None:
        """The watermark that the shard has with a commit of the inbox up to `offset`; None for no other."""
        placed, watermark = self._ahead.get(owned.shard, (0, None))
        return watermark if watermark is not None and offset >= placed else None

    def settled(self, owned: OwnedShard) -> None:
        """A commit was applied."""
        ahead = self._ahead.get(owned.shard)
        if ahead is not None and owned.offset >= ahead[0] and not _is_news(ahead[1], owned.watermark):
            del self._ahead[owned.shard]

    def release(self, shard: str) -> None:
        self._ahead.pop(shard, None)


def _is_news(watermark: Watermark, owned: Watermark) -> bool:
    is_later = watermark.ms is not None and (owned.ms is None or watermark.ms > owned.ms)
    return is_later or watermark.is_idle is not owned.is_idle


def set_times(state: ShardState, now_us: int, wall_us: int, *, by_event_time: bool) -> None:
    """A batch on this state begins. By event time timers are due also before the watermark."""
    state.at(now_us, wall_us)
    if by_event_time:
        state.now_ms, state.ahead_ms = LONG_AGO_MS, 0


def declared_times(fanout: Fanout, name: str = "") -> dict[str, EventTime]:
    """Where watermarks begin in a stage: by step, "" for the stage's own rows."""
    here = {name: fanout.event_time} if fanout.event_time is not None else {}
    for step in fanout.steps:
        here |= declared_times(step.out, step.name)
    return here


def latest_us(rows: Sequence[WireRow], column: int) -> int | None:
    """The latest event time of rows; None where none has one."""
    if isinstance(rows, ColumnRows):
        there = rows.columns[column].drop_null().to_numpy(zero_copy_only=False)
        return int(there.view(np.int64).max()) if len(there) else None
    return max((at for row in rows if (at := row[column]) is not None), default=None)
