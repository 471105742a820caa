"""The part of a node's agent that moves shards, in the simulation: it drives what is due in its own store.

It may believe an old schedule (an agent that was stopped in the middle), and another pass of it or of the
other node's agent may run between any two of its calls. What is due and how to drive it is the product's
(`penstock.store.moving.mover`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.store.moving.mover import MoveKind, go_back_once, move_once, moves_due, tidy_once
from penstock.store.moving.progress import MoveProgress
from penstock.store.port import Measure, NodeStore, Publish, StoreUnreachable
from penstock_simulation.protocol.link import Link
from penstock_simulation.protocol.workload import SHARDS

_ALL = SHARDS.all()


@dataclass(frozen=True, slots=True)
class Drive:
    """How moves are driven; a test puts a driver with a planted bug in its place."""

    move: Callable[..., MoveProgress] = move_once
    go_back: Callable[..., MoveProgress] = go_back_once
    tidy: Callable[..., MoveProgress] = tidy_once


DRIVE = Drive()


class MovingAgent:
    """One node's. `links` are its own, to every store."""

    def __init__(self, name: str, links: Mapping[str, Link], rng: random.Random, drive: Drive) -> None:
        self.name = name
        self._links = links
        self._rng = rng
        self._drive = drive

    def step(self, schedules: dict[str, Publish]) -> None:
        """A part of one move that is due."""
        own = self._links[self.name]
        try:
            counters = own.call(Measure(_ALL))
        except StoreUnreachable:
            return
        statuses = {shard: seen.status for shard, seen in zip(_ALL, counters, strict=True) if seen}
        homes = {shard: home for call in schedules.values() for shard, _, home in call.shards}
        due = moves_due(self.name, homes, statuses)
        if not due:
            return
        shard = list(due)[int(self._rng.random() * len(due))]
        chunks_max = 1 + int(self._rng.random() ** 2 * 5)
        if due[shard] is MoveKind.BACK:
            self._drive.go_back(own, self._store_of, shard, chunks_max=chunks_max)
        elif due[shard] is MoveKind.TIDY:
            self._drive.tidy(own, self._store_of, shard, chunks_max=chunks_max)
        else:
            schedule = schedules[shard.split("/", 1)[0]]
            self._drive.move(
                own,
                self._store_of,
                shard,
                target_id=homes[shard],
                version=schedule.version,
                chunks_max=chunks_max,
            )

    def _store_of(self, store_id: str) -> NodeStore | None:
        return self._links.get(store_id)
