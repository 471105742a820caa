"""The twin's part about ready lists: what a task has to do."""

from __future__ import annotations

from collections import deque

from penstock.store.memory.node import Readiness, ShardRecord
from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import CONTROL_TOKEN, Answer, Entry, Fetch, Fetched, FetchedShard, WaitReady, Wake


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
        return Fetched(tuple(taken), control)


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
