"""Commits as commands: small ones that follow each other travel as one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from penstock.store.port import Commit, StateWrite
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CommandParts, RedisRole

_TOGETHER_ARGUMENTS_MAX = 600
_TOGETHER_BYTES_MAX = 64 * 1024
"""What one command may carry of several commits: far below what keeps the server for 5 ms."""

_NO_WATERMARK, _OWN_WATERMARK, _TELLS, _TELLS_IDLE = range(4)
_COMMIT_NUMBERS = struct.Struct("<20d")


class RedisCommits(RedisRole):
    """A part of `redis.calls`, which asks it for commands as commits come."""

    writes = ("commit",)

    def __init__(self, parts: CommandParts) -> None:
        super().__init__(parts)
        self._head = self._heads["commit"]

    def command(self, together: Together) -> tuple[Command, int]:
        """The command of some commits, and how many they are."""
        bounds = self._pressed_bounds if together.pressed else self._bounds
        return (*self._head, bounds, *together.arguments), together.commits


class Together:
    """Commits that travel as one command."""

    __slots__ = ("arguments", "commits", "pressed", "size_bytes")

    def __init__(self, *, pressed: bool = False) -> None:
        self.pressed = pressed
        self.arguments: list[bytes | str | int] = []
        self.commits = 0
        self.size_bytes = 0

    def has_room(self, arguments: Sequence[bytes | str | int], size_bytes: int) -> bool:
        return not self.commits or (
            len(self.arguments) + len(arguments) <= _TOGETHER_ARGUMENTS_MAX
            and self.size_bytes + size_bytes <= _TOGETHER_BYTES_MAX
        )

    def add(self, arguments: Sequence[bytes | str | int], size_bytes: int) -> None:
        self.arguments.append(len(arguments))
        self.arguments += arguments
        self.commits += 1
        self.size_bytes += size_bytes


def commit_arguments(call: Commit) -> Command:
    """As `commit_one` reads them."""
    groups, arguments = _grouped(call.state)
    timers = {timer.name: timer.due_ms for timer in call.timers} if call.timers else {}
    for name, due_ms in timers.items():
        arguments += (name, b"" if due_ms is None else due_ms)
    to_sinks: list[bytes | str | int] = []
    sinks = 0
    for output in call.outputs:
        if output.external:
            to_sinks += (output.target, output.rows, output.payload)
            sinks += 1
        else:
            arguments += (output.target, output.rows, output.payload)
    position, within, counts = call.position, call.within, call.counts
    numbers = _COMMIT_NUMBERS.pack(
        call.generation,
        call.epoch,
        call.number,
        call.table_version,
        call.offset,
        call.consumed_bytes,
        call.consumed_rows,
        call.finished,
        call.again,
        position is not None,
        groups,
        len(timers),
        len(call.outputs) - sinks,
        sinks,
        call.in_hand,
        within is not None,
        counts is not None,
        *_watermark(call),
        -1 if call.inbox_limit_bytes is None else call.inbox_limit_bytes,
    )
    if within is not None:
        to_sinks.append(within)
    if counts is not None:
        to_sinks.append(counts)
    return (call.shard, numbers, call.now_us, position or b"", *arguments, *to_sinks)


def _watermark(call: Commit) -> tuple[int, int]:
    """As `commit_one` reads it: what of a watermark, and its time."""
    watermark = call.watermark
    if watermark is None:
        return _NO_WATERMARK, 0
    told = _TELLS_IDLE if watermark.is_idle else _TELLS
    return (told if call.tells else _OWN_WATERMARK), watermark.ms or 0


class _Group:
    """State changes of one collection, in the end."""

    __slots__ = ("deletes", "drop", "sets")

    def __init__(self) -> None:
        self.drop = False
        self.sets: dict[bytes, bytes] = {}
        self.deletes: dict[bytes, None] = {}


def _grouped(writes: Sequence[StateWrite]) -> tuple[int, list[bytes | str | int]]:
    """State changes as the library reads them: number of groups, their arguments.

    What is left of changes in order is, for each collection, whether it is dropped first, and the
    last word on each field.
    """
    if len(writes) == 1:
        # As in most commits of few rows.
        collection, field, value = writes[0]
        if field is not None and value is not None:
            return 1, [collection, b"0", 1, 0, field, value]
    groups: dict[bytes, _Group] = {}
    for collection, field, value in writes:
        group = groups.get(collection)
        if group is None:
            group = groups[collection] = _Group()
        if field is None:
            group.drop = True
            group.sets.clear()
            group.deletes.clear()
        elif value is None:
            group.sets.pop(field, None)
            group.deletes[field] = None
        else:
            group.sets[field] = value
            group.deletes.pop(field, None)
    arguments: list[bytes | str | int] = []
    for collection, group in groups.items():
        arguments += (collection, b"1" if group.drop else b"0", len(group.sets), len(group.deletes))
        for item in group.sets.items():
            arguments += item
        arguments += group.deletes
    return len(groups), arguments
