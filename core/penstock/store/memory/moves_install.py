"""The twin's part about moves: a copy is written part by part, at the target."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from penstock.store.memory.moving import GONE, MemoryMoving, installed_of, is_of
from penstock.store.memory.node import Budget, Lane, MoveNote, ShardRecord, Waiting
from penstock.store.memory.parts import ENTRY, HEAD, STATE, TAKEN, TIMER
from penstock.store.memory.topology import Handlers
from penstock.store.port import Answer, Entry, ShardStatus, Watermark
from penstock.store.port.moves import Install, Installed, Move


class MemoryMovesInstall(MemoryMoving):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Install: self._install}, reads={})

    def _install(self, call: Install) -> Installed | Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        record = data.shards.get(call.shard)
        if not _may_come(record, call.move):
            return Answer.STALE
        if record is None or record.status is not ShardStatus.INSTALLING or not is_of(record, call.move):
            if call.number != 1:
                return Installed(0, b"", complete=False)
            record = self._begin(call.shard, record, call.move)
        note = cast("MoveNote", record.note)
        if note.clearing:
            note.clearing = not self._clear_some(call.shard, record)
            return Installed(0, b"", complete=False)
        if call.number == note.chunks + 1 and not note.complete:
            final, parts = msgspec.msgpack.decode(call.chunk.payload)
            for key, values in parts:
                self._write_part(call.shard, record, key, values, final=final)
            note.chunks, note.resume, note.complete = call.number, call.chunk.resume, call.chunk.is_last
            note.rounds = call.chunk.rounds
        return installed_of(note)

    def _begin(self, shard: str, record: ShardRecord | None, move: Move) -> ShardRecord:
        """A record that is being installed, over what an earlier stay or move left."""
        data = self._data
        note = MoveNote(move, clearing=record is not None)
        if record is None:
            record = data.shards[shard] = ShardRecord(source=False, position=b"", table_version=0)
            data.listed = True
        record.status, record.epoch, record.note = ShardStatus.INSTALLING, move.epoch, note
        # Until the rest comes the shard is where it was.
        record.home = move.source
        return record

    def _write_part(
        self, shard: str, record: ShardRecord, key: list[Any], values: list[Any], *, final: bool
    ) -> None:
        kind, *names = key
        if kind == HEAD:
            (
                record.epoch, record.source, record.position, record.within, record.counts,
                record.table_version, record.commit, record.offset, record.finished, record.placed,
                record.inbox_bytes, record.arrived_rows, record.completed_rows,
                record.watermark_ms, reached, told, record.told_version,
            ) = values  # fmt: skip
            record.reached, record.told = (None if of is None else Watermark(*of) for of in (reached, told))
            record.home = ""
        elif kind == TAKEN:
            (record.taken_from[names[0]],) = values
        elif kind == STATE:
            self._write_state(record, names, values)
        elif kind == TIMER:
            record.timers.pop(names[0], None)
            if values:
                (record.timers[names[0]],) = values
        elif kind == ENTRY:
            offset, *entry = values
            # what the owner has worked off since it was copied
            while record.inbox and record.inbox[0].number <= offset:
                record.inbox.popleft()
            if entry:
                record.inbox.append(Entry(names[0], *entry))
        elif values and names[1] == 0:
            self._write_lane(shard, record, names[0], values, final=final)
        else:
            waiting = Waiting(names[1], *values) if values else None
            self._write_waiting(shard, record, names[0], waiting, final=final)

    def _write_state(self, record: ShardRecord, names: list[Any], values: list[Any]) -> None:
        collection, name = names
        kept = record.state.setdefault(collection, {})
        kept.pop(name, None)
        if values:
            (kept[name],) = values
        if not kept:
            del record.state[collection]

    def _write_lane(
        self, shard: str, record: ShardRecord, target: str, values: list[Any], *, final: bool
    ) -> None:
        """A pair, of which the source has delivered what is before its `first` entry: all when that is 0."""
        external, issued, acknowledged, position, intent, first = values
        lane = record.lanes.setdefault(target, Lane(external))
        lane.issued, lane.acknowledged, lane.position, lane.intent = issued, acknowledged, position, intent
        while lane.waiting and (not first or lane.waiting[0].number < first):
            record.unqueue(lane)
        if final and lane.waiting:
            self._offer(shard, record, target)

    def _write_waiting(
        self, shard: str, record: ShardRecord, target: str, entry: Waiting | None, *, final: bool
    ) -> None:
        """An entry of the outbox. None, or a hole before it, says: what was copied before is delivered."""
        lane = record.lanes[target]
        if lane.waiting and (entry is None or entry.number > lane.waiting[-1].number + 1):
            self._clear_lane(shard, record, target)
        if entry is None:
            return
        record.queue(lane, entry)
        if final:
            self._offer(shard, record, target)

    def _offer(self, shard: str, record: ShardRecord, target: str) -> None:
        """Entries of a copied outbox may be delivered from here, too."""
        if record.lanes[target].external:
            return
        there = self._data.shards.get(target)
        if there is None or there.is_away:
            self._data.outgoing[shard, target] = None
        else:
            # There may be room, and nothing else that would make the target look.
            self._move(shard, record, target, there, Budget(self._bounds))


def _may_come(record: ShardRecord | None, move: Move) -> bool:
    """Whether the shard may come here with this move: it is not here, and did not come or leave with it or a
    newer one."""
    if record is None:
        return True
    if record.status in GONE:
        return record.epoch < move.epoch
    if record.status is not ShardStatus.INSTALLING or record.note is None:
        return False
    held = record.note.move
    if held == move:
        return not record.note.discarded
    return held.epoch < move.epoch
