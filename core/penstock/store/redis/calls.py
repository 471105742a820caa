"""Each call of the port as one command to Redis, and its reply as the call's answer.

Nothing here talks to a server. A role's commands are in the module of its name; their arguments are those
that the heads of the functions in `functions/*.lua` name, in their order. Neighbours: `keys` names what plain
commands touch, `redis.store` sends the commands, `limits` has been asked before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from penstock.store.keys import Keys
from penstock.store.port import Answer, Append, Bounds, Commit, Fetch, Fetched, Request
from penstock.store.redis.administration import RedisAdministration
from penstock.store.redis.claims import RedisClaims
from penstock.store.redis.commits import RedisCommits, Together, commit_arguments
from penstock.store.redis.connection import Command
from penstock.store.redis.deliveries import RedisDeliveries
from penstock.store.redis.failures import RedisFailures
from penstock.store.redis.forms import (
    ANSWERS,
    CallForm,
    CommandParts,
    PartsForm,
    RedisRole,
    function_name,
)
from penstock.store.redis.library import PROTOCOL_VERSION
from penstock.store.redis.measures import RedisMeasures
from penstock.store.redis.moves import RedisMoves
from penstock.store.redis.ready_lists import RedisReadyLists
from penstock.store.redis.schedules import RedisSchedules
from penstock.store.redis.state import RedisState
from penstock.store.redis.tables import RedisTables
from penstock.store.redis.watermarks import RedisWatermarks
from penstock.store.redis.workers import RedisWorkers

ROLES: tuple[type[RedisRole], ...] = (
    RedisAdministration,
    RedisWorkers,
    RedisSchedules,
    RedisClaims,
    RedisReadyLists,
    RedisState,
    RedisCommits,
    RedisFailures,
    RedisDeliveries,
    RedisWatermarks,
    RedisMeasures,
    RedisTables,
    RedisMoves,
)

_BOUNDS = struct.Struct("<7d")
_FULL = Fetched((), control=False, full=True)


class RedisCalls:
    """The commands of one topology under given bounds, to the functions of this version or the one before."""

    def __init__(self, keys: Keys, bounds: Bounds, version: int = PROTOCOL_VERSION) -> None:
        functions = [(name, b"FCALL") for role in ROLES for name in role.writes]
        functions += [(name, b"FCALL_RO") for role in ROLES for name in role.reads]
        self.functions = dict(functions)
        """The functions that are called under the topology's prefix, and the command for each."""
        parts = CommandParts(
            heads={
                name: (command, function_name(name, version), b"1", keys.prefix)
                for name, command in functions
            },
            keys=keys,
            bounds=bounds,
            packed_bounds=_packed_bounds(bounds),
            packed_pressed_bounds=_packed_bounds(bounds.pressed()),
            version=version,
        )
        self._commits = RedisCommits(parts).command
        self._forms: dict[type, CallForm] = {}
        self._in_parts: dict[type, PartsForm] = {}
        for role in ROLES:
            for call, form in role(parts).forms().items():
                if isinstance(form, PartsForm):
                    self._in_parts[call] = form
                else:
                    self._forms[call] = form

    def encode(self, calls: Sequence[Request[Any]], sizes_bytes: Sequence[int]) -> list[tuple[Command, int]]:
        """The commands of calls, in order, each with how many of them it is. KeyError for one that blocks.

        Small commits that follow each other travel as one command: what the server does for each command, and
        looks up for each, it does once. A large publication or measurement travels as several commands, of
        which the last one counts.
        """
        commands: list[tuple[Command, int]] = []
        together = Together()
        for call, size_bytes in zip(calls, sizes_bytes, strict=True):
            if isinstance(call, Commit):
                arguments = commit_arguments(call)
                if together.pressed is not call.pressed or not together.has_room(arguments, size_bytes):
                    if together.commits:
                        commands.append(self._commits(together))
                    together = Together(pressed=call.pressed)
                together.add(arguments, size_bytes)
                continue
            if together.commits:
                commands.append(self._commits(together))
                together = Together()
            if (in_parts := self._in_parts.get(type(call))) is not None:
                *parts, last = in_parts.encode(call)
                commands += [(part, 0) for part in parts]
                commands.append((last, 1))
            else:
                commands.append((self._forms[type(call)].encode(call), 1))
        if together.commits:
            commands.append(self._commits(together))
        return commands

    def refused_when_full(self, calls: Sequence[Request[Any]]) -> Fetched | Answer | None:
        """The answer to the call of a command that the server refused at its memory limit; None for one that
        has no answer to that."""
        first = calls[0]
        if isinstance(first, Fetch):
            return _FULL
        return Answer.FULL if isinstance(first, Append) else None

    def decode(self, calls: Sequence[Request[Any]], reply: Any, parts: list[Any]) -> list[Any]:
        """The answers to the calls of one command, in a reply that is no error; `parts` are those to the
        commands of which it is the last."""
        first = calls[0]
        if isinstance(first, Commit):
            return [ANSWERS[answer] for answer in reply]
        if (in_parts := self._in_parts.get(type(first))) is not None:
            return [in_parts.decode(first, [*parts, reply])]
        return [self._forms[type(first)].decode(first, reply)]


def _packed_bounds(bounds: Bounds) -> bytes:
    return _BOUNDS.pack(
        bounds.inbox_bytes_max,
        bounds.inbox_entries_max,
        bounds.outbox_bytes_max,
        bounds.outbox_entries_max,
        bounds.drain_entries_max,
        bounds.drain_bytes_max,
        bounds.noted_entries_max,
    )
