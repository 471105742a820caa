"""The calls of `moves` as commands to Redis, and their replies as answers; a part of `redis.calls`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from penstock.store.port import Answer, Bounds, Moved, ShardStatus
from penstock.store.redis.connection import Command

FUNCTIONS = (
    "precopy", "next_round", "freeze", "export", "install", "depart", "activate", "drop", "thaw", "discard",
    "read_move",
)  # fmt: skip

STATUSES = {
    -1: ShardStatus.COPYING,
    0: ShardStatus.ACTIVE,
    1: ShardStatus.FROZEN,
    2: ShardStatus.MOVED,
    3: ShardStatus.INSTALLING,
    4: ShardStatus.DEPARTED,
}
"""By the numbers in a record."""

_ANSWERS = {answer.value.encode(): answer for answer in Answer}


class RedisMoves:
    """The commands of one topology's moves. `heads` is the begin of each function's command."""

    def __init__(self, heads: Mapping[str, Command], bounds: Bounds, packed_bounds: bytes) -> None:
        self._heads = heads
        self._bytes = bounds.chunk_bytes_max
        self._entries = bounds.chunk_entries_max
        self._bounds = packed_bounds
        self.forms: dict[type, tuple[Callable[[Any], Command], Callable[[Any, Any], Any]]] = {
            Precopy: (self._precopy, _begun),
            NextRound: (self._next_round, _answer),
            Freeze: (self._freeze, _frozen),
            Export: (self._export, _chunk),
            Install: (self._install, _installed),
            Depart: (self._depart, _answer),
            Activate: (self._activate, _answer),
            Drop: (self._drop, _answer),
            Thaw: (self._thaw, _answer_or_moved),
            Discard: (self._discard, _answer),
            ReadMove: (self._read_move, _state),
        }
        """How a call becomes a command, and (call, reply) an answer."""

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


def _answer(_: Any, reply: bytes) -> Answer:
    return _ANSWERS[reply]


def _answer_or_moved(_: Any, reply: Any) -> Answer | Moved:
    return _ANSWERS[reply] if isinstance(reply, bytes) else Moved(reply[1].decode())


def _begun(call: Precopy, reply: Any) -> Move | Answer | Moved:
    if isinstance(reply, bytes) or reply[0] == b"MOVED":
        return _answer_or_moved(call, reply)
    return _move(*reply)


def _frozen(call: Freeze, reply: Any) -> Chunk | Answer | Moved:
    if isinstance(reply, bytes) or len(reply) == 2:
        return _answer_or_moved(call, reply)
    return _part(*reply)


def _move(source: bytes, target: bytes, epoch: int, generation: int) -> Move:
    return Move(source.decode(), target.decode(), epoch, generation)


def _chunk(_: Export, reply: Any) -> Chunk | Answer:
    if isinstance(reply, bytes):
        return _ANSWERS[reply]
    return _part(*reply)


def _part(payload: bytes, resume: bytes, is_last: int, rounds: int) -> Chunk:
    return Chunk(payload, resume, is_last == 1, rounds)


def _installed(_: Install, reply: Any) -> Installed | Answer:
    if isinstance(reply, bytes):
        return _ANSWERS[reply]
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
