"""One step of Elasticutor's scheduler as decisions: what was seen, what is expected with and without, and
words. Neighbour: `policy` makes the step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.control.decision import (
    Action,
    AssignCores,
    ExecutorView,
    Health,
    PolicyDecision,
    Prediction,
    Treatment,
)
from penstock.control.elasticutor.core_assignment import Assigned
from penstock.control.elasticutor.jackson import Allocation, Floats, sojourn_us
from penstock.control.elasticutor.load import Load
from penstock.control.elasticutor.plant import Plant
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot
from penstock.control.target import LatencyTarget
from penstock.control.wording import counted, in_time, of_rate


class Report:
    """Decisions of one step: what was seen, what is expected with and without, in words too."""

    def __init__(
        self,
        policy: str,
        load: Load,
        plant: Plant,
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
        before_us = _times_us(load, known, plant.totals, range(len(known)))
        after_us = before_us.copy()
        after_us[self._changed] = _times_us(load, known, after.totals, self._changed)
        self._before_us: list[float] = before_us.tolist()
        self._after_us: list[float] = after_us.tolist()
        self._views = _views(load, targets, np.where(known, before_us, np.nan), plant.totals)

    def decisions(self) -> Iterator[PolicyDecision]:
        """One an operator, in the order of the snapshot."""
        first = 0
        for index, operator in enumerate(self._load.operators):
            mine = range(first, first + len(operator.executors))
            first = mine.stop
            yield self._decision(index, operator, mine)

    def _decision(self, index: int, operator: OperatorSnapshot, mine: range) -> PolicyDecision:
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
        return PolicyDecision(
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
        allowed = f"{in_time(self._bound_us(index))} is allowed"
        latency_us = self._latency_us(index, mine)
        expects = "cannot keep up" if latency_us == math.inf else f"{in_time(latency_us)} is expected"
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
                f"{had} to {gets} cores, {counted(len(actions), 'executor')} changed: {expects}, {allowed}",
            )
        if self._load.filling[index]:
            return Treatment.HOLD, "no-window-yet", "rates are known once half a window has passed"
        if unknown:
            return Treatment.HOLD, "metrics-missing", f"no rates of {_some(unknown)}: they keep their cores"
        return Treatment.NONE, "enough-cores", f"{expects}, {allowed}"

    def _latency_us(self, index: int, mine: range) -> float:
        """What is expected with the cores that were found to be needed; where tasks have shards of their own,
        at the worst executor with those that it gets."""
        if not self._load.shard_loads:
            return self._allocation.latency_us[self._bound(index)]
        return max((self._after_us[j] for j in mine), default=0.0)

    def _infeasible(self, index: int, mine: range) -> str:
        """Why the bound cannot be met, or nothing."""
        bound = self._bound(index)
        latency_us = self._latency_us(index, mine)
        short = [self._load.executors[j].name for j in self._short if mine.start <= j < mine.stop]
        bound_words = in_time(self._bound_us(index))
        if self._load.shard_loads:
            if alone := self._alone(mine):
                return alone
        elif bound in self._allocation.unreachable:
            return f"serving alone takes longer than {bound_words}: no core helps"
        if latency_us > self._bound_us(index) and (short or not self._load.shard_loads):
            expects = "nobody catches up" if latency_us == math.inf else f"{in_time(latency_us)} is expected"
            return f"{expects} with all cores that limits and nodes allow, {bound_words} is allowed"
        return f"no core is left for {_some(short)}" if short else ""

    def _alone(self, mine: range) -> str:
        """Of executors that are late: a shard that alone asks for more than a task may be given."""
        for j in mine:
            view, load = self._views[j], self._load.shard_loads[j]
            if view.health is Health.SEVERE and load is not None and load.alone:
                return (
                    f"a shard of {view.name} asks for {of_rate(float(load.demand_per_s[0]))}, a task should "
                    f"get {of_rate(load.room_per_s)} at most: no core helps, a shard cannot be split"
                )
        return ""

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


def _times_us(
    load: Load, known: NDArray[np.bool_], totals: Sequence[int], executors: Sequence[int]
) -> Floats:
    """E[T] of `executors` with so many cores. Who gets nothing to do waits for nothing, whatever it has."""
    if load.shard_loads:
        loads = [(load.shard_loads[j], totals[j]) for j in executors]
        return np.array([0.0 if each is None else each.expected_us(cores) for each, cores in loads])
    some = np.array(executors, dtype=np.int64)
    arrival = np.where(known, load.demand_per_s, 0.0)[some]
    service = np.where(arrival > 0, load.service_per_s[some], 1.0)
    return np.where(arrival > 0, sojourn_us(arrival, service, np.array(totals)[some]), 0.0)


_WORST_FIRST = (Health.UNKNOWN, Health.SEVERE, Health.MODERATE, Health.GOOD)


_HEALTHS = (Health.GOOD, Health.MODERATE, Health.SEVERE, Health.UNKNOWN)


def _views(
    load: Load, targets: tuple[LatencyTarget, ...], expected_us: Floats, totals: Sequence[int]
) -> list[ExecutorView]:
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
            _known(load.service_per_s / (1 - margin) * totals),
            _known(load.latency_us),
            _known(expected_us),
            [_HEALTHS[each] for each in health.tolist()],
            totals,
        )
    )


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
