"""The twin's part about ready lists: what a task has to do."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from penstock.store.memory.node import Readiness, ShardRecord
from penstock.store.memory.telling import MemoryTelling
from penstock.store.memory.topology import Handlers
from penstock.store.port import (
    CONTROL_TOKEN,
    RUNG,
    Answer,
    DueTimer,
    Entry,
    Fetch,
    Fetched,
    FetchedShard,
    WaitReady,
    Wake,
)

DUE_SHARDS = 128
"""Shards with timers that one fetch looks at."""
LATER_MS = 20
"""A shard whose timers have to wait is looked at again after so long."""


class MemoryReadyLists(MemoryTelling):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Wake: self._wake, Fetch: self._fetch}, reads={WaitReady: self._wait_ready})

    def _wait_ready(self, call: WaitReady) -> bool:
        has_rung = call.ready in self._data.rung
        self._data.rung.discard(call.ready)
        return bool(self._data.ready.get(call.ready)) if call.look else has_rung

    def _wake(self, call: Wake) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._wake_list(call.ready)
        return Answer.OK

    def _fetch(self, call: Fetch) -> Fetched:
        data = self._data
        names = data.ready.get(call.ready, deque())
        control = call.shards_max == 0 and CONTROL_TOKEN in names
        if control:
            names.remove(CONTROL_TOKEN)
        used_bytes, rung = 0, False
        taken: list[FetchedShard] = []
        while names and len(taken) < call.shards_max and (not taken or used_bytes < call.bytes_max):
            name = names.popleft()
            if name == CONTROL_TOKEN:
                control = True
                continue
            if name == RUNG:
                rung = True
                continue
            record = data.shards[name]
            if record.is_away:
                record.readiness = Readiness.IDLE
                continue
            if record.over_bound(self._bounds):
                record.readiness = Readiness.HELD
                continue
            if taken and record.inbox_bytes > call.bytes_max - used_bytes:
                names.appendleft(name)
                break
            entries = _read(record, call.bytes_max - used_bytes)
            used_bytes += sum(len(entry.payload) for entry in entries)
            record.readiness = Readiness.TAKEN if entries or record.source else Readiness.IDLE
            placed = record.placed if call.producers else 0
            taken.append(FetchedShard(name, record.epoch, record.offset, entries, placed=placed))
        if not call.timers_max:
            return Fetched(tuple(taken), control)
        fetched = self._hand_out_due(call, taken, control)
        return replace(fetched, rung=True) if rung and call.producers else fetched

    def _hand_out_due(self, call: Fetch, taken: list[FetchedShard], control: bool) -> Fetched:
        """The timers that are due of the shards that were taken, then those of others of the list."""
        watermark = self._input_watermark(call.producers, call.keyed) if call.producers else None
        now_ms = call.now_ms if watermark is None else _before(watermark.ms)
        share, left = max(1, call.timers_max // 4), call.timers_max
        shards = []
        for one in taken:
            record = self._data.shards[one.shard]
            up_to_ms = now_ms if watermark is None else _before(record.watermark_ms)
            timers = _due(record, up_to_ms, min(share, left))
            left -= len(timers)
            shards.append(one._replace(timers=timers, watermark=watermark))
        held = {one.shard for one in taken}
        looks = self._data.due.get(call.ready, {})
        looked = sorted(
            (at_ms, shard) for shard, at_ms in looks.items() if now_ms is not None and at_ms <= now_ms
        )
        is_full, is_mended = len(looked) >= DUE_SHARDS, False
        is_more = left <= 0 or (watermark is None and is_full)
        for _, shard in looked[:DUE_SHARDS]:
            if shard in held or now_ms is None:
                continue
            if left <= 0 or len(shards) >= call.shards_max:
                is_more = True
                break
            found = self._data.shards.get(shard)
            if found is None or found.owner is None or found.owner.ready != call.ready or found.is_away:
                del looks[shard]
                is_mended = True
                continue
            is_busy = found.readiness is not Readiness.IDLE or found.over_bound(self._bounds)
            own_ms = None if watermark is None else _before(found.watermark_ms)
            up_to_ms = now_ms if own_ms is None else max(now_ms, own_ms)
            if watermark is not None and (is_busy or found.placed > found.offset):
                # What it has before its timers are rows, whose commits bring the watermark.
                looks[shard] = now_ms
            elif is_busy:
                looks[shard] = now_ms + LATER_MS
            elif timers := _due(found, up_to_ms, min(share, left)):
                left -= len(timers)
                placed = 0 if watermark is None else found.placed
                shards.append(FetchedShard(shard, found.epoch, found.offset, (), timers, placed, watermark))
            else:
                self._look_when_due(shard, found)
                is_mended = True
        if watermark is not None:
            # Where all that was looked at has work nothing is gained by another look.
            again_ms = 0 if is_more or (is_full and is_mended) else None
            return Fetched(tuple(shards), control, next_due_ms=again_ms, watermark=watermark)
        later = [at_ms for at_ms in looks.values() if at_ms > call.now_ms]
        next_due_ms = call.now_ms if is_more else min(later, default=None)
        return Fetched(tuple(shards), control, next_due_ms=next_due_ms)


def _before(watermark_ms: int | None) -> int | None:
    """The last time that a watermark has passed."""
    return None if watermark_ms is None else watermark_ms - 1


def _due(record: ShardRecord, now_ms: int | None, most: int) -> tuple[DueTimer, ...]:
    """Timers that are due, the earliest first."""
    if now_ms is None:
        return ()
    due = sorted((due_ms, name) for name, due_ms in record.timers.items() if due_ms <= now_ms)
    return tuple(DueTimer(name, due_ms) for due_ms, name in due[: max(0, most)])


def _read(record: ShardRecord, bytes_max: int) -> tuple[Entry, ...]:
    """The inbox from its start, about `bytes_max` bytes of it, one entry at the least."""
    entries: list[Entry] = []
    used_bytes = 0
    for entry in record.inbox:
        used_bytes += len(entry.payload)
        if entries and used_bytes > bytes_max:
            break
        entries.append(entry)
    return tuple(entries)
