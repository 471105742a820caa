"""How the calls of a role become commands to Redis, and replies answers: what all roles share.

Nothing here talks to a server. Neighbours: the modules of the roles, which `redis.calls` puts together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.store.keys import Keys
from penstock.store.port import Answer, Bounds, Moved, ShardStatus, Watermark
from penstock.store.redis.connection import Command


class CallForm(NamedTuple):
    """How a call becomes a command, and a reply an answer."""

    encode: Callable[[Any], Command]
    decode: Callable[[Any, Any], Any]
    """(call, reply) -> answer."""


class PartsForm(NamedTuple):
    """Likewise, of a call that may be too large for one command."""

    encode: Callable[[Any], list[Command]]
    decode: Callable[[Any, list[Any]], Any]
    """(call, replies) -> answer."""


@dataclass(frozen=True, slots=True)
class CommandParts:
    """What the commands of one topology are made of: the begin of each function's command, the keys that
    plain commands touch, and the bounds, also as functions are given them."""

    heads: Mapping[str, Command]
    keys: Keys
    bounds: Bounds
    packed_bounds: bytes
    packed_pressed_bounds: bytes
    version: int
    """Of the functions that are called."""


class RedisRole:
    """The calls of one role."""

    writes: ClassVar[tuple[str, ...]] = ()
    """Functions of the library that it calls,"""
    reads: ClassVar[tuple[str, ...]] = ()
    """and those that are registered as reads: a user who may only read can call them."""

    def __init__(self, parts: CommandParts) -> None:
        self._heads = parts.heads
        self._keys = parts.keys
        self._version = parts.version
        self._bounds = parts.packed_bounds
        self._pressed_bounds = parts.packed_pressed_bounds

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        """How its calls become commands."""
        return {}


ANSWERS = {one.value.encode(): one for one in Answer}

STATUSES = {
    -1: ShardStatus.COPYING,
    0: ShardStatus.ACTIVE,
    1: ShardStatus.FROZEN,
    2: ShardStatus.MOVED,
    3: ShardStatus.INSTALLING,
    4: ShardStatus.DEPARTED,
}
"""By the numbers in a record."""


def function_name(name: str, version: int) -> bytes:
    return f"penstock_{name}_{version}".encode()


def answer(_: Any, reply: bytes) -> Answer:
    return ANSWERS[reply]


def answer_or_moved(_: Any, reply: Any) -> Answer | Moved:
    return ANSWERS[reply] if isinstance(reply, bytes) else Moved(reply[1].decode())


def watermark(ms: int | bytes, is_idle: int) -> Watermark:
    return Watermark(ms if isinstance(ms, int) else None, is_idle == 1)


def producer_names(producers: Sequence[str], keyed: Sequence[str]) -> list[str]:
    """The operators that feed a stage, as `watermarks.lua` takes them: a keyed one has a slash behind it."""
    return [f"{name}/" if name in keyed else name for name in producers]


def unpacked_watermark(value: int) -> Watermark:
    """A value as `watermarks.lua` has it."""
    return Watermark(value // 2 or None, value % 2 == 1)


def names(_: Any, reply: Iterable[bytes]) -> list[str]:
    return sorted(name.decode() for name in reply)


def paired(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The pairs of what Redis answers one after the other."""
    return list(zip(flat[::2], flat[1::2], strict=True))
