"""StreamSwitch as a policy: every operator in scope is examined and diagnosed each delta (StreamSwitch, 2.2).

One unit strategy at a time and operator; none while a treatment is under way, none on an invalid state.
Neighbours: `examine` keeps the metrics, `diagnose` chooses; here it becomes a decision with its reason.
`guard` stands around it where scaling in is to be slow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from penstock.control.decision import (
    Action,
    AddExecutor,
    ExecutorView,
    Health,
    PolicyDecision,
    Prediction,
    Treatment,
)
from penstock.control.executor_names import CountingNames, NameExecutor
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.streamswitch.diagnose import (
    Diagnosis,
    Room,
    diagnose,
    worst_after_us,
)
from penstock.control.streamswitch.examination import Examination, Flags
from penstock.control.streamswitch.examine import Examiner
from penstock.control.streamswitch.reasons import alone, views_of, why, why_not
from penstock.control.streamswitch.unit_actions import actions_of
from penstock.control.target import LatencyTarget, Scope
from penstock.control.wording import counted, of_rate


class StreamSwitch:
    """See `Policy`. Executors have one task each here; where they have more, mu_i is that of all of them.

    New executors are named by `name_executor`, by default "<operator>-e1", "<operator>-e2", ..., none twice.
    With `one_at_a_time` a decision is one unit strategy, as section 3.1 has it.
    """

    def __init__(
        self, scope: Scope, name_executor: NameExecutor | None = None, *, one_at_a_time: bool = False
    ) -> None:
        self._scope = scope
        self._more_max = 1 if one_at_a_time else sys.maxsize
        self._targets = dict(scope.targets)
        self._examiners = {operator: Examiner(target) for operator, target in self._targets.items()}
        self._name_executor = name_executor or CountingNames()
        self._health = dict.fromkeys(self._targets, Health.UNKNOWN)

    @property
    def name(self) -> str:
        return "StreamSwitch"

    def retarget(self, targets: Mapping[str, LatencyTarget]) -> None:
        """Other targets for operators in scope, as when an end-to-end bound is split anew. What was seen
        stays unless window or interval changed. KeyError for an operator out of scope."""
        for operator, target in targets.items():
            old = self._targets[operator]
            self._targets[operator] = target
            if (old.window_us, old.interval_us) != (target.window_us, target.interval_us):
                self._examiners[operator] = Examiner(target)
            else:
                self._examiners[operator].retarget(target)

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator in scope, in the scope's order."""
        decisions: list[PolicyDecision] = []
        cores_free = self._cores_free(snapshot)
        for operator, target in self._targets.items():
            decision = self._decide(snapshot, operator, target, cores_free)
            asked = sum(isinstance(action, AddExecutor) for action in decision.actions)
            cores_free -= asked * self._scope.cores_of(operator)
            decisions.append(decision)
        return tuple(decisions)

    def watch(self, snapshot: TopologySnapshot) -> None:
        """See `Watches`."""
        for operator, examiner in self._examiners.items():
            seen = snapshot.operators.get(operator)
            if seen is not None:
                examiner.observe(snapshot.at_us, seen)

    def _cores_free(self, snapshot: TopologySnapshot) -> float:
        return self._scope.cores_allowed(snapshot.cores_max) - self._scope.cores_used(snapshot.tasks)

    def _decide(
        self, snapshot: TopologySnapshot, operator: str, target: LatencyTarget, cores_free: float
    ) -> PolicyDecision:
        seen = snapshot.operators.get(operator)
        if seen is None:
            return self._held(snapshot.at_us, operator, "the operator was not seen")
        examined = self._examiners[operator].observe(snapshot.at_us, seen)
        if seen.treatment:
            return PolicyDecision(
                at_us=snapshot.at_us,
                policy=self.name,
                operator=operator,
                treatment=Treatment.NONE,
                rule="treatment",
                reason="a treatment is under way",
                health=self._health[operator],
            )
        if examined.missing:
            return self._held(snapshot.at_us, operator, examined.missing)
        if math.isnan(examined.service_per_s[0]):
            return self._without_rates(examined, operator)
        diagnosis = diagnose(examined, target, self._room(operator, examined.tasks, cores_free))
        self._health[operator] = diagnosis.health
        return self._decision(operator, target, seen, examined, diagnosis)

    def _room(self, operator: str, tasks: tuple[int, ...], cores_free: float) -> Room:
        limits = self._scope.limits_of(operator)
        affordable = cores_free / self._scope.cores_of(operator) + 1e-9
        more = min(limits.max - sum(tasks), affordable, self._more_max)
        return Room(may_go=may_go(tasks, limits.min), more=max(math.floor(more), 0))

    # --- decisions ------------------------------------------------------------------------------------

    def _held(self, at_us: int, operator: str, missing: str) -> PolicyDecision:
        self._health[operator] = Health.UNKNOWN
        return PolicyDecision(
            at_us=at_us,
            policy=self.name,
            operator=operator,
            treatment=Treatment.HOLD,
            rule="missing-metrics",
            reason=f"nothing is decided: {missing}",
            health=Health.UNKNOWN,
            conditions={"MetricsUnavailable": missing},
        )

    def _without_rates(self, examined: Examination, operator: str) -> PolicyDecision:
        """No executor's service rate is known: nothing was worked on yet, or nobody tells of useful time."""
        if not examined.is_idle:
            return self._held(
                examined.at_us, operator, "rows arrive, and no executor's service rate is known"
            )
        self._health[operator] = Health.GOOD
        return PolicyDecision(
            at_us=examined.at_us,
            policy=self.name,
            operator=operator,
            treatment=Treatment.NONE,
            rule="idle",
            reason="nothing arrives, and no executor's service rate is known yet",
            health=Health.GOOD,
        )

    def _decision(
        self,
        operator: str,
        target: LatencyTarget,
        seen: OperatorSnapshot,
        examined: Examination,
        diagnosis: Diagnosis,
    ) -> PolicyDecision:
        views = views_of(examined, diagnosis)
        tasks = sum(examined.tasks)
        actions: tuple[Action, ...] = ()
        expected: Prediction | None = None
        if diagnosis.strategy is None:
            reason = why_not(examined, diagnosis, views, target, self._scope.limits.get(operator))
        else:
            actions, tasks_after = actions_of(operator, examined, diagnosis.strategies, self._name_executor)
            worst_us = worst_after_us(diagnosis.expected_us, diagnosis.strategies)
            expected = Prediction(worst_us, tasks_after)
            reason = why(examined, diagnosis, views, actions)
        return PolicyDecision(
            at_us=examined.at_us,
            policy=self.name,
            operator=operator,
            treatment=diagnosis.treatment,
            rule=diagnosis.rule,
            reason=reason,
            health=diagnosis.health,
            actions=actions,
            seen=views,
            without=Prediction(max(diagnosis.expected_us.tolist()), tasks),
            expected=expected,
            conditions=self._conditions(operator, target, examined, diagnosis, views)
            if diagnosis.health is Health.SEVERE
            else {},
        )

    def _conditions(
        self,
        operator: str,
        target: LatencyTarget,
        examined: Examination,
        diagnosis: Diagnosis,
        views: tuple[ExecutorView, ...],
    ) -> dict[str, str]:
        """What no decision can change."""
        found: list[str] = []
        limits = self._scope.limits_of(operator)
        arrival = float(examined.arrival_per_s.sum())
        served_at_max = float(examined.service_per_s.sum()) / sum(examined.tasks) * limits.max
        if arrival > served_at_max:
            found.append(
                f"{of_rate(arrival)} arrive, and {counted(limits.max, 'task')}, the most allowed, "
                f"serve {of_rate(served_at_max)}"
            )
        found += [
            alone(examined, executor, views[executor], target)
            for executor in diagnosis.incurable
            if not examined.stalled[executor]
        ]
        conditions = {"Infeasible": "; ".join(found)} if found else {}
        stalled = [name for name, stalls in zip(examined.executors, examined.stalled, strict=True) if stalls]
        if stalled:
            conditions["WorkStalled"] = f"rows wait at {', '.join(stalled)}, which completes none"
        return conditions


@lru_cache(maxsize=1024)
def may_go(tasks: tuple[int, ...], least: int) -> Flags:
    """By executor: whether without its tasks `least` are left."""
    return sum(tasks) - np.array(tasks) >= least
