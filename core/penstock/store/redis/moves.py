"""The calls of moves as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import Answer, Moved, ShardStatus
from penstock.store.port.moves import (
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
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import (
    ANSWERS,
    STATUSES,
    CallForm,
    CommandParts,
    PartsForm,
    RedisRole,
    answer,
    answer_or_moved,
)


class RedisMoves(RedisRole):
    """A part of `redis.calls`."""

    writes = ("precopy", "next_round", "freeze", "install", "depart", "activate", "drop", "thaw", "discard")
    reads = ("export", "read_move")

    def __init__(self, parts: CommandParts) -> None:
        super().__init__(parts)
        self._bytes = parts.bounds.chunk_bytes_max
        self._entries = parts.bounds.chunk_entries_max

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Precopy: CallForm(self._precopy, _begun),
            NextRound: CallForm(self._next_round, answer),
            Freeze: CallForm(self._freeze, _frozen),
            Export: CallForm(self._export, _chunk),
            Install: CallForm(self._install, _installed),
            Depart: CallForm(self._depart, answer),
            Activate: CallForm(self._activate, answer),
            Drop: CallForm(self._drop, answer),
            Thaw: CallForm(self._thaw, answer_or_moved),
            Discard: CallForm(self._discard, answer),
            ReadMove: CallForm(self._read_move, _state),
        }

    def _precopy(self, call: Precopy) -> Command:
        return (*self._heads["precopy"], call.shard, call.target, call.version)

    def _next_round(self, call: NextRound) -> Command:
        return (*self._begin("next_round", call), call.resume)

    def _freeze(self, call: Freeze) -> Command:
        return (*self._begin("freeze", call), call.version, call.resume, self._bytes, self._entries)

    def _export(self, call: Export) -> Command:
        return (*self._begin("export", call), call.resume, self._bytes, self._entries)

    def _install(self, call: Install) -> Command:
        chunk, last = call.chunk, b"1" if call.chunk.is_last else b"0"
        head = self._begin("install", call)
        return (
            *head, call.number, chunk.payload, chunk.resume, last, chunk.rounds, self._entries, self._bounds,
        )  # fmt: skip

    def _depart(self, call: Depart) -> Command:
        return self._begin("depart", call)

    def _activate(self, call: Activate) -> Command:
        return (*self._begin("activate", call), self._bounds)

    def _drop(self, call: Drop) -> Command:
        return (*self._begin("drop", call), self._entries)

    def _thaw(self, call: Thaw) -> Command:
        return (*self._begin("thaw", call), self._bounds)

    def _discard(self, call: Discard) -> Command:
        return (*self._begin("discard", call), self._entries)

    def _read_move(self, call: ReadMove) -> Command:
        return (*self._heads["read_move"], call.shard, self._bytes, self._entries)

    def _begin(
        self,
        name: str,
        call: NextRound | Freeze | Export | Install | Depart | Activate | Drop | Thaw | Discard,
    ) -> Command:
        move = call.move
        return (*self._heads[name], call.shard, move.source, move.target, move.epoch, move.generation)


def _begun(call: Precopy, reply: Any) -> Move | Answer | Moved:
    if isinstance(reply, bytes) or reply[0] == b"MOVED":
        return answer_or_moved(call, reply)
    return _move(*reply)


def _frozen(call: Freeze, reply: Any) -> Chunk | Answer | Moved:
    if isinstance(reply, bytes) or len(reply) == 2:
        return answer_or_moved(call, reply)
    return _part(*reply)


def _move(source: bytes, target: bytes, epoch: int, generation: int) -> Move:
    return Move(source.decode(), target.decode(), epoch, generation)


def _chunk(_: Export, reply: Any) -> Chunk | Answer:
    if isinstance(reply, bytes):
        return ANSWERS[reply]
    return _part(*reply)


def _part(payload: bytes, resume: bytes, is_last: int, rounds: int) -> Chunk:
    return Chunk(payload, resume, is_last == 1, rounds)


def _installed(_: Install, reply: Any) -> Installed | Answer:
    if isinstance(reply, bytes):
        return ANSWERS[reply]
    return _held(*reply)


def _held(chunks: int, resume: bytes, complete: int, rounds: int) -> Installed:
    return Installed(chunks, resume, complete == 1, rounds)


def _state(_: ReadMove, reply: list[Any] | None) -> MoveState | None:
    if reply is None:
        return None
    status = STATUSES[reply[0]]
    return MoveState(
        status=status,
        epoch=reply[1],
        move=None if status is ShardStatus.ACTIVE else _move(*reply[2:6]),
        installed=_held(*reply[6:10]) if status is ShardStatus.INSTALLING else None,
        generation=reply[10],
        round=_round(*reply[11:15]) if status in {ShardStatus.COPYING, ShardStatus.FROZEN} else None,
    )


def _round(number: int, changes: int, noted: int, noted_fits: int) -> Round:
    return Round(number, changes, noted, noted_fits == 1)
