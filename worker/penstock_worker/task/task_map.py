"""What a task reads off its executor's task map: which shards are its own, which are others'.

Pure. Neighbour: `held_shards` reads the map, claims and releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.store.port import Owner, TaskMap

LINGER_US = 900_000
"""A shard that another task is to run is worked on until that one claims it, at most so long."""


@dataclass(frozen=True, slots=True)
class Told:
    """`mine` are the task's shards, `mapped` all that the map names a task for. `is_replaced`: the map is
    another incarnation's."""

    mine: frozenset[str]
    mapped: frozenset[str]
    is_named: bool
    is_replaced: bool

    def given_away(self, owned: Iterable[str]) -> list[str]:
        """Of owned shards those that others are to run. One that nobody is named for, while this task has to
        go, is to be left alone."""
        return [s for s in owned if s not in self.mine and (self.is_named or s in self.mapped)]


def told_of(read: TaskMap, task: Owner) -> Told:
    """What a map says to `task`; one of another incarnation says nothing but that."""
    is_current = read.incarnation == task.incarnation
    mapping = read.mapping if is_current else {}
    mine = frozenset(shard for shard, ready in mapping.items() if ready == task.ready)
    is_named = bool(mine) or (is_current and task.ready in read.idle)
    return Told(mine, frozenset(mapping), is_named, read.incarnation not in ("", task.incarnation))


def lingering(before: Mapping[str, int], given: Iterable[str], now_us: int) -> dict[str, int]:
    """Owned shards that are others', and until when they are worked on here; `before` is what this answered
    last. Those that have waited long enough are in it no more."""
    until_us = {shard: before.get(shard, now_us + LINGER_US) for shard in given}
    return {shard: at_us for shard, at_us in until_us.items() if at_us > now_us}
