"""Moves between twins: what all of their calls share."""

from __future__ import annotations

from penstock.store.memory.node import MoveNote, ShardRecord
from penstock.store.memory.queues import MemoryQueues
from penstock.store.port import ShardStatus
from penstock.store.port.moves import Installed, Move

GONE = (ShardStatus.DEPARTED, ShardStatus.MOVED)
COPIED = (ShardStatus.COPYING, ShardStatus.FROZEN)


class MemoryMoving(MemoryQueues):
    """What all calls of a move share."""

    def _may_leave(self, shard: str, target: str, version: int) -> bool:
        """Whether the maps say that the shard belongs into this other store."""
        schedule = self._data.schedules.get(shard.split("/", 1)[0])
        if schedule is None or schedule.version > version or target == self._node.store_id:
            return False
        return schedule.shards.get(shard, ("", ""))[1] == target

    def _held_under(self, record: ShardRecord, move: Move) -> MoveNote | None:
        """What is known of this move, when the shard is copied or frozen under it in this generation."""
        note = record.note
        if record.status not in COPIED or note is None or note.move != move:
            return None
        return note if move.generation == self._node.generation else None

    def _turn(self, note: MoveNote) -> None:
        """What was noted so far is the next round's to copy; what comes now, that of the one after."""
        note.changes, note.noted = note.noted, {}
        note.round += 1

    def _clear_some(self, shard: str, record: ShardRecord) -> bool:
        """Drop some of what a shard is but its tombstone; answers whether nothing is left."""
        left = self._bounds.chunk_entries_max
        record.timers.clear()
        record.inbox.clear()
        for kept in (record.state, record.lanes, record.taken_from):
            for name in list(kept)[: max(0, left)]:
                left -= 1
                if kept is record.lanes:
                    self._clear_lane(shard, record, str(name))
                kept.pop(name)  # type: ignore[call-overload]
        if left <= 0:
            return False
        record.empty()
        return True

    def _clear_lane(self, shard: str, record: ShardRecord, target: str) -> None:
        lane = record.lanes[target]
        while lane.waiting:
            record.unqueue(lane)
        self._data.outgoing.pop((shard, target), None)
        if there := self._data.shards.get(target):
            there.waiters.pop(shard, None)


def installed_of(note: MoveNote) -> Installed:
    return Installed(note.chunks, note.resume, note.complete, note.rounds)


def is_of(record: ShardRecord, move: Move) -> bool:
    return record.note is not None and record.note.move == move
