"""Elasticutor's dynamic scheduler (Wang et al., SIGMOD 2019, section 4) as a policy; naive-EC is one of its
settings.

Each snapshot: rates by differences over a window, k by the Jackson network (`jackson`), nodes by Algorithm 1
(`core_assignment`), and one decision an operator that says which executors get which cores. Which task of an
executor runs which shard is the worker's own affair (`intra_executor_balance`).

Beyond the paper, whose cluster is of one size and whose metrics are always there: surplus cores are given
back, late; an executor without metrics is left as it is; each operator has its own bound (the paper's single
T_max over the topology is `Settings.end_to_end_us`); mu is lessened by the target's safety margin (the paper:
0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.control.decision import PolicyDecision
from penstock.control.elasticutor.core_assignment import (
    THRESHOLD_BYTES_PER_S,
    Assigned,
    Problem,
    assign,
    assign_naive,
    release,
)
from penstock.control.elasticutor.jackson import (
    US_PER_S,
    Allocation,
    Bound,
    Floats,
    Integers,
    Network,
    Part,
    allocate,
)
from penstock.control.elasticutor.load import Load
from penstock.control.elasticutor.pinned_shards import ShardLoad, loads_of
from penstock.control.elasticutor.plant import UNLIMITED, Plant, plant_of, problem_of
from penstock.control.elasticutor.report import Report
from penstock.control.elasticutor.surplus import Surplus
from penstock.control.samples.shard_rates import OperatorLook, ServiceMemory, ShardRates
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope


@dataclass(frozen=True, slots=True)
class Settings:
    """`window_us`: what rates are measured over (the paper's sliding second). `threshold_bytes_per_s`: phi~.
    `release_after_us`: how long an executor must have had too many cores before it gives any back.
    `drain_within_us`: rows that have waited for longer than the alert threshold count as arrivals over so
    long; None, the paper's model, knows no backlog. `pins_shards`: a shard's rows are worked by the task that
    has it, and no core is added that no bound asks for (`pinned_shards`); the paper's model is M/M/k with
    ceil(lambda / mu) + 1 cores at least. `start_us`: until a task that comes works; what piles up till then
    is to be drained too. `end_to_end_us`: T_max of equation (1) over the whole topology, in place of the
    operators' own targets. `naive`: naive-EC, without migration cost and locality."""

    window_us: int = 1_000_000
    threshold_bytes_per_s: float = THRESHOLD_BYTES_PER_S
    release_after_us: int = 5_000_000
    drain_within_us: int | None = None
    pins_shards: bool = False
    start_us: int = 700_000
    end_to_end_us: float | None = None
    naive: bool = False

    def __post_init__(self) -> None:
        if self.pins_shards and self.end_to_end_us is not None:
            raise ValueError("tasks that have shards of their own have bounds of their own: none end to end")
        if self.window_us <= 0 or self.release_after_us < 0 or self.threshold_bytes_per_s <= 0:
            raise ValueError(f"settings out of range: {self}")
        if self.end_to_end_us is not None and self.end_to_end_us <= 0:
            raise ValueError(f"an end-to-end latency of {self.end_to_end_us} us")


KEYED = Settings(pins_shards=True, drain_within_us=1_000_000)
"""For keyed operators, with what waits worked off within a second: what a LatencySLA runs with. The defaults
are the paper's."""


class Elasticutor:
    """A policy. Remembers samples of a window, and since when which executors have had too many cores."""

    def __init__(self, scope: Scope, settings: Settings | None = None) -> None:
        self._scope = scope
        self._settings = settings or Settings()
        self._rates: dict[str, ShardRates] = {}
        self._service = ServiceMemory()
        self._surplus = Surplus(self._settings.release_after_us)
        self._next_node = 0
        self._observed: Load | None = None
        """Of a look that was taken in, and whose decision is still asked for."""

    @property
    def name(self) -> str:
        """As users name it."""
        return "naive-ec" if self._settings.naive else "elasticutor"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator in scope."""
        observed, self._observed = self._observed, None
        if observed is None or observed.snapshot.at_us != snapshot.at_us:
            observed = self.observe(snapshot)
        return self.schedule(observed)

    def observe(self, snapshot: TopologySnapshot) -> Load:
        """The first half of `decide`: from samples of all shards to rates of all executors."""
        operators = tuple(each for name, each in snapshot.operators.items() if name in self._scope.targets)
        looks = [self._look(snapshot.at_us, each) for each in operators]
        counts = [len(each.executors) for each in operators]
        margins = [1 - self._scope.targets[each.operator].safety_margin for each in operators]
        rates = self._service.rates(looks)
        arrival = rates.arrival_per_s
        service = rates.service_per_s * np.repeat(margins, counts)
        late = np.zeros(len(arrival))
        if self._settings.drain_within_us is not None:
            targets = [self._scope.targets[each.operator] for each in operators]
            # Tasks tell what they have done once an interval; till then it seems to wait.
            usual_us = np.repeat([each.alert_us + each.interval_us for each in targets], counts)
            late = np.maximum(0.0, rates.backlog - arrival * usual_us / US_PER_S)
            late *= US_PER_S / self._settings.drain_within_us
        shard_loads: list[ShardLoad | None] = []
        if self._settings.pins_shards:
            first = 0
            for each, look in zip(operators, looks, strict=True):
                mine = slice(first, first := first + len(each.executors))
                target = self._scope.targets[each.operator]
                coming = self._coming(each, look, arrival[mine], service[mine] / (1 - target.safety_margin))
                shard_loads += loads_of(look, service[mine], late[mine], late[mine] + coming, target)
        return Load(
            snapshot=snapshot,
            operators=operators,
            filling=tuple(each.filling for each in looks),
            executors=tuple(executor for each in operators for executor in each.executors),
            operator=np.repeat(np.arange(len(operators)), counts),
            arrival_per_s=arrival,
            service_per_s=service,
            demand_per_s=arrival + late,
            latency_us=rates.latency_us,
            bytes_per_s=rates.bytes_per_s,
            state_bytes=rates.state_bytes,
            shards=rates.shards,
            shard_loads=tuple(shard_loads),
        )

    def _coming(
        self, operator: OperatorSnapshot, look: OperatorLook, arrival_per_s: Floats, service_per_s: Floats
    ) -> Floats:
        """What tasks that come are to be enough for: arrivals as they are now, where the window's mean lags
        behind, and what piles up until they work."""
        now = np.maximum(arrival_per_s, look.newest_per_s)
        within_us = self._settings.drain_within_us
        if within_us is None:
            return now
        served = np.array([executor.tasks for executor in operator.executors]) * service_per_s
        piles_up: Floats = np.maximum(0.0, now - served) * (self._settings.start_us / within_us)
        return now + piles_up

    def schedule(self, load: Load) -> tuple[PolicyDecision, ...]:
        """The second half of `decide`: the scheduler's step proper, from rates to decisions."""
        if not load.operators:
            return ()
        plant = plant_of(load, self._scope)
        now = np.array(plant.totals, dtype=np.int64)
        known = (load.demand_per_s == 0) | (load.demand_per_s > 0) & (load.service_per_s > 0)
        treated = np.array([each.treatment for each in load.operators])[load.operator]
        fixed = np.where(known & ~treated, -1, now)
        allocation = allocate(self._network(load, plant, fixed), plant.budget_milli)
        problem = problem_of(load, plant, allocation, fixed)
        assigned = self._assign(problem)
        keep = self._surplus.keep(load, allocation.cores, now)
        self._cut(load, plant, allocation, assigned, keep)
        after = release(problem, assigned, keep, remote_first=not self._settings.naive)
        whole_us = self._settings.end_to_end_us
        report = Report(self.name, load, plant, allocation, after, known, self._targets(load), whole_us)
        return tuple(report.decisions())

    def _look(self, at_us: int, operator: OperatorSnapshot) -> OperatorLook:
        rates = self._rates.get(operator.operator)
        if rates is None:
            rates = self._rates[operator.operator] = ShardRates(self._settings.window_us)
        return rates.observe(at_us, operator)

    def _targets(self, load: Load) -> tuple[LatencyTarget, ...]:
        return tuple(self._scope.targets[each.operator] for each in load.operators)

    def _network(self, load: Load, plant: Plant, fixed: Integers) -> Network:
        count = len(load.operators)
        decided = fixed < 0
        arrival = np.where(decided, load.demand_per_s, 0.0)
        by_operator = np.bincount(load.operator, arrival, count).tolist()
        whole_us = self._settings.end_to_end_us
        if whole_us is None:
            targets = self._targets(load)
            bounds = [Bound(each.latency_us, rate) for each, rate in zip(targets, by_operator, strict=True)]
        else:
            fed = {downstream for _, downstream in load.snapshot.edges}
            inputs = [
                r for each, r in zip(load.operators, by_operator, strict=True) if each.operator not in fed
            ]
            bounds = [Bound(whole_us, sum(inputs))]
        parts = []
        for index, each in enumerate(load.operators):
            limits = self._scope.limits.get(each.operator)
            parts.append(
                Part(
                    bound=index if whole_us is None else 0,
                    cores_min=limits.min if limits else 0,
                    cores_max=limits.max if limits else UNLIMITED,
                    core_milli=plant.core_milli[index],
                )
            )
        return Network(
            arrival_per_s=arrival,
            service_per_s=np.where(arrival > 0, load.service_per_s, 1.0),
            part=load.operator,
            fixed=fixed,
            most=load.shards,
            parts=tuple(parts),
            bounds=tuple(bounds),
            needed=np.array(
                [
                    1 if each is None else each.tasks_asked(now)
                    for each, now in zip(load.shard_loads, plant.totals, strict=True)
                ]
            )
            if load.shard_loads
            else None,
        )

    def _cut(
        self, load: Load, plant: Plant, allocation: Allocation, assigned: Assigned, keep: list[int]
    ) -> None:
        """Less of `keep` where surplus that is not yet given back would break a limit or the budget."""
        sizes = plant.core_milli
        held = np.minimum(assigned.totals, np.maximum(1, keep))
        by_operator = np.bincount(load.operator, held, len(load.operators)).tolist()
        left_milli = plant.budget_milli
        room = []
        for index, (each, count) in enumerate(zip(load.operators, by_operator, strict=True)):
            limits = self._scope.limits.get(each.operator)
            room.append(math.inf if limits is None else limits.max - count)
            left_milli -= count * sizes[index]
        if min(room) >= 0 and left_milli >= 0:
            return
        needed: list[int] = allocation.cores.tolist()
        holds: list[int] = held.tolist()
        operator: list[int] = load.operator.tolist()
        for j, index in enumerate(operator):
            if room[index] >= 0 and left_milli >= 0:
                continue
            surplus = holds[j] - max(1, needed[j])
            over = max(-room[index], -(left_milli // sizes[index]) if left_milli < 0 else 0)
            if surplus > 0:
                given = int(min(surplus, over))
                keep[j] = holds[j] - given
                room[index] += given
                left_milli += given * sizes[index]

    def _assign(self, problem: Problem) -> Assigned:
        if not self._settings.naive:
            return assign(problem, self._settings.threshold_bytes_per_s)
        nodes = max(1, len(problem.capacity_milli))
        answer = assign_naive(problem, self._next_node)
        # All nodes take turns, over decisions too.
        added = sum(answer.totals) - sum(sum(cores.values()) for cores in problem.assigned)
        self._next_node = (self._next_node + max(0, added)) % nodes
        return answer


def naive_ec(scope: Scope, settings: Settings | None = None) -> Elasticutor:
    """Section 5.4's naive executor-centric scheduler with the other settings of `settings`."""
    base = settings or Settings()
    return Elasticutor(
        scope,
        Settings(
            window_us=base.window_us,
            release_after_us=base.release_after_us,
            drain_within_us=base.drain_within_us,
            pins_shards=base.pins_shards,
            end_to_end_us=base.end_to_end_us,
            naive=True,
        ),
    )
