"""The operator's hand in the simulation: which executor runs which shard, with how many tasks, and where.

Each change is a new version of one operator's schedule, complete at once: an executor that loses its last
shard goes in the same version as its shards, now and then its worker with it. `old` keeps all versions that
ever were, for who believes one of them.
"""

from __future__ import annotations

import random

from penstock.store.port import Publish
from penstock_simulation.protocol.layout import HOMES, NODES, OPERATORS, WORKERS

TASKS_MAX = 3


class Schedules:
    """`newest` is operator -> its schedule, `homes` shard -> store. `moves`: shards change their home too;
    `names_all`: a worker without executors is named all the same."""

    def __init__(self, rng: random.Random, *, moves: bool, names_all: bool) -> None:
        self.homes = dict(HOMES)
        self._rng = rng
        self._moves = moves
        self._names_all = names_all
        spread = rng.random() < 0.5
        self._places = {
            shard: _workers_of(home)[int(rng.random() * (2 if spread else 1))]
            for shard, home in HOMES.items()
        }
        tasks = rng.choice((1, 1, 2))
        self._tasks = {(operator, worker): tasks for operator in OPERATORS for worker in WORKERS}
        taken = {(_operator_of(shard), worker) for shard, worker in self._places.items()}
        self._dropped = {one for one in self._tasks if one not in taken and rng.random() < 0.8}
        """Executors, by operator and worker, that are not to be while they have no shard."""
        self.newest = {operator: self._schedule(operator, 1) for operator in OPERATORS}
        self.old = [dict(self.newest)]
        self.old_homes = [dict(self.homes)]

    def move(self, shard: str) -> None:
        """Give a shard to the node's other worker, or to one of another node."""
        self._place(shard)
        self._publish(_operator_of(shard))

    def drop_executor(self, operator: str) -> str:
        """All shards of one executor go to others, and it goes with them; answers its worker."""
        holders = sorted({self._places[shard] for shard in self._shards_of(operator)})
        worker = holders[int(self._rng.random() * len(holders))]
        for shard in self._shards_of(operator):
            if self._places[shard] == worker:
                self._place(shard)
        self._dropped.add((operator, worker))
        self._publish(operator)
        return worker

    def resize(self, operator: str) -> None:
        """Another number of tasks for one executor."""
        workers = list(WORKERS)
        worker = workers[int(self._rng.random() * len(workers))]
        self._tasks[operator, worker] = 1 + int(self._rng.random() * TASKS_MAX)
        self._publish(operator)

    def _place(self, shard: str) -> None:
        home = self.homes[shard]
        if self._moves and self._rng.random() < 0.7:
            home = next(node for node in NODES if node != home)
        worker = next(w for w, node in WORKERS.items() if node == home and w != self._places[shard])
        self.homes[shard] = home
        self._places[shard] = worker
        self._dropped.discard((_operator_of(shard), worker))

    def _shards_of(self, operator: str) -> list[str]:
        return [shard for shard in self.homes if _operator_of(shard) == operator]

    def _publish(self, operator: str) -> None:
        self.newest[operator] = self._schedule(operator, self.newest[operator].version + 1)
        self.old.append(dict(self.newest))
        self.old_homes.append(dict(self.homes))

    def _schedule(self, operator: str, version: int) -> Publish:
        workers = [worker for worker in WORKERS if (operator, worker) not in self._dropped]
        named = WORKERS if self._names_all else workers
        return Publish(
            operator=operator,
            version=version,
            term=1,
            workers=tuple((w, WORKERS[w], WORKERS[w], f"uid-{w}") for w in named),
            executors=tuple((f"{operator}@{w}", w, self._tasks[operator, w]) for w in workers),
            shards=tuple(
                (shard, f"{operator}@{self._places[shard]}", self.homes[shard])
                for shard in self._shards_of(operator)
            ),
        )


def _workers_of(home: str) -> list[str]:
    return [worker for worker, node in WORKERS.items() if node == home]


def _operator_of(shard: str) -> str:
    return shard.split("/", 1)[0]
