"""The twin's part about moves: their steps, at the source and at the target, and where a shard stands."""

from __future__ import annotations

from typing import cast

import msgspec

from penstock.store.memory.moving import COPIED, GONE, MemoryMoving, installed_of, is_of
from penstock.store.memory.node import NO_TASKS, MoveNote, ShardRecord
from penstock.store.memory.parts import Resume, resumed, round_parts
from penstock.store.memory.queues import wait_in_line
from penstock.store.memory.topology import Handlers, not_here
from penstock.store.port import Answer, Moved, ShardStatus
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Move,
    MoveState,
    NextRound,
    Precopy,
    ReadMove,
    Round,
    Thaw,
)


class MemoryMoves(MemoryMoving):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={
                Precopy: self._precopy,
                NextRound: self._next_round,
                Depart: self._depart,
                Activate: self._activate,
                Drop: self._drop,
                Thaw: self._thaw,
                Discard: self._discard,
            },
            reads={ReadMove: self._read_move},
        )

    def _precopy(self, call: Precopy) -> Move | Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        if not self._may_leave(call.shard, call.target, call.version):
            return Answer.STALE
        note = record.note
        if (
            record.status is not ShardStatus.COPYING
            or note is None
            or (note.move.target, note.move.generation) != (call.target, self._node.generation)
        ):
            # Newer than every owner so far, and than every move that was given up before.
            epoch = max(record.epoch, note.move.epoch if note else 0) + 1
            note = MoveNote(Move(self._node.store_id, call.target, epoch, self._node.generation))
            record.status, record.note = ShardStatus.COPYING, note
        return note.move

    def _next_round(self, call: NextRound) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        note = self._held_under(record, call.move)
        at = resumed(call.resume)
        if note is None or record.status is not ShardStatus.COPYING or at.after is not None:
            return Answer.STALE
        if at.round + 1 == note.round:
            return Answer.DONE
        if at.round != note.round:
            return Answer.STALE
        self._turn(note)
        return Answer.OK

    def _depart(self, call: Depart) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status in GONE:
            return Answer.DONE if is_of(record, call.move) else Answer.STALE
        if record.status is not ShardStatus.FROZEN or self._held_under(record, call.move) is None:
            return Answer.STALE
        self._data.leaving.pop(call.shard, None)
        record.status = ShardStatus.DEPARTED
        record.home = call.move.target
        record.note = MoveNote(call.move)
        return Answer.OK

    def _activate(self, call: Activate) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        epoch, note = call.move.epoch, record.note
        if record.status is not ShardStatus.INSTALLING:
            past = epoch + 1 if record.status in GONE else epoch
            return Answer.DONE if record.epoch >= past else Answer.STALE
        if note is None or note.move != call.move:
            return Answer.DONE if record.epoch > epoch else Answer.STALE
        if note.discarded:
            return Answer.STALE
        if not note.complete:
            return Answer.CONFLICT
        self._take_up(call.shard, record)
        return Answer.OK

    def _take_up(self, shard: str, record: ShardRecord) -> None:
        """The shard is active: what waited for it in this node is local from now on."""
        record.status = ShardStatus.ACTIVE
        record.note = None
        record.home = ""
        outgoing = self._data.outgoing
        for producer, target in [pair for pair in outgoing if pair[1] == shard]:
            del outgoing[producer, target]
            wait_in_line(producer, shard, record)
        self._pull_waiters(shard, record)
        self._resume_telling(shard, record)
        self._wake_runner(shard)

    def _wake_runner(self, shard: str) -> None:
        """Wake the task that the maps here give the shard to: it may have asked before it could be had."""
        schedule = self._data.schedules.get(shard.split("/", 1)[0])
        planned, _ = schedule.shards.get(shard, ("", "")) if schedule is not None else ("", "")
        executor = self._data.leaving.get(shard, planned)
        _, mapping, _ = self._data.tasks.get(executor, NO_TASKS)
        if shard in mapping:
            self._wake_list(mapping[shard])

    def _drop(self, call: Drop) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status not in GONE or not is_of(record, call.move):
            return Answer.STALE
        if record.status is ShardStatus.MOVED:
            return Answer.OK
        if not self._clear_some(call.shard, record):
            return Answer.MORE
        record.status = ShardStatus.MOVED
        return Answer.OK

    def _thaw(self, call: Thaw) -> Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status is ShardStatus.ACTIVE:
            return Answer.DONE
        if record.status in GONE:
            return not_here(record)
        if record.status not in COPIED or record.note is None or record.note.move.epoch != call.move.epoch:
            return Answer.STALE
        if record.status is ShardStatus.COPYING:
            record.stop_noting()
        else:
            self._take_up(call.shard, record)
        return Answer.OK

    def _discard(self, call: Discard) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status is ShardStatus.MOVED:
            return Answer.OK
        if record.status is not ShardStatus.INSTALLING:
            return Answer.STALE
        note = cast("MoveNote", record.note)
        if note.move.epoch > call.move.epoch:
            return Answer.STALE
        note.discarded = True
        if not self._clear_some(call.shard, record):
            return Answer.MORE
        record.status, record.epoch, record.home = ShardStatus.MOVED, call.move.epoch, call.move.source
        record.note = MoveNote(call.move)
        self._data.leaving.pop(call.shard, None)
        return Answer.OK

    def _read_move(self, call: ReadMove) -> MoveState | None:
        record = self._data.shards.get(call.shard)
        if record is None:
            return None
        note, status = record.note, record.status
        if note is None or status is ShardStatus.ACTIVE:
            return MoveState(status, record.epoch, None, None, self._node.generation, None)
        round_ = None
        if status in COPIED:
            fits = status is ShardStatus.COPYING and self._fits(record, note)
            round_ = Round(note.round, len(note.changes), len(note.noted), fits)
        installed = installed_of(note) if status is ShardStatus.INSTALLING else None
        return MoveState(status, record.epoch, note.move, installed, self._node.generation, round_)

    def _fits(self, record: ShardRecord, note: MoveNote) -> bool:
        """Whether what was noted, or all of a shard of which nothing is copied yet, fits into a chunk."""
        if note.round:
            return len(note.noted) <= self._bounds.chunk_entries_max
        parts = list(round_parts(record, MoveNote(note.move, round=1), Resume(), final=True))
        size_bytes = sum(len(msgspec.msgpack.encode(part)) for part in parts)
        return len(parts) <= self._bounds.chunk_entries_max and size_bytes <= self._bounds.chunk_bytes_max
