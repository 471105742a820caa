"""Who the users of topologies are, as it is written into a store and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from penstock.errors import PermanentError
from penstock.store.redis.connection import Command
from penstock.store.redis.users import hash_of
from penstock.store.redis.worker_users import (
    PackedUsers,
    read_worker_users,
    tell_worker_users,
    worker_users_digest,
)

USERS = {"u2": (hash_of("two"), hash_of("too")), "u1": (hash_of("one"),)}


class Wire:
    """A hash behind a connection."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        ((name, _, *rest),) = commands
        if name == b"HMGET":
            return [[self.held.get(field) for field in rest]]
        self.held |= dict(zip(rest[::2], rest[1::2], strict=True))
        return [len(rest) // 2]


def test_what_was_told_is_read_back_and_has_another_digest_whenever_it_is_another() -> None:
    wire = Wire()
    assert (read_worker_users(wire), worker_users_digest(wire)) == ({}, b"")
    assert tell_worker_users(wire, PackedUsers.of(USERS), 1) == 1
    assert read_worker_users(wire) == USERS
    first = worker_users_digest(wire)
    tell_worker_users(wire, PackedUsers.of(dict(reversed(USERS.items()))), 2)
    assert worker_users_digest(wire) == first, "the order is nothing"
    tell_worker_users(wire, PackedUsers.of({"u1": USERS["u1"]}), 2)
    assert worker_users_digest(wire) != first


def test_nothing_is_written_over_a_later_leaders_word() -> None:
    wire = Wire()
    tell_worker_users(wire, PackedUsers.of(USERS), 5)
    assert tell_worker_users(wire, PackedUsers.of({}), 4) == 5
    assert read_worker_users(wire) == USERS


@pytest.mark.parametrize(
    "packed",
    [
        b"\xc1",
        b"",
        msgspec.msgpack.encode(["u1"]),
        msgspec.msgpack.encode({"u1": [1]}),
        msgspec.msgpack.encode({"u1": []}),
        msgspec.msgpack.encode({"u1": ["nopass"]}),
        msgspec.msgpack.encode({"u1": [hash_of("a") + " nopass"]}),
        msgspec.msgpack.encode({"*": [hash_of("a")]}),
        msgspec.msgpack.encode({"u1 ~*": [hash_of("a")]}),
    ],
)
def test_what_could_be_another_rule_is_no_user(packed: bytes) -> None:
    wire = Wire()
    wire.held = {b"users": packed}
    with pytest.raises(PermanentError, match="what the store has of topologies' users"):
        read_worker_users(wire)
