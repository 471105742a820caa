"""The twin's part about moves between stores: the calls of `moves` over the records of a `MemoryNode`.

`memory.store` adds all other calls. A chunk holds parts of the record in the order of their keys (kind, name,
name or number), and is resumed behind the last one's key: what comes and goes meanwhile shifts nothing. A
part without values is one that is gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from penstock.store.memory.node import (
    NO_TASKS,
    Budget,
    Lane,
    MemoryNode,
    MoveNote,
    PartKey,
    Readiness,
    ShardRecord,
    TopologyData,
    Waiting,
)
from penstock.store.moving.calls import (
    Activate,
    Chunk,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Install,
    Installed,
    Move,
    MoveState,
    NextRound,
    Precopy,
    ReadMove,
    Round,
    Thaw,
)
from penstock.store.port import Answer, Bounds, Commit, Entry, Moved, ShardStatus

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode

_HEAD, _TAKEN, _STATE, _TIMER, _ENTRY, _WAITING = range(6)
"""Kinds of parts, in the order in which they are copied. Number 0 of the entries is
how far the inbox is worked off, of what waits the pair itself."""

_GONE = (ShardStatus.DEPARTED, ShardStatus.MOVED)
_COPIED = (ShardStatus.COPYING, ShardStatus.FROZEN)

_Part = tuple[PartKey, tuple[Any, ...]]
"""Key, and values."""


@dataclass(slots=True)
class _Resume:
    """Where a copy goes on: behind the part `after` of `round`, at its end without one; and how far inbox and
    outbox were copied, by number."""

    round: int = 0
    after: PartKey | None = None
    inbox: int = 0
    lanes: dict[str, int] = field(default_factory=dict)


def _decode_resume(resume: bytes) -> _Resume:
    at = msgspec.msgpack.decode(resume, type=_Resume)
    if at.after is not None:
        at.after = tuple(at.after)
    return at


class MemoryMoves(ABC):
    """Half of `MemoryStore`, which has the other methods that this one names."""

    _node: MemoryNode
    _bounds: Bounds

    @property
    @abstractmethod
    def _data(self) -> TopologyData: ...

    @abstractmethod
    def _pull_waiters(self, shard: str, record: ShardRecord) -> None: ...

    @abstractmethod
    def _wake_list(self, ready: str) -> None: ...

    @abstractmethod
    def _unlist(self, shard: str, record: ShardRecord) -> None: ...

    @abstractmethod
    def _move(
        self, producer: str, source: ShardRecord, target: str, there: ShardRecord, budget: Budget
    ) -> bool: ...

    # --- at the source

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

    def _may_leave(self, shard: str, target: str, version: int) -> bool:
        """Whether the maps say that the shard belongs into this other store."""
        schedule = self._data.schedules.get(shard.split("/", 1)[0])
        if schedule is None or schedule.version > version or target == self._node.store_id:
            return False
        return schedule.shards.get(shard, ("", ""))[1] == target

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        """What a commit is about to change of a shard that is being copied."""
        note = cast("MoveNote", record.note)
        for write in commit.state:
            names = record.state.get(write.collection, ()) if write.field is None else (write.field,)
            note.noted.update(dict.fromkeys((_STATE, write.collection, name) for name in names))
        note.noted.update(dict.fromkeys((_TIMER, timer.name) for timer in commit.timers))
        if len(note.noted) > self._bounds.noted_entries_max:
            self._stop_noting(record)

    def _stop_noting(self, record: ShardRecord) -> None:
        """The copy is given up. The token stays: the next one is newer."""
        note = cast("MoveNote", record.note)
        record.status, record.note = ShardStatus.ACTIVE, MoveNote(note.move)

    def _held_under(self, record: ShardRecord, move: Move) -> MoveNote | None:
        """What is known of this move, when the shard is copied or frozen under it in this generation."""
        note = record.note
        if record.status not in _COPIED or note is None or note.move != move:
            return None
        return note if move.generation == self._node.generation else None

    def _next_round(self, call: NextRound) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        note = self._held_under(record, call.move)
        at = _at(call.resume)
        if note is None or record.status is not ShardStatus.COPYING or at.after is not None:
            return Answer.STALE
        if at.round + 1 == note.round:
            return Answer.DONE
        if at.round != note.round:
            return Answer.STALE
        self._turn(note)
        return Answer.OK

    def _turn(self, note: MoveNote) -> None:
        """What was noted so far is the next round's to copy; what comes now, that of the one after."""
        note.changes, note.noted = note.noted, {}
        note.round += 1

    def _freeze(self, call: Freeze) -> Chunk | Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status in _GONE or record.status is ShardStatus.INSTALLING:
            return not_here(record)
        note = self._held_under(record, call.move)
        if note is None:
            return Answer.STALE
        if record.status is ShardStatus.COPYING:
            at = _at(call.resume)
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
        at = _at(resume)
        after = at.after
        if after is None and at.round + 1 == note.round:
            at.round, after = note.round, ()
        elif after is None or at.round != note.round:
            return Answer.STALE
        final = record.status is ShardStatus.FROZEN
        parts = list(_forgotten(record, after))
        parts += sorted(part for part in _round_parts(record, note, at, final=final) if part[0] > after)
        chunk: list[_Part] = []
        used_bytes = 0
        for part in parts[: self._bounds.chunk_entries_max]:
            if used_bytes > self._bounds.chunk_bytes_max:
                break
            chunk.append(part)
            used_bytes += len(_encode(part))
        is_over = len(chunk) == len(parts)
        for (kind, *names), values in chunk:
            if kind == _ENTRY and names[0]:
                at.inbox = names[0]
            elif kind == _WAITING and values and names[1]:
                at.lanes[names[0]] = names[1]
        at.after = None if is_over else chunk[-1][0]
        rounds = at.round if is_over else at.round - 1
        return Chunk(_encode((final, chunk)), _encode(at), final and is_over, rounds)

    def _depart(self, call: Depart) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status in _GONE:
            return Answer.DONE if _is_of(record, call.move) else Answer.STALE
        if record.status is not ShardStatus.FROZEN or self._held_under(record, call.move) is None:
            return Answer.STALE
        self._data.leaving.pop(call.shard, None)
        record.status = ShardStatus.DEPARTED
        record.home = call.move.target
        record.note = MoveNote(call.move)
        return Answer.OK

    def _drop(self, call: Drop) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status not in _GONE or not _is_of(record, call.move):
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
        if record.status in _GONE:
            return not_here(record)
        if record.status not in _COPIED or record.note is None or record.note.move.epoch != call.move.epoch:
            return Answer.STALE
        if record.status is ShardStatus.COPYING:
            self._stop_noting(record)
        else:
            self._take_up(call.shard, record)
        return Answer.OK

    # --- at the target

    def _install(self, call: Install) -> Installed | Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        record = data.shards.get(call.shard)
        if not _may_come(record, call.move):
            return Answer.STALE
        if record is None or record.status is not ShardStatus.INSTALLING or not _is_of(record, call.move):
            if call.number != 1:
                return Installed(0, b"", complete=False)
            record = self._begin(call.shard, record, call.move)
        note = cast("MoveNote", record.note)
        if note.clearing:
            note.clearing = not self._clear_some(call.shard, record)
            return Installed(0, b"", complete=False)
        if call.number == note.chunks + 1 and not note.complete:
            final, parts = _decode(call.chunk.payload)
            for key, values in parts:
                self._write_part(call.shard, record, key, values, final=final)
            note.chunks, note.resume, note.complete = call.number, call.chunk.resume, call.chunk.is_last
            note.rounds = call.chunk.rounds
        return _held(note)

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
        if kind == _HEAD:
            (
                record.epoch, record.source, record.position, record.within, record.counts,
                record.table_version, record.commit, record.offset, record.finished, record.placed,
                record.inbox_bytes, record.arrived_rows, record.completed_rows,
            ) = values  # fmt: skip
            record.home = ""
        elif kind == _TAKEN:
            (record.taken_from[names[0]],) = values
        elif kind == _STATE:
            self._write_state(record, names, values)
        elif kind == _TIMER:
            record.timers.pop(names[0], None)
            if values:
                (record.timers[names[0]],) = values
        elif kind == _ENTRY:
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
        external, issued, acknowledged, position, first = values
        lane = record.lanes.setdefault(target, Lane(external))
        lane.issued, lane.acknowledged, lane.position = issued, acknowledged, position
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

    def _activate(self, call: Activate) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        epoch, note = call.move.epoch, record.note
        if record.status is not ShardStatus.INSTALLING:
            past = epoch + 1 if record.status in _GONE else epoch
            return Answer.DONE if record.epoch >= past else Answer.STALE
        if note is None or note.move != call.move:
            return Answer.DONE if record.epoch > epoch else Answer.STALE
        if note.discarded:
            return Answer.STALE
        if not note.complete:
            return Answer.CONFLICT
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

    # --- at both

    def _take_up(self, shard: str, record: ShardRecord) -> None:
        """The shard is active: what waited for it in this node is local from now on."""
        record.status = ShardStatus.ACTIVE
        record.note = None
        record.home = ""
        outgoing = self._data.outgoing
        for producer, target in [pair for pair in outgoing if pair[1] == shard]:
            del outgoing[producer, target]
            record.waiters[producer] = None
        self._pull_waiters(shard, record)
        self._wake_runner(shard)

    def _wake_runner(self, shard: str) -> None:
        """Wake the task that the maps here give the shard to: it may have asked before it could be had."""
        schedule = self._data.schedules.get(shard.split("/", 1)[0])
        planned, _ = schedule.shards.get(shard, ("", "")) if schedule is not None else ("", "")
        executor = self._data.leaving.get(shard, planned)
        _, mapping, _ = self._data.tasks.get(executor, NO_TASKS)
        if shard in mapping:
            self._wake_list(mapping[shard])

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

    def _read_move(self, call: ReadMove) -> MoveState | None:
        record = self._data.shards.get(call.shard)
        if record is None:
            return None
        note, status = record.note, record.status
        if note is None or status is ShardStatus.ACTIVE:
            return MoveState(status, record.epoch, None, None, self._node.generation, None)
        round_ = None
        if status in _COPIED:
            fits = status is ShardStatus.COPYING and self._fits(record, note)
            round_ = Round(note.round, len(note.changes), len(note.noted), fits)
        installed = _held(note) if status is ShardStatus.INSTALLING else None
        return MoveState(status, record.epoch, note.move, installed, self._node.generation, round_)

    def _fits(self, record: ShardRecord, note: MoveNote) -> bool:
        """Whether what was noted, or all of a shard of which nothing is copied yet, fits into a chunk."""
        if note.round:
            return len(note.noted) <= self._bounds.chunk_entries_max
        parts = list(_round_parts(record, MoveNote(note.move, round=1), _Resume(), final=True))
        size_bytes = sum(len(_encode(part)) for part in parts)
        return len(parts) <= self._bounds.chunk_entries_max and size_bytes <= self._bounds.chunk_bytes_max


def not_here(record: ShardRecord) -> Answer | Moved:
    """What a shard that is not active answers to who looks for it."""
    return Moved(record.home) if record.home else Answer.MOVING


def _held(note: MoveNote) -> Installed:
    return Installed(note.chunks, note.resume, note.complete, note.rounds)


def _at(resume: bytes) -> _Resume:
    return _decode_resume(resume) if resume else _Resume()


def _is_of(record: ShardRecord, move: Move) -> bool:
    return record.note is not None and record.note.move == move


def _may_come(record: ShardRecord | None, move: Move) -> bool:
    """Whether the shard may come here with this move: it is not here, and did not come or leave with it or a
    newer one."""
    if record is None:
        return True
    if record.status in _GONE:
        return record.epoch < move.epoch
    if record.status is not ShardStatus.INSTALLING or record.note is None:
        return False
    held = record.note.move
    if held == move:
        return not record.note.discarded
    return held.epoch < move.epoch


def _round_parts(record: ShardRecord, note: MoveNote, at: _Resume, *, final: bool) -> Iterator[_Part]:
    """What the present round copies, behind what was copied of inbox and outbox before."""
    if note.round == 1:
        for collection, fields in record.state.items():
            for name, value in fields.items():
                yield (_STATE, collection, name), (value,)
        for name, due_ms in record.timers.items():
            yield (_TIMER, name), (due_ms,)
        if not final:
            return
    for key in note.changes:
        kind, *path = key
        kept: Any = record.timers if kind == _TIMER else record.state.get(path[0], {})
        yield key, (kept[path[-1]],) if path[-1] in kept else ()
    yield (_ENTRY, 0), (record.offset,)
    for number, placed_us, payload in record.inbox:
        if number > at.inbox:
            yield (_ENTRY, number), (record.offset, placed_us, payload)
    for target, lane in record.lanes.items():
        first = lane.waiting[0].number if lane.waiting else 0
        yield (_WAITING, target, 0), (lane.external, lane.issued, lane.acknowledged, lane.position, first)
        for entry in lane.waiting:
            if entry.number > at.lanes.get(target, 0):
                yield (_WAITING, target, entry.number), entry[1:]
    if final:
        yield from _record_parts(record)


def _record_parts(record: ShardRecord) -> Iterator[_Part]:
    yield (
        (_HEAD,),
        (
            record.epoch, record.source, record.position, record.within, record.counts,
            record.table_version, record.commit, record.offset, record.finished, record.placed,
            record.inbox_bytes, record.arrived_rows, record.completed_rows,
        ),
    )  # fmt: skip
    for producer, number in record.taken_from.items():
        yield (_TAKEN, producer), (number,)


def _forgotten(record: ShardRecord, after: PartKey) -> Iterator[_Part]:
    """Says of the pair that was being copied that it has nothing left: all of it was delivered since."""
    if after and after[0] == _WAITING and not record.lanes[after[1]].waiting:
        yield after, ()
