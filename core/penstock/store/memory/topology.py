"""One topology in a node's memory, as calls of every role meet it: its data, owners and ready lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.store.memory.node import MemoryNode, Readiness, ShardRecord, TopologyData
from penstock.store.port import CONTROL_TOKEN, RUNG, Answer, Bounds, Moved, Owner

Handler = Callable[[Any], Any]


class Handlers(NamedTuple):
    """What carries out the calls of one role, by their types."""

    writes: Mapping[type, Handler]
    """Calls that an append-only file would hold."""
    reads: Mapping[type, Handler]


class MemoryTopology:
    """One topology's data in a `MemoryNode`: what the calls of all roles share."""

    def __init__(self, node: MemoryNode, topology_uid: str, bounds: Bounds) -> None:
        self._node = node
        self._uid = topology_uid
        self._bounds = bounds

    def handlers(self) -> Handlers:
        """What carries out the calls of this role. `MemoryStore` asks each of its bases."""
        return Handlers({}, {})

    @property
    def _data(self) -> TopologyData:
        return self._node.topology(self._uid)

    def _check_owner(self, shard: str, generation: int, epoch: int) -> ShardRecord | Answer:
        """The shard's record, or why the caller does not own it."""
        record = self._data.shards.get(shard)
        if record is None:
            return Answer.UNKNOWN
        if generation != self._node.generation or epoch != record.epoch or record.is_away:
            return Answer.FENCED
        return record

    def _unlist(self, shard: str, record: ShardRecord) -> None:
        """Take a shard off its owner's ready list, where it is unless the store crashed."""
        if record.owner is not None and record.readiness is Readiness.QUEUED:
            names = self._ready_list(record.owner)
            if shard in names:
                names.remove(shard)

    def _enlist(self, shard: str, record: ShardRecord) -> None:
        """Put a shard at the end of its owner's ready list, unless nobody owns it."""
        if record.owner is not None:
            self._list_for_more(record.owner.ready).append(shard)
            record.readiness = Readiness.QUEUED

    def _release(self, shard: str, record: ShardRecord) -> None:
        """Hand out again a shard that was held, once its outbox is within the bound."""
        if record.readiness is Readiness.HELD and not record.over_bound(self._bounds):
            record.readiness = Readiness.IDLE
            if record.has_work():
                self._enlist(shard, record)

    def _ready_list(self, owner: Owner) -> deque[str]:
        return self._data.ready.setdefault(owner.ready, deque())

    def _look_when_due(self, shard: str, record: ShardRecord) -> None:
        """The shard's timers changed, or its list."""
        if record.owner is None:
            return
        looks = self._data.due.setdefault(record.owner.ready, {})
        if record.timers:
            looks[shard] = min(record.timers.values())
        else:
            looks.pop(shard, None)

    def _list_for_more(self, ready: str) -> deque[str]:
        """A ready list that a name is to come onto: its bell rings where it is empty."""
        names = self._data.ready.setdefault(ready, deque())
        if not names:
            self._data.rung.add(ready)
        return names

    def _wake_list(self, ready: str) -> None:
        names = self._list_for_more(ready)
        if CONTROL_TOKEN not in names:
            names.appendleft(CONTROL_TOKEN)

    def _ring_listeners(self, operator: str) -> None:
        for ready in sorted(self._data.listening.pop(operator, ())):
            self._list_for_more(ready).append(RUNG)


def not_here(record: ShardRecord) -> Answer | Moved:
    """What a shard that is not active answers to who looks for it."""
    return Moved(record.home) if record.home else Answer.MOVING


def enrolled_incarnation(data: TopologyData, worker: str) -> str:
    """The incarnation of `worker` that counts here: enrolled, and of the uid that the map names."""
    enrolled = data.enrolled.get(worker)
    if enrolled is None:
        return ""
    uid, start, attempt = enrolled
    named = data.workers.get(worker)
    if named is not None and named[2] != uid:
        return ""
    return f"{uid}/{start}/{attempt}"
