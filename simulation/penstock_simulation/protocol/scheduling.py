"""The operator's hand in the simulation: which executor runs which shard, with how many tasks, and where.

Each change is a new version of one operator's schedule, complete at once: an executor that loses its last
shard goes in the same version as its shards, now and then its worker with it. Versions, and what is born,
are the affair of the product's book (`penstock.schedule.book`); like its planner this keeps what is unborn
where it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.schedule.births import is_born
from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock_simulation.protocol.layout import HOMES, NODES, OPERATORS, WORKERS

TASKS_MAX = 3
PORT = 6379


class Schedules:
    """`homes` is shard -> store. `write` takes each new schedule; `moves`: shards change their home too;
    `names_all`: a worker without executors is named all the same."""

    def __init__(
        self,
        rng: random.Random,
        write: Callable[[OperatorSchedule], None],
        *,
        moves: bool,
        names_all: bool,
    ) -> None:
        self.homes = dict(HOMES)
        self._rng = rng
        self._write = write
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
        first = {operator: self._schedule(operator, {}) for operator in OPERATORS}
        self._book = ScheduleBook(first, applied={operator: {} for operator in OPERATORS})
        for schedule in first.values():
            write(schedule)

    @property
    def newest(self) -> Mapping[str, OperatorSchedule]:
        """Operator -> its schedule."""
        return self._book.schedules

    def note_applied(self, operator: str, store: str, version: int) -> None:
        """A store's agent has said so."""
        applied = {**self._book.applied, operator: {**self._book.applied[operator], store: version}}
        self._book = replace(self._book, applied=applied)

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
        home, operator = self.homes[shard], _operator_of(shard)
        born = is_born(self.newest[operator].shards[shard], self._book.applied[operator])
        if self._moves and born and self._rng.random() < 0.7:
            home = next(node for node in NODES if node != home)
        worker = next(w for w, node in WORKERS.items() if node == home and w != self._places[shard])
        self.homes[shard] = home
        self._places[shard] = worker
        self._dropped.discard((operator, worker))

    def _shards_of(self, operator: str) -> list[str]:
        return [shard for shard in self.homes if _operator_of(shard) == operator]

    def _publish(self, operator: str) -> None:
        old = self.newest[operator]
        change = self._schedule(operator, old.shards)
        written = self._book.written([replace(change, version=old.version)], term=1)
        self._book = written.book
        for schedule in written.schedules:
            self._write(schedule)

    def _schedule(self, operator: str, old: Mapping[str, ShardPlace]) -> OperatorSchedule:
        """As version 1, which all shards are born in that are not in `old`."""
        workers = [worker for worker in WORKERS if (operator, worker) not in self._dropped]
        named = WORKERS if self._names_all else workers
        return OperatorSchedule(
            operator=operator,
            version=1,
            term=1,
            workers=tuple(WorkerPlace(w, WORKERS[w], WORKERS[w], f"uid-{w}") for w in named),
            executors=tuple(ExecutorPlace(f"{operator}-{w}", w, self._tasks[operator, w]) for w in workers),
            shards={
                shard: ShardPlace(
                    f"{operator}-{self._places[shard]}",
                    self.homes[shard],
                    old[shard].fresh_since if shard in old else 1,
                )
                for shard in self._shards_of(operator)
            },
            stores=tuple(StorePlace(node, node, f"{node}:{PORT}") for node in NODES),
            is_source=operator == "src",
        )


def _workers_of(home: str) -> list[str]:
    return [worker for worker, node in WORKERS.items() if node == home]


def _operator_of(shard: str) -> str:
    return shard.split("/", 1)[0]
