"""Which tasks of a worker run on other nodes (Elasticutor, sections 3.1 and 4.2: remote tasks).

How many tasks an executor has is decided elsewhere. Here they are split: as many at home as the worker's
node has cores for, the rest where there is room; what is remote comes back as soon as home has a core for it.
Each step is the one that moves least state, by the costs of Algorithm 1. Pure. Neighbours: `penstock run`
asks at each change of a schedule; `core_assignment` has the costs.

- An executor keeps one task at home: when the other node goes, its shards have where to go.
- Sources stay at home: they are all input and output, what the paper calls data-intensive.
- What finds no core anywhere stays at home, and shares the cores there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.control.elasticutor.core_assignment import allocation_cost, deallocation_cost
from penstock.schedule.record import ExecutorPlace, OperatorSchedule
from penstock.schedule.remote import Remote, clipped


@dataclass(frozen=True, slots=True)
class Room:
    """`own` is worker -> tasks that its node has cores for, `node_of` worker -> node; `beside` is node ->
    remote tasks that it has cores for, over all workers, those that are there among them."""

    own: Mapping[str, int]
    node_of: Mapping[str, str]
    beside: Mapping[str, int]


def place_remote(schedules: Iterable[OperatorSchedule], before: Remote, room: Room) -> Remote:
    """Executor -> its remote tasks, from those that it had `before`. A worker that `room` does not name keeps
    what it has, as far as its executors have the tasks."""
    split = _Split(schedules, before, room)
    for worker in sorted(room.own):
        split.fit(worker)
    return split.remote()


@dataclass(slots=True)
class _Executor:
    place: ExecutorPlace
    state: int
    """Shards stand for bytes: what each weighs is not known."""
    away: Counter[str]

    @property
    def at_home(self) -> int:
        return self.place.tasks - self.away.total()

    def cost(self, source: str, target: str) -> float:
        """Of one task from a node to another; "" is home."""
        total = self.place.tasks
        here = self.away[source] if source else self.at_home
        there = self.away[target] if target else self.at_home
        return deallocation_cost(self.state, total, here) + allocation_cost(self.state, total - 1, there)


class _Split:
    def __init__(self, schedules: Iterable[OperatorSchedule], before: Remote, room: Room) -> None:
        self._room = room
        self._fixed: Counter[str] = Counter()
        self._executors: dict[str, list[_Executor]] = {}
        for schedule in schedules:
            for place in schedule.executors:
                if schedule.is_source:
                    self._fixed[place.worker] += place.tasks
                    continue
                away = clipped(before.get(place.name, ()), place.tasks - 1)
                held = _Executor(place, len(schedule.shards_of(place.name)), away)
                self._executors.setdefault(place.worker, []).append(held)
        self._free = Counter(room.beside)
        for held in self._all():
            self._free.subtract(held.away)

    def _all(self) -> list[_Executor]:
        return [held for executors in self._executors.values() for held in executors]

    def remote(self) -> Remote:
        return {
            held.place.name: tuple(sorted((node, count) for node, count in held.away.items() if count))
            for held in self._all()
            if held.away.total()
        }

    def fit(self, worker: str) -> None:
        executors = self._executors.get(worker, [])
        for held in executors:
            for node in [node for node, count in held.away.items() if count]:
                while held.away[node] and (self._free[node] < 0 or node == self._room.node_of.get(worker)):
                    self._shift(held, node, "")
        free = self._room.own[worker] - self._fixed[worker] - sum(held.at_home for held in executors)
        while free < 0 and self._lend(worker, executors):
            free += 1
        while free > 0 and self._take_back(executors):
            free -= 1

    def _lend(self, worker: str, executors: list[_Executor]) -> bool:
        """One task goes to another node; False when none can."""
        nodes = [n for n, free in self._free.items() if free > 0 and n != self._room.node_of.get(worker)]
        used = {node for held in executors for node, count in held.away.items() if count}
        able = [(held, node) for held in executors if held.at_home > 1 for node in nodes]
        if not able:
            return False
        held, node = min(
            able,
            key=lambda of: (
                of[0].cost("", of[1]),
                of[1] not in used,
                -self._free[of[1]],
                of[0].place.name,
                of[1],
            ),
        )
        self._shift(held, "", node)
        return True

    def _take_back(self, executors: list[_Executor]) -> bool:
        """One task comes home; False when none is away."""
        able = [(held, node) for held in executors for node, count in held.away.items() if count]
        if not able:
            return False
        held, node = min(able, key=lambda of: (of[0].cost(of[1], ""), of[0].place.name, of[1]))
        self._shift(held, node, "")
        return True

    def _shift(self, held: _Executor, source: str, target: str) -> None:
        if source:
            held.away[source] -= 1
            self._free[source] += 1
        if target:
            held.away[target] += 1
            self._free[target] -= 1
