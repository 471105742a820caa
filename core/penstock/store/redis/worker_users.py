"""Who the users of topologies' workers are, as the operator writes it into a store and the agent reads it.

It is one value, written as a whole, with its digest beside it for who looks often. It carries the term of the
operator that wrote it: one that leads no more does not write over what its successor wrote. Neighbours:
`users` has what these users may do, `keys` where this lies.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from penstock.errors import PermanentError
from penstock.store.keys import WORKER_USERS, Keys
from penstock.store.redis.connection import Command, ServerError, translate

Hashes = Mapping[str, tuple[str, ...]]
"""Topology uid -> hashes of the passwords by which its workers may log in."""

_HASH = re.compile(r"[0-9a-f]{64}")
_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(dict[str, tuple[str, ...]]).decode


class Wire(Protocol):
    """What is asked of a connection to a store: `redis.connection.Wire` is one."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """A reply for each. Raises StoreUnreachable."""


@dataclass(frozen=True, slots=True)
class PackedUsers:
    """Users as a store holds them: packed once, they are told to many stores."""

    packed: bytes
    digest: bytes

    @staticmethod
    def of(users: Hashes) -> PackedUsers:
        packed = _encode(users)
        return PackedUsers(packed, hashlib.sha256(packed).hexdigest().encode())


def tell_worker_users(wire: Wire, users: PackedUsers, term: int) -> int:
    """Have the store know these users and no others, unless it does; answers the term that it has seen. One
    above `term` is another operator's, and nothing was written. Raises what calls to a store raise."""
    held_term, held_digest = _ask(wire, (b"HMGET", WORKER_USERS, b"term", b"digest"))
    seen = int(held_term or 0)
    if seen > term or (seen, held_digest) == (term, users.digest):
        return seen
    told = (b"term", term, b"digest", users.digest, b"users", users.packed)
    _ask(wire, (b"HSET", WORKER_USERS, *told))
    return term


def worker_users_digest(wire: Wire) -> bytes:
    """Another one whenever there are others; empty while nobody has told any."""
    (digest,) = _ask(wire, (b"HMGET", WORKER_USERS, b"digest"))
    return bytes(digest or b"")


def read_worker_users(wire: Wire) -> Hashes:
    """The users that were told last. Raises PermanentError for what is none of that form: a server must take
    no rule of it."""
    (packed,) = _ask(wire, (b"HMGET", WORKER_USERS, b"users"))
    if packed is None:
        return {}
    try:
        users = _decode(packed)
        for uid in users:
            Keys(uid)
    except (msgspec.DecodeError, ValueError) as error:
        raise PermanentError(f"what the store has of topologies' users is none: {error}") from error
    if not all(hashes and all(map(_HASH.fullmatch, hashes)) for hashes in users.values()):
        raise PermanentError("what the store has of topologies' users holds something that is no hash")
    return users


def _ask(wire: Wire, command: Command) -> Any:
    (reply,) = wire.exchange([command])
    if isinstance(reply, ServerError):
        error = translate(str(reply))
        raise PermanentError(str(error)) if isinstance(error, ServerError) else error
    return reply
