"""One step of Elasticutor's scheduler as decisions: what was seen, what is expected with and without, and
words. Neighbour: `policy` makes the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
from penstock.control.elasticutor.core_assignment import Assigned
from penstock.control.elasticutor.jackson import Allocation, Floats, sojourn_us
from penstock.control.elasticutor.load import Load
from penstock.control.elasticutor.plant import Plant
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot
from penstock.control.target import LatencyTarget


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
