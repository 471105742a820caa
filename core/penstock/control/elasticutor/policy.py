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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.control.decision import (
    Action,
    AssignCores,
    Decision,
    ExecutorView,
    Health,
    Prediction,
    Treatment,
)
from penstock.control.elasticutor.core_assignment import (
    THRESHOLD_BYTES_PER_S,
    Assigned,
    Problem,
    assign,
    assign_naive,
    release,
)
from penstock.control.elasticutor.jackson import (
    Allocation,
    Bound,
    Floats,
    Integers,
    Network,
    Part,
    allocate,
    sojourn_us,
)
from penstock.control.samples.shard_rates import OperatorLook, ServiceMemory, ShardRates
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope

MILLI = 1000
_NO_NODE = ""
"""The only node of a snapshot that knows of none: then only the number of cores is decided."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`window_us`: what rates are measured over (the paper's sliding second). `threshold_bytes_per_s`: phi~.
    `release_after_us`: how long an executor must have had too many cores before it gives any back.
    `drain_within_us`: rows that wait count as arrivals over so long; None, the paper's model, knows no
    backlog. `end_to_end_us`: T_max of equation (1) over the whole topology, in place of the operators' own
    targets. `naive`: naive-EC, without migration cost and locality."""

    window_us: int = 1_000_000
    threshold_bytes_per_s: float = THRESHOLD_BYTES_PER_S
    release_after_us: int = 5_000_000
    drain_within_us: int | None = None
    end_to_end_us: float | None = None
    naive: bool = False

    def __post_init__(self) -> None:
        if self.window_us <= 0 or self.release_after_us < 0 or self.threshold_bytes_per_s <= 0:
            raise ValueError(f"settings out of range: {self}")
        if self.end_to_end_us is not None and self.end_to_end_us <= 0:
            raise ValueError(f"an end-to-end latency of {self.end_to_end_us} us")


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: one entry an executor, operator after operator. Rates per second; NaN: not known.
    `service_per_s` is (1 - epsilon) mu of one core. `operator` is an index into `operators`."""

    snapshot: TopologySnapshot
    operators: tuple[OperatorSnapshot, ...]
    filling: tuple[bool, ...]
    executors: tuple[ExecutorSeen, ...]
    operator: Integers
    arrival_per_s: Floats
    service_per_s: Floats
    demand_per_s: Floats
    latency_us: Floats
    bytes_per_s: Floats
    state_bytes: Floats
    shards: Integers


class Elasticutor:
    """A policy. Remembers samples of a window, and since when which executors have had too many cores."""

    def __init__(self, scope: Scope, settings: Settings | None = None) -> None:
        self._scope = scope
        self._settings = settings or Settings()
        self._rates: dict[str, ShardRates] = {}
        self._service = ServiceMemory()
        self._surplus = _Surplus(self._settings.release_after_us)
        self._next_node = 0

    @property
    def name(self) -> str:
        """As users name it."""
        return "naive-ec" if self._settings.naive else "elasticutor"

    def decide(self, snapshot: TopologySnapshot) -> tuple[Decision, ...]:
        """One decision an operator in scope."""
        return self.schedule(self.observe(snapshot))

    def observe(self, snapshot: TopologySnapshot) -> Load:
        """The first half of `decide`: from samples of all shards to rates of all executors."""
        operators = tuple(each for name, each in snapshot.operators.items() if name in self._scope.targets)
        looks = [self._look(snapshot.at_us, each) for each in operators]
        counts = [len(each.executors) for each in operators]
        margins = [1 - self._scope.targets[each.operator].safety_margin for each in operators]
        rates = self._service.rates(looks)
        arrival, within_us = rates.arrival_per_s, self._settings.drain_within_us
        return Load(
            snapshot=snapshot,
            operators=operators,
            filling=tuple(each.filling for each in looks),
            executors=tuple(executor for each in operators for executor in each.executors),
            operator=np.repeat(np.arange(len(operators)), counts),
            arrival_per_s=arrival,
            service_per_s=rates.service_per_s * np.repeat(margins, counts),
            demand_per_s=arrival if within_us is None else arrival + rates.backlog * 1e6 / within_us,
            latency_us=rates.latency_us,
            bytes_per_s=rates.bytes_per_s,
            state_bytes=rates.state_bytes,
            shards=rates.shards,
        )

    def schedule(self, load: Load) -> tuple[Decision, ...]:
        """The second half of `decide`: the scheduler's step proper, from rates to decisions."""
        if not load.operators:
            return ()
        plant = _plant(load, self._scope)
        now = np.array(plant.totals, dtype=np.int64)
        known = (load.demand_per_s == 0) | (load.demand_per_s > 0) & (load.service_per_s > 0)
        treated = np.array([each.treatment for each in load.operators])[load.operator]
        fixed = np.where(known & ~treated, -1, now)
        allocation = allocate(self._network(load, plant, fixed), plant.budget_milli)
        problem = _problem(load, plant, allocation, fixed)
        assigned = self._assign(problem)
        keep = self._surplus.keep(load, allocation.cores, now)
        self._cut(load, plant, allocation, assigned, keep)
        after = release(problem, assigned, keep, remote_first=not self._settings.naive)
        whole_us = self._settings.end_to_end_us
        report = _Report(self.name, load, plant, allocation, after, known, self._targets(load), whole_us)
        return tuple(report.decisions())

    def _look(self, at_us: int, operator: OperatorSnapshot) -> OperatorLook:
        rates = self._rates.get(operator.operator)
        if rates is None:
            rates = self._rates[operator.operator] = ShardRates(self._settings.window_us)
        return rates.observe(at_us, operator)

    def _targets(self, load: Load) -> tuple[LatencyTarget, ...]:
        return tuple(self._scope.targets[each.operator] for each in load.operators)

    def _network(self, load: Load, plant: _Plant, fixed: Integers) -> Network:
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
                    cores_max=limits.max if limits else _UNLIMITED,
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
        )

    def _cut(
        self, load: Load, plant: _Plant, allocation: Allocation, assigned: Assigned, keep: list[int]
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


_UNLIMITED = 1 << 40


def naive_ec(scope: Scope, settings: Settings | None = None) -> Elasticutor:
    """Section 5.4's naive executor-centric scheduler with the other settings of `settings`."""
    base = settings or Settings()
    return Elasticutor(
        scope,
        Settings(
            window_us=base.window_us,
            release_after_us=base.release_after_us,
            drain_within_us=base.drain_within_us,
            end_to_end_us=base.end_to_end_us,
            naive=True,
        ),
    )


class _Surplus:
    """Up at once, down slowly: an executor keeps the most that it needed within `after_us`, and gives cores
    back only after it has had too many for all of that time."""

    def __init__(self, after_us: int) -> None:
        self._after_us = after_us
        self._since: dict[str, tuple[int, int]] = {}
        """Executor -> (since when it has had too many, the most that it needed since)."""

    def keep(self, load: Load, needed: Integers, now: Integers) -> list[int]:
        """Cores that each executor may keep at this moment."""
        at_us = load.snapshot.at_us
        answer: list[int] = np.maximum(needed, now).tolist()
        since: dict[str, tuple[int, int]] = {}
        for j in np.flatnonzero(needed < now).tolist():
            name = load.executors[j].name
            since_us, most = self._since.get(name, (at_us, 0))
            most = max(most, int(needed[j]))
            if at_us - since_us >= self._after_us:
                answer[j] = most
            else:
                since[name] = since_us, most
        self._since = since
        return answer


@dataclass(frozen=True, slots=True)
class _Plant:
    """Nodes as numbers. `assigned` is X~ on nodes that exist; `capacity_milli` without what others use;
    `totals` is X~_j; `lost` says who has cores on nodes that do not exist; `core_milli` is the size of a core
    of each operator."""

    nodes: tuple[str, ...]
    capacity_milli: tuple[int, ...]
    assigned: tuple[Mapping[int, int], ...]
    totals: tuple[int, ...]
    lost: tuple[bool, ...]
    home: tuple[int, ...]
    budget_milli: float
    core_milli: tuple[int, ...]


def _plant(load: Load, scope: Scope) -> _Plant:
    snapshot = load.snapshot
    sizes = tuple(_core_milli(scope, each.operator) for each in load.operators)
    budget = math.inf if scope.cores_max is None else scope.cores_max * MILLI
    if not snapshot.nodes:
        count = len(load.executors)
        return _Plant(
            nodes=(_NO_NODE,),
            capacity_milli=(_UNLIMITED,),
            assigned=tuple({0: each.tasks} if each.tasks else {} for each in load.executors),
            totals=tuple(each.tasks for each in load.executors),
            lost=(False,) * count,
            home=(0,) * count,
            budget_milli=budget,
            core_milli=sizes,
        )
    index = {name: number for number, name in enumerate(snapshot.nodes)}
    capacity = [cores * MILLI for cores in snapshot.nodes.values()]
    mine = {each.operator for each in load.operators}
    for name, other in snapshot.operators.items():
        if name not in mine:
            for executor in other.executors:
                for node, count in cores_of(executor).items():
                    if node in index:
                        capacity[index[node]] -= count * _core_milli(scope, name)
    assigned: list[dict[int, int]] = []
    totals: list[int] = []
    lost: list[bool] = []
    for each in load.executors:
        known: dict[int, int] = {}
        total, seen = 0, 0
        for node, count in cores_of(each).items():
            seen += count
            if count > 0 and (number := index.get(node, -1)) >= 0:
                known[number] = count
                total += count
        assigned.append(known)
        totals.append(total)
        lost.append(total != seen)
    home = tuple(index.get(each.node, -1) for each in load.executors)
    capacity = [max(0, each) for each in capacity]
    # What is left of a node beside whole cores serves nobody.
    usable = sum(each - each % min(sizes) for each in capacity)
    return _Plant(
        nodes=tuple(snapshot.nodes),
        capacity_milli=tuple(capacity),
        assigned=tuple(assigned),
        totals=tuple(totals),
        lost=tuple(lost),
        home=home,
        budget_milli=min(budget, usable),
        core_milli=sizes,
    )


def _problem(load: Load, plant: _Plant, allocation: Allocation, fixed: Integers) -> Problem:
    # State that nobody measured counts alike everywhere, so that at least its shares are moved sparingly;
    # data rates that nobody measured make no executor data-intensive.
    state = np.where(np.isnan(load.state_bytes), 1.0, load.state_bytes)
    intensity = np.nan_to_num(load.bytes_per_s, nan=0.0) / np.maximum(1, allocation.cores)
    milli = np.array(plant.core_milli)[load.operator]
    return Problem(
        capacity_milli=plant.capacity_milli,
        allocation=allocation.cores.tolist(),
        assigned=plant.assigned,
        home=plant.home,
        state_bytes=state.tolist(),
        intensity_bytes_per_s=intensity.tolist(),
        core_milli=milli.tolist(),
        pinned=(fixed >= 0).tolist(),
    )


class _Report:
    """Decisions of one step: what was seen, what is expected with and without, in words too."""

    def __init__(
        self,
        policy: str,
        load: Load,
        plant: _Plant,
        allocation: Allocation,
        after: Assigned,
        known: NDArray[np.bool_],
        targets: tuple[LatencyTarget, ...],
        whole_us: float | None,
    ) -> None:
        self._policy = policy
        self._load = load
        self._plant = plant
        self._allocation = allocation
        self._after = after.cores
        self._short = after.short
        self._targets = targets
        self._whole_us = whole_us
        self._known: list[bool] = known.tolist()
        self._totals = plant.totals, after.totals
        self._changed = [
            j
            for j, (was, is_now) in enumerate(zip(plant.assigned, after.cores, strict=True))
            if plant.lost[j] or (was is not is_now and was != is_now)
        ]
        # Who gets nothing to do waits for nothing, whatever it has.
        arrival = np.where(known, load.demand_per_s, 0.0)
        service = np.where(known & (arrival > 0), load.service_per_s, 1.0)
        before_us = np.where(arrival > 0, sojourn_us(arrival, service, np.array(plant.totals)), 0.0)
        changed = np.array(self._changed, dtype=np.int64)
        after_us = before_us.copy()
        cores = np.array(after.totals, dtype=np.int64)[changed]
        after_us[changed] = np.where(
            arrival[changed] > 0, sojourn_us(arrival[changed], service[changed], cores), 0.0
        )
        self._before_us: list[float] = before_us.tolist()
        self._after_us: list[float] = after_us.tolist()
        self._views = _views(load, targets, np.where(known, before_us, np.nan))

    def decisions(self) -> Iterator[Decision]:
        """One an operator, in the order of the snapshot."""
        first = 0
        for index, operator in enumerate(self._load.operators):
            mine = range(first, first + len(operator.executors))
            first = mine.stop
            yield self._decision(index, operator, mine)

    def _decision(self, index: int, operator: OperatorSnapshot, mine: range) -> Decision:
        seen = tuple(self._views[mine.start : mine.stop])
        healths = {view.health for view in seen}
        actions = () if operator.treatment else self._actions(mine)
        unknown: list[str] = []
        if Health.UNKNOWN in healths:
            unknown = [view.name for view in seen if view.health is Health.UNKNOWN]
        conditions: dict[str, str] = {}
        if unknown and not self._load.filling[index]:
            conditions["MetricsUnavailable"] = f"no rates of {_some(unknown)}: left as they are"
        before, after = self._predicted(mine, self._before_us, self._totals[0]), None
        if actions:
            after = self._predicted(mine, self._after_us, self._totals[1])
        treatment, rule, reason = self._words(index, operator, mine, actions, unknown)
        if infeasible := self._infeasible(index, mine):
            conditions["Infeasible"] = infeasible
            if treatment is Treatment.NONE and not operator.treatment:
                treatment, rule, reason = Treatment.HOLD, "no-core-left", infeasible
        return Decision(
            at_us=self._load.snapshot.at_us,
            policy=self._policy,
            operator=operator.operator,
            treatment=treatment,
            rule=rule,
            reason=reason,
            health=next((each for each in _WORST_FIRST if each in healths), Health.GOOD),
            actions=actions,
            seen=seen,
            without=before,
            expected=after,
            conditions=conditions,
        )

    def _words(
        self,
        index: int,
        operator: OperatorSnapshot,
        mine: range,
        actions: tuple[Action, ...],
        unknown: Sequence[str],
    ) -> tuple[Treatment, str, str]:
        target_ms = self._bound_us(index) / 1000
        latency_ms = self._allocation.latency_us[self._bound(index)] / 1000
        if operator.treatment:
            return (
                Treatment.NONE,
                "treatment-under-way",
                "nothing is decided while shards or tasks still move",
            )
        if actions:
            had, gets = (sum(totals[mine.start : mine.stop]) for totals in self._totals)
            rule = "cores-added" if gets > had else "cores-given-back" if gets < had else "cores-moved"
            return (
                Treatment.CORES,
                rule,
                f"{had} to {gets} cores, {len(actions)} executors change: "
                f"E[T] {latency_ms:.3g} ms is expected, {target_ms:.3g} ms is allowed",
            )
        if self._load.filling[index]:
            return Treatment.HOLD, "no-window-yet", "rates are known once half a window has passed"
        if unknown:
            return Treatment.HOLD, "metrics-missing", f"no rates of {_some(unknown)}: they keep their cores"
        reason = f"E[T] {latency_ms:.3g} ms is expected, {target_ms:.3g} ms is allowed"
        return Treatment.NONE, "enough-cores", reason

    def _infeasible(self, index: int, mine: range) -> str:
        """Why the bound cannot be met, or nothing."""
        bound = self._bound(index)
        latency_us = self._allocation.latency_us[bound]
        short = [self._load.executors[j].name for j in self._short if mine.start <= j < mine.stop]
        if bound in self._allocation.unreachable:
            return f"serving alone takes longer than {self._bound_us(index) / 1000:.3g} ms: no core helps"
        if latency_us > self._bound_us(index):
            return (
                f"E[T] {latency_us / 1000:.3g} ms is expected with all cores that limits and nodes allow, "
                f"{self._bound_us(index) / 1000:.3g} ms is allowed"
            )
        return f"no core is left for {_some(short)}" if short else ""

    def _bound(self, index: int) -> int:
        """The bound that the operator is under: its own, or the only one."""
        return index if self._whole_us is None else 0

    def _bound_us(self, index: int) -> float:
        return self._targets[index].latency_us if self._whole_us is None else self._whole_us

    def _actions(self, mine: range) -> tuple[Action, ...]:
        """Who loses cores first: somebody else is to get them."""
        had, gets = self._totals
        changed = [j for j in self._changed if mine.start <= j < mine.stop]
        changed.sort(key=lambda j: gets[j] - had[j])
        executors = self._load.executors
        return tuple(
            AssignCores(executors[j].name, self._named(executors[j], self._after[j])) for j in changed
        )

    def _named(self, executor: ExecutorSeen, cores: Mapping[int, int]) -> dict[str, int]:
        if not self._load.snapshot.nodes:
            return {executor.node: sum(cores.values())}
        return {self._plant.nodes[node]: count for node, count in cores.items()}

    def _predicted(self, mine: range, times_us: Sequence[float], totals: Sequence[int]) -> Prediction | None:
        part = slice(mine.start, mine.stop)
        known = [time for time, is_known in zip(times_us[part], self._known[part], strict=True) if is_known]
        return Prediction(max(known), sum(totals[part])) if known else None


_WORST_FIRST = (Health.UNKNOWN, Health.SEVERE, Health.MODERATE, Health.GOOD)


_HEALTHS = (Health.GOOD, Health.MODERATE, Health.SEVERE, Health.UNKNOWN)


def _views(load: Load, targets: tuple[LatencyTarget, ...], expected_us: Floats) -> list[ExecutorView]:
    """All executors as examined; `expected_us` is NaN where not known.

    Health is StreamSwitch's (its section 3.3), with M/M/k in place of M/M/1. Without rows there is no l_i,
    and nothing that would be late.
    """
    limit_us = np.array([each.latency_us for each in targets])[load.operator]
    alert_us = np.array([each.alert_us for each in targets])[load.operator]
    margin = np.array([each.safety_margin for each in targets])[load.operator]
    health = (load.latency_us > alert_us).astype(np.int64) + (expected_us > limit_us)
    health[np.isnan(expected_us)] = 3
    return list(
        map(
            ExecutorView,
            [executor.name for executor in load.executors],
            _known(load.arrival_per_s),
            _known(load.service_per_s / (1 - margin)),
            _known(load.latency_us),
            _known(expected_us),
            [_HEALTHS[each] for each in health.tolist()],
        )
    )


def cores_of(executor: ExecutorSeen) -> Mapping[str, int]:
    """x_j: a schedule without nodes' cores has all of an executor's tasks at home."""
    return executor.cores or ({executor.node: executor.tasks} if executor.tasks else {})


def _core_milli(scope: Scope, operator: str) -> int:
    return max(1, round(scope.cores_of(operator) * MILLI))


def _known(values: Floats) -> list[float | None]:
    missing = np.isnan(values)
    if not missing.any():
        plain: list[float | None] = values.tolist()
        return plain
    return [
        None if is_missing else value
        for value, is_missing in zip(values.tolist(), missing.tolist(), strict=True)
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
