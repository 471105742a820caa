"""The twin's part about moves: a copy is read part by part, at the source."""

from __future__ import annotations

import msgspec

from penstock.store.memory.moving import GONE, MemoryMoving
from penstock.store.memory.node import MoveNote, Readiness, ShardRecord
from penstock.store.memory.parts import ENTRY, WAITING, Part, forgotten, resumed, round_parts
from penstock.store.memory.topology import Handlers, not_here
from penstock.store.port import Answer, Moved, ShardStatus
from penstock.store.port.moves import Chunk, Export, Freeze


class MemoryMovesExport(MemoryMoving):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Freeze: self._freeze}, reads={Export: self._export})

    def _freeze(self, call: Freeze) -> Chunk | Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status in GONE or record.status is ShardStatus.INSTALLING:
            return not_here(record)
        note = self._held_under(record, call.move)
        if note is None:
            return Answer.STALE
        if record.status is ShardStatus.COPYING:
            at = resumed(call.resume)
            if at.after is not None or at.round != note.round:
                return Answer.STALE
            if not self._may_leave(call.shard, call.move.target, call.version):
                return Answer.STALE
            self._unlist(call.shard, record)
            record.epoch = max(record.epoch + 1, call.move.epoch)
            record.owner = None
            record.readiness = Readiness.IDLE
            record.status = ShardStatus.FROZEN
            self._turn(note)
            self._send_waiters_out(call.shard, record)
        return self._read_part(record, note, call.resume)

    def _send_waiters_out(self, shard: str, record: ShardRecord) -> None:
        """What waits for room in this inbox has to be delivered, wherever the shard will be."""
        self._data.outgoing.update(dict.fromkeys((producer, shard) for producer in record.waiters))
        record.waiters.clear()
        record.callers = None

    def _export(self, call: Export) -> Chunk | Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        note = self._held_under(record, call.move)
        return Answer.STALE if note is None else self._read_part(record, note, call.resume)

    def _read_part(self, record: ShardRecord, note: MoveNote, resume: bytes) -> Chunk | Answer:
        """The part of the present round that begins at `resume`."""
        at = resumed(resume)
        after = at.after
        if after is None and at.round + 1 == note.round:
            at.round, after = note.round, ()
        elif after is None or at.round != note.round:
            return Answer.STALE
        final = record.status is ShardStatus.FROZEN
        parts = list(forgotten(record, after))
        parts += sorted(part for part in round_parts(record, note, at, final=final) if part[0] > after)
        chunk: list[Part] = []
        used_bytes = 0
        for part in parts[: self._bounds.chunk_entries_max]:
            if used_bytes > self._bounds.chunk_bytes_max:
                break
            chunk.append(part)
            used_bytes += len(msgspec.msgpack.encode(part))
        is_over = len(chunk) == len(parts)
        for (kind, *names), values in chunk:
            if kind == ENTRY and names[0]:
                at.inbox = names[0]
            elif kind == WAITING and values and names[1]:
                at.lanes[names[0]] = names[1]
        at.after = None if is_over else chunk[-1][0]
        rounds = at.round if is_over else at.round - 1
        return Chunk(
            msgspec.msgpack.encode((final, chunk)), msgspec.msgpack.encode(at), final and is_over, rounds
        )
