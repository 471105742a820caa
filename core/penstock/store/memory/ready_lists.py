"""The twin's part about ready lists: what a task has to do."""

from __future__ import annotations

from collections import deque

from penstock.store.memory.node import Readiness, ShardRecord
from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import (
    CONTROL_TOKEN,
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


class MemoryReadyLists(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Wake: self._wake, Fetch: self._fetch}, reads={WaitReady: self._wait_ready})

    def _wait_ready(self, call: WaitReady) -> bool:
        return bool(self._data.ready.get(call.ready))

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
        used_bytes = 0
        taken: list[FetchedShard] = []
        while names and len(taken) < call.shards_max and (not taken or used_bytes < call.bytes_max):
            name = names.popleft()
            if name == CONTROL_TOKEN:
                control = True
                continue
            record = data.shards[name]
            if record.is_away:
                record.readiness = Readiness.IDLE
                continue
            if record.over_bound(self._bounds):
                record.readiness = Readiness.HELD
                continue
            entries = _read(record, call.bytes_max - used_bytes)
            used_bytes += sum(len(entry.payload) for entry in entries)
            record.readiness = Readiness.TAKEN if entries or record.source else Readiness.IDLE
            taken.append(FetchedShard(name, record.epoch, record.offset, entries))
        return self._hand_out_due(call, taken, control) if call.timers_max else Fetched(tuple(taken), control)

    def _hand_out_due(self, call: Fetch, taken: list[FetchedShard], control: bool) -> Fetched:
        """The timers that are due of the shards that were taken, then those of others of the list."""
        share, left = max(1, call.timers_max // 4), call.timers_max
        shards = []
        for one in taken:
            timers = _due(self._data.shards[one.shard], call.now_ms, min(share, left))
            left -= len(timers)
            shards.append(one._replace(timers=timers))
        held = {one.shard for one in taken}
        looks = self._data.due.get(call.ready, {})
        looked = sorted((at_ms, shard) for shard, at_ms in looks.items() if at_ms <= call.now_ms)[:DUE_SHARDS]
        is_more = left <= 0 or len(looked) == DUE_SHARDS
        for _, shard in looked:
            if shard in held:
                continue
            if left <= 0 or len(shards) >= call.shards_max:
                is_more = True
                break
            record = self._data.shards.get(shard)
            if record is None or record.owner is None or record.owner.ready != call.ready or record.is_away:
                del looks[shard]
            elif record.readiness is not Readiness.IDLE or record.over_bound(self._bounds):
                looks[shard] = call.now_ms + LATER_MS
            elif timers := _due(record, call.now_ms, min(share, left)):
                left -= len(timers)
                shards.append(FetchedShard(shard, record.epoch, record.offset, (), timers))
            else:
                self._look_when_due(shard, record)
        later = [at_ms for at_ms in looks.values() if at_ms > call.now_ms]
        next_due_ms = call.now_ms if is_more else min(later, default=None)
        return Fetched(tuple(shards), control, next_due_ms=next_due_ms)


def _due(record: ShardRecord, now_ms: int, most: int) -> tuple[DueTimer, ...]:
    """Timers that are due, the earliest first."""
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
