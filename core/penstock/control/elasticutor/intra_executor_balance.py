"""Which task of an executor runs which shard: Elasticutor (Wang et al., SIGMOD 2019), section 3.1.

Load is refined in rounds until the imbalance factor delta, the most loaded task's load over the average
one, is below theta. Each round looks at the moves of one shard from the most loaded task to the
least loaded one and takes the one that lowers delta most. Around this stand the occasions that the
paper leaves open: shards without a task (new, or their task went) and tasks without a shard (new).

A load that is missing is not zero (promise 7): such a shard stays where it is, and its task, whose load
is then a lower bound, may give but not take. So no move between tasks makes a task the most loaded one.
Neighbours: the worker's main process calls this and tells the tasks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

THETA = 1.2
"""The paper's threshold: the most loaded task is at most 20% above the average."""

_GAIN_MIN = 1e-9
"""Relative: what a move must gain, so that rounding is never taken for a gain."""


@dataclass(frozen=True, slots=True)
class Balance(Generic[T]):
    """`assignment` is shard -> task of all shards; `moves` are (shard, from, to), the difference to what was,
    with None for a shard that had no task.

    `imbalance_before`, `imbalance_after`: delta of the known load; None while no load is seen.
    """

    assignment: Mapping[str, T]
    moves: tuple[tuple[str, T | None, T], ...]
    imbalance_before: float | None
    imbalance_after: float | None
    reason: str


def rebalance(
    shards: Sequence[str],
    assignment: Mapping[str, T],
    tasks: Sequence[T],
    load: Mapping[str, float | None] | None,
    theta: float = THETA,
) -> Balance[T]:
    """Give every one of `shards` one of `tasks`, with few moves, and balance what load is known.

    `assignment` is how they run now: a shard that is not there, or is on a task that is not in `tasks`, is
    placed anew; names that are not in `shards` are dropped. `load` is shard -> work over the last
    second, in any unit, None (or absent) where that is not known; with `load` None nothing that has a task
    moves. Ties go by the order of `shards` and `tasks`. At most one round a shard. ValueError without tasks.
    """
    if not tasks:
        raise ValueError("shards cannot be balanced over no tasks")
    spread = _Spread(shards, assignment, tasks, load or {})
    before = spread.imbalance()
    homeless = spread.place_homeless()
    if load is None:
        reason = "only shards without a task were placed"
    elif spread.total <= 0:
        moved = spread.fill_by_count()
        reason = f"no load is seen: {moved} shards went to tasks without any, by count"
    else:
        reason = spread.refine(theta)
    if homeless:
        reason += f"; {homeless} shards had no task"
    if load is not None and (unknown := sum(spread.load[shard] is None for shard in shards)):
        reason += f"; the load of {unknown} shards is not known, they were held"
    return Balance(
        assignment={shard: spread.task_of[shard] for shard in shards},
        moves=tuple(
            (shard, assignment.get(shard), spread.task_of[shard])
            for shard in shards
            if shard not in assignment or assignment[shard] != spread.task_of[shard]
        ),
        imbalance_before=before,
        imbalance_after=spread.imbalance(),
        reason=reason,
    )


class _Spread(Generic[T]):
    """The assignment while it is worked on, with what each task holds."""

    def __init__(
        self,
        shards: Sequence[str],
        assignment: Mapping[str, T],
        tasks: Sequence[T],
        load: Mapping[str, float | None],
    ) -> None:
        self.load = {shard: load.get(shard) for shard in shards}
        self.total = sum(value for value in self.load.values() if value is not None)
        self.task_of: dict[str, T] = {}
        self._tasks = tuple(dict.fromkeys(tasks))
        self._order = {task: order for order, task in enumerate(self._tasks)}
        self._held: dict[T, dict[str, None]] = {task: {} for task in self._tasks}
        self._known = dict.fromkeys(self._tasks, 0.0)
        self._unknown = dict.fromkeys(self._tasks, 0)
        for shard in self.load:
            task = assignment.get(shard)
            if task is not None and task in self._held:
                self._put(shard, task)

    def imbalance(self) -> float | None:
        """Delta: the most loaded task over the average one."""
        total = sum(self._known.values())
        return max(self._known.values()) * len(self._tasks) / total if total > 0 else None

    def place_homeless(self) -> int:
        """Shards without a task: the heaviest first, each to the least loaded; unknown loads by count."""
        homeless = [shard for shard in self.load if shard not in self.task_of]
        known = [(load, shard) for shard in homeless if (load := self.load[shard]) is not None]
        for _, shard in sorted(known, key=lambda pair: -pair[0]):
            self._put(shard, min(self._tasks, key=lambda t: (self._known[t], len(self._held[t]))))
        for shard in homeless:
            if self.load[shard] is None:
                self._put(shard, min(self._tasks, key=lambda t: (len(self._held[t]), self._known[t])))
        return len(homeless)

    def fill_by_count(self) -> int:
        """Give tasks without a shard an even share by count; answers how many shards moved."""
        share = len(self.load) // len(self._tasks)
        moved = 0
        for task in [task for task in self._tasks if not self._held[task]]:
            for _ in range(share):
                giver = max(self._tasks, key=lambda t: (len(self._held[t]), self._order[t]))
                self._move(next(reversed(self._held[giver])), task)
                moved += 1
        return moved

    def refine(self, theta: float) -> str:
        """The paper's rounds; answers why they ended. Below theta, only tasks without a shard get one."""
        rounds = 0
        for rounds in range(len(self.load)):
            most = max(self._tasks, key=lambda t: (self._known[t], -self._order[t]))
            least = min(
                (task for task in self._tasks if not self._unknown[task]),
                key=lambda t: (self._known[t], len(self._held[t])),
                default=most,
            )
            delta = self._known[most] * len(self._tasks) / sum(self._known.values())
            if delta < theta and self._held[least]:
                return f"imbalance {delta:.2f} is below {theta:.2f} after {rounds} moves"
            shard = self._best(most, least)
            if shard is None:
                return f"no move helps at imbalance {delta:.2f}, after {rounds} moves"
            self._move(shard, least)
        return f"stopped after {rounds + 1} moves"

    def _best(self, most: T, least: T) -> str | None:
        """The shard whose move lowers delta most; None when no move leaves both below what `most` has now.

        The higher of the two is then (most + least) / 2 + |load - gap / 2|, and nothing else in delta
        depends on the choice: the load nearest to half the gap is the best.
        """
        gap = self._known[most] - self._known[least]
        loads = ((load, shard) for shard in self._held[most] if (load := self.load[shard]) is not None)
        load, shard = min(loads, key=lambda pair: abs(pair[0] - gap / 2))
        gain = min(load, gap - load)
        return shard if gain > self._known[most] * _GAIN_MIN else None

    def _put(self, shard: str, task: T) -> None:
        self.task_of[shard] = task
        self._held[task][shard] = None
        load = self.load[shard]
        if load is None:
            self._unknown[task] += 1
        else:
            self._known[task] += load

    def _move(self, shard: str, to: T) -> None:
        giver = self.task_of[shard]
        del self._held[giver][shard]
        # Summed anew: what differences leave behind would look like load on a task that has none.
        loads = [self.load[held] for held in self._held[giver]]
        self._known[giver] = sum(load for load in loads if load is not None)
        self._unknown[giver] = loads.count(None)
        self._put(shard, to)
