"""How many cores an executor needs whose shards are pinned to its tasks, one at a time.

Section 4.1 takes an executor of k cores for an M/M/k system, in which any core takes the next row. Rows of a
shard are worked in order, by the one task that has it: k tasks are k queues, each as long as its shards make
it (M/M/1, as in StreamSwitch, section 4.2). So k is the least number of tasks over which shards can be spread
such that each task is expected to keep the bound. Where there is no backlog and shards are many and small
that is lambda / (mu - 1 / L), with no core on top. Neighbours: `policy` asks, `jackson` is the paper's model,
`intra_executor_balance` spreads shards over the tasks that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

import numpy as np

from penstock.control.elasticutor.jackson import US_PER_S, Floats
from penstock.control.samples.shard_rates import OperatorLook
from penstock.control.target import LatencyTarget

_USED_MIN = 0.5
"""Of a task's rate: what it may be given at least, however tight the bound is."""
_COARSE = 8
"""Shards a task from which on they are fine enough to count as a fluid."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class ShardLoad:
    """What the shards of one executor ask for, rows per second, the heaviest first; `service_per_s` is
    (1 - epsilon) mu of a task, `room_per_s` what a task may be given. `coming_per_s` is what they ask for
    together once a task that is asked for now works."""

    demand_per_s: Floats
    service_per_s: float
    room_per_s: float
    coming_per_s: float = 0.0

    @classmethod
    def of(
        cls, demand_per_s: Floats, service_per_s: float, latency_us: float, coming_per_s: float = 0.0
    ) -> ShardLoad:
        """For a bound of `latency_us` at each task."""
        room = max(service_per_s - US_PER_S / latency_us, _USED_MIN * service_per_s)
        return cls(-np.sort(-demand_per_s), service_per_s, room, coming_per_s)

    @property
    def alone(self) -> int:
        """Shards that ask for more than a task may be given. Each has a task for itself, and no more can be
        done for it."""
        return int(np.searchsorted(-self.demand_per_s, -self.room_per_s * (1 + _ROUNDING)))

    def tasks_needed(self) -> int:
        """The least k that gives no task more than `room_per_s`, shards that are alone left out."""
        alone = self.alone
        rest = self.demand_per_s[alone:]
        total = float(rest.sum())
        room = self.room_per_s * (1 + _ROUNDING)
        if total <= 0:
            return max(1, alone)
        tasks = max(1, math.ceil(total / room))
        most = int(np.count_nonzero(rest))
        while tasks < most and _heaviest(rest, tasks) > room:
            tasks += 1
        return alone + tasks

    def tasks_asked(self, now: int) -> int:
        """`tasks_needed` of an executor that has `now`. Where that is too few, as many come at once as will
        be needed when they work: nothing else is decided until then."""
        needed = self.tasks_needed()
        total = float(self.demand_per_s.sum())
        if needed <= now or self.coming_per_s <= total:
            return needed
        return replace(self, demand_per_s=self.demand_per_s * (self.coming_per_s / total)).tasks_needed()

    def expected_us(self, tasks: int) -> float:
        """E[T] at the worst of so many tasks; math.inf where it never catches up."""
        if not len(self.demand_per_s) or self.demand_per_s[0] <= 0:
            return 0.0
        spare = self.service_per_s - _heaviest(self.demand_per_s, max(1, tasks))
        return US_PER_S / spare if spare > 0 else math.inf


def loads_of(
    look: OperatorLook, service_per_s: Floats, late_per_s: Floats, coming_per_s: Floats, target: LatencyTarget
) -> list[ShardLoad | None]:
    """Of each executor of one operator, None where a rate is not known. `late_per_s` is asked for by the
    shards where rows wait."""
    arrival, waiting = look.arrival_per_s(), look.waiting()
    order = np.argsort(look.owner, kind="stable")
    ends = np.searchsorted(look.owner[order], np.arange(len(look.executors) + 1))
    loads: list[ShardLoad | None] = []
    for j in range(len(look.executors)):
        mine = order[ends[j] : ends[j + 1]]
        demand = arrival[mine]
        if late_per_s[j] > 0:
            demand = demand + waiting[mine] * (late_per_s[j] / waiting[mine].sum())
        total, service = float(demand.sum()), float(service_per_s[j])
        if total == 0:
            loads.append(ShardLoad.of(demand, 1.0, target.latency_us))
        elif total > 0 and service > 0:
            loads.append(ShardLoad.of(demand, service, target.latency_us, float(coming_per_s[j])))
        else:
            loads.append(None)
    return loads


def _heaviest(demand_per_s: Floats, tasks: int) -> float:
    """The load of the most loaded of `tasks`, when each shard, heaviest first, goes to the least loaded."""
    total = float(demand_per_s.sum())
    if tasks == 1:
        return total
    coarse = demand_per_s[: _COARSE * tasks]
    fine = demand_per_s[_COARSE * tasks :]
    loads = [0.0] * tasks
    heapify(loads)
    for demand in coarse.tolist():
        heapreplace(loads, loads[0] + demand)
    worst = max(loads)
    if not len(fine):
        return worst
    # The fine ones fill what is uneven.
    return max(worst, total / tasks + float(fine[0]) / 2)
