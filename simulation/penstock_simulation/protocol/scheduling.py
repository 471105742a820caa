"""The operator's hand in the simulation: which executor runs which shard, with how many tasks, and where.

What it decides is random; what is written of that, and in which version, is the product's `ScheduleBook`.
Each change is complete at once: an executor that loses its last shard goes in the same version as its shards,
now and then its worker with it. A shard that its home may still have to make stays where it is. Neighbour:
`schedule_api` has what is written here, and what agents reported.
"""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock_simulation.protocol.layout import NODES, WORKERS, Layout
from penstock_simulation.protocol.schedule_api import ScheduleApi

TASKS_MAX = 3
_TERM = 1
_STORES = tuple(StorePlace(node, node, f"{node}:6379") for node in NODES)


class Schedules:
    """`homes` is shard -> store by what was written last. `moves`: shards change their home too;
    `names_all`: a worker without executors is named all the same."""

    def __init__(
        self, api: ScheduleApi, rng: random.Random, layout: Layout, *, moves: bool, names_all: bool
    ) -> None:
        self.homes = dict(layout.homes)
        self._layout = layout
        self._api = api
        self._rng = rng
        self._moves = moves
        self._names_all = names_all
        spread = rng.random() < 0.5
        self._places = {
            shard: _workers_of(home)[int(rng.random() * (2 if spread else 1))]
            for shard, home in layout.homes.items()
        }
        tasks = rng.choice((1, 1, 2))
        self._tasks = {(operator, worker): tasks for operator in layout.operators for worker in WORKERS}
        taken = {(_operator_of(shard), worker) for shard, worker in self._places.items()}
        self._dropped = {one for one in self._tasks if one not in taken and rng.random() < 0.8}
        """Executors, by operator and worker, that are not to be while they have no shard."""
        self._book = ScheduleBook({})
        self._write(*layout.operators)

    def version(self, operator: str) -> int:
        """The newest that was written."""
        return self._book.schedules[operator].version

    def move(self, shard: str) -> None:
        """Give a shard to the node's other worker, or to one of another node."""
        operator = _operator_of(shard)
        if self._place(shard, self._unborn(operator)):
            self._write(operator)

    def drop_executor(self, operator: str) -> str:
        """All shards of one executor go to others, and it goes with them; answers its worker."""
        unborn = self._unborn(operator)
        holders = sorted({self._places[shard] for shard in self._shards_of(operator)})
        worker = holders[int(self._rng.random() * len(holders))]
        held = [shard for shard in self._shards_of(operator) if self._places[shard] == worker]
        if unborn.isdisjoint(held):
            for shard in held:
                self._place(shard, unborn)
            self._dropped.add((operator, worker))
            self._write(operator)
        return worker

    def resize(self, operator: str) -> None:
        """Another number of tasks for one executor."""
        workers = list(WORKERS)
        worker = workers[int(self._rng.random() * len(workers))]
        self._tasks[operator, worker] = 1 + int(self._rng.random() * TASKS_MAX)
        self._write(operator)

    def _unborn(self, operator: str) -> frozenset[str]:
        """Shards that may have to be made yet, as far as the operator knows."""
        self._book = replace(
            self._book, applied={one: self._api.applied(one) for one in self._layout.operators}
        )
        return self._book.unborn([operator])

    def _place(self, shard: str, unborn: frozenset[str]) -> bool:
        """Another place for it; False for one that has to stay."""
        if shard in unborn:
            return False
        home = self.homes[shard]
        if self._moves and self._rng.random() < 0.7:
            home = next(node for node in NODES if node != home)
        worker = next(w for w, node in WORKERS.items() if node == home and w != self._places[shard])
        self.homes[shard] = home
        self._places[shard] = worker
        self._dropped.discard((_operator_of(shard), worker))
        return True

    def _shards_of(self, operator: str) -> list[str]:
        return [shard for shard in self.homes if _operator_of(shard) == operator]

    def _write(self, *operators: str) -> None:
        written = self._book.written([self._schedule(operator) for operator in operators], term=_TERM)
        self._book = written.book
        for schedule in written.schedules:
            self._api.put(schedule)

    def _schedule(self, operator: str) -> OperatorSchedule:
        """As it is to be, worked out from the one that stands."""
        old = self._book.schedules.get(operator) or OperatorSchedule.unwritten(
            operator, is_source=operator in self._layout.sources
        )
        workers = [worker for worker in WORKERS if (operator, worker) not in self._dropped]
        named = WORKERS if self._names_all else workers
        known = old.shards
        return replace(
            old,
            workers=tuple(WorkerPlace(w, WORKERS[w], WORKERS[w], f"uid-{w}") for w in named),
            executors=tuple(ExecutorPlace(f"{operator}-{w}", w, self._tasks[operator, w]) for w in workers),
            shards={
                shard: ShardPlace(
                    f"{operator}-{self._places[shard]}",
                    self.homes[shard],
                    known[shard].fresh_since if shard in known else 0,
                )
                for shard in self._shards_of(operator)
            },
            stores=_STORES,
        )


def _workers_of(home: str) -> list[str]:
    return [worker for worker, node in WORKERS.items() if node == home]


def _operator_of(shard: str) -> str:
    return shard.split("/", 1)[0]
