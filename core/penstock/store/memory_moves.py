"""The twin's part about moves between stores: the calls of `moves` over the records of a `MemoryNode`.

`memory_store` adds all other calls. A chunk holds parts of the record in the order of their keys (kind, name,
name or number), and is resumed behind the last one's key: what goes from the outbox meanwhile shifts nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from penstock.store.memory_node import (
    NO_TASKS,
    Budget,
    Lane,
    MemoryNode,
    MoveNote,
    Readiness,
    ShardRecord,
    TopologyData,
    Waiting,
)
from penstock.store.moves import (
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
    ReadMove,
    Thaw,
)
from penstock.store.port import Answer, Bounds, Entry, Moved, ShardStatus

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode

_HEAD, _TAKEN, _LANE, _STATE, _TIMER, _ENTRY, _WAITING = range(7)
"""Kinds of parts, in the order in which they are copied."""

_GONE = (ShardStatus.DEPARTED, ShardStatus.MOVED)

_Part = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Key, and values."""


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

    def _freeze(self, call: Freeze) -> Move | Answer | Moved:
        data, node = self._data, self._node
        record = data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status not in {ShardStatus.ACTIVE, ShardStatus.FROZEN}:
            return not_here(record)
        schedule = data.schedules.get(call.shard.split("/", 1)[0])
        if schedule is None or schedule.version > call.version or call.target == node.store_id:
            return Answer.STALE
        if schedule.shards.get(call.shard, ("", ""))[1] != call.target:
            return Answer.STALE
        if record.note is None or record.note.move.target != call.target:
            self._unlist(call.shard, record)
            record.epoch += 1
            record.owner = None
            record.readiness = Readiness.IDLE
            record.status = ShardStatus.FROZEN
            record.note = MoveNote(Move(node.store_id, call.target, record.epoch, node.generation))
            self._send_waiters_out(call.shard, record)
        return self._current(record.note.move)

    def _send_waiters_out(self, shard: str, record: ShardRecord) -> None:
        """What waits for room in this inbox has to be delivered, wherever the shard will be."""
        self._data.outgoing.update(dict.fromkeys((producer, shard) for producer in record.waiters))
        record.waiters.clear()

    def _current(self, move: Move) -> Move:
        return Move(move.source, move.target, move.epoch, self._node.generation)

    def _is_frozen_under(self, record: ShardRecord, move: Move) -> bool:
        note = record.note
        return record.status is ShardStatus.FROZEN and note is not None and self._current(note.move) == move

    def _export(self, call: Export) -> Chunk | Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if not self._is_frozen_under(record, call.move):
            return Answer.STALE
        after = tuple(_decode(call.resume)) if call.resume else ()
        parts = list(_forgotten(record, after))
        parts += sorted(part for part in _parts_of(record) if part[0] > after)
        chunk: list[_Part] = []
        used_bytes = 0
        for part in parts[: self._bounds.chunk_entries_max]:
            if used_bytes > self._bounds.chunk_bytes_max:
                break
            chunk.append(part)
            used_bytes += len(_encode(part))
        is_last = len(chunk) == len(parts)
        return Chunk(_encode(chunk), b"" if is_last else _encode(chunk[-1][0]), is_last)

    def _depart(self, call: Depart) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.status in _GONE:
            return Answer.DONE if _is_of(record, call.move) else Answer.STALE
        if not self._is_frozen_under(record, call.move):
            return Answer.STALE
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
        if record.status is not ShardStatus.FROZEN or record.epoch != call.move.epoch:
            return Answer.STALE
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
            for key, values in _decode(call.chunk.payload):
                self._write_part(call.shard, record, key, values)
            note.chunks, note.resume, note.complete = call.number, call.chunk.resume, call.chunk.is_last
        return Installed(note.chunks, note.resume, note.complete)

    def _begin(self, shard: str, record: ShardRecord | None, move: Move) -> ShardRecord:
        """A record that is being installed, over what an earlier stay or move left."""
        data = self._data
        note = MoveNote(move, clearing=record is not None)
        if record is None:
            record = data.shards[shard] = ShardRecord(source=False, position=b"", table_version=0)
            data.listed = True
        record.status, record.epoch, record.note = ShardStatus.INSTALLING, move.epoch, note
        return record

    def _write_part(self, shard: str, record: ShardRecord, key: list[Any], values: list[Any]) -> None:
        kind, *names = key
        if kind == _HEAD:
            (
                record.source, record.position, record.table_version, record.commit, record.offset,
                record.finished, record.placed, record.inbox_bytes, record.arrived_rows,
                record.completed_rows,
            ) = values  # fmt: skip
        elif kind == _TAKEN:
            (record.taken_from[names[0]],) = values
        elif kind == _LANE:
            external, issued, acknowledged, position = values
            record.lanes[names[0]] = Lane(external, issued, acknowledged, position)
        elif kind == _STATE:
            (value,) = values
            record.state.setdefault(names[0], {})[names[1]] = value
        elif kind == _TIMER:
            (record.timers[names[0]],) = values
        elif kind == _ENTRY:
            record.inbox.append(Entry(names[0], *values))
        elif kind == _WAITING:
            self._write_waiting(shard, record, names[0], Waiting(names[1], *values) if values else None)

    def _write_waiting(self, shard: str, record: ShardRecord, target: str, entry: Waiting | None) -> None:
        """An entry of the outbox. None, or a hole before it, says: what was copied before is delivered."""
        lane = record.lanes[target]
        if lane.waiting and (entry is None or entry.number > lane.waiting[-1].number + 1):
            self._clear_lane(shard, record, target)
        if entry is None:
            return
        record.queue(lane, entry)
        if lane.external:
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
        if record.status is not ShardStatus.INSTALLING or record.epoch > call.move.epoch:
            return Answer.STALE
        cast("MoveNote", record.note).discarded = True
        if not self._clear_some(call.shard, record):
            return Answer.MORE
        record.status, record.epoch, record.home = ShardStatus.MOVED, call.move.epoch, call.move.source
        record.note = MoveNote(call.move)
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
        executor, _ = schedule.shards.get(shard, ("", "")) if schedule is not None else ("", "")
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
        note = record.note
        move = note.move if note else None
        if move is not None and record.status is ShardStatus.FROZEN:
            move = self._current(move)
        installed = None
        if note is not None and record.status is ShardStatus.INSTALLING:
            installed = Installed(note.chunks, note.resume, note.complete)
        return MoveState(record.status, record.epoch, move, installed)


def not_here(record: ShardRecord) -> Answer | Moved:
    """What a shard that is not active answers to who looks for it."""
    return Moved(record.home) if record.status in _GONE else Answer.MOVING


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
    same_copy_begun_anew = (held.epoch, held.source) == (move.epoch, move.source)
    return held.epoch < move.epoch or (same_copy_begun_anew and held.generation < move.generation)


def _parts_of(record: ShardRecord) -> Iterator[_Part]:
    yield (
        (_HEAD,),
        (
            record.source, record.position, record.table_version, record.commit, record.offset,
            record.finished, record.placed, record.inbox_bytes, record.arrived_rows, record.completed_rows,
        ),
    )  # fmt: skip
    for producer, number in record.taken_from.items():
        yield (_TAKEN, producer), (number,)
    for target, lane in record.lanes.items():
        yield (_LANE, target), (lane.external, lane.issued, lane.acknowledged, lane.position)
        for entry in lane.waiting:
            yield (_WAITING, target, entry.number), entry[1:]
    for collection, fields in record.state.items():
        for name, value in fields.items():
            yield (_STATE, collection, name), (value,)
    for name, due_ms in record.timers.items():
        yield (_TIMER, name), (due_ms,)
    for number, placed_us, payload in record.inbox:
        yield (_ENTRY, number), (placed_us, payload)


def _forgotten(record: ShardRecord, after: tuple[Any, ...]) -> Iterator[_Part]:
    """Says of the pair that was being copied that it has nothing left: all of it was delivered since."""
    if after and after[0] == _WAITING and not record.lanes[after[1]].waiting:
        yield after, ()
