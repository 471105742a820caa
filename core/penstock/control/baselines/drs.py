"""DRS and DRS-LB, the adapting baselines of StreamSwitch's evaluation (section 6).

DRS (Fu et al., ICDCS 2015) sees an operator as one M/M/k queue: k is the least number of executors whose
expected sojourn time is within L. As in StreamSwitch 6.1 the safety margin is put into the service rate, (1 -
epsilon) mu. DRS says how many executors, not which shards they run; so each step of its scaling is
StreamSwitch's optimal unit strategy. DRS-LB adds StreamSwitch's load balance whenever DRS does not scale.

What the papers leave open:
- lambda is the operator's arrival rate over the window, mu the mean of its executors', as StreamSwitch
  examines them: the queue of the model has one rate for all.
- Scaling out goes to the model's k at once, as StreamSwitch does here: side by side, each a unit strategy of
  another source. Sources are the executors with the most pressure, severe or not, since the model has no
  severity. Scaling in goes by one executor at a time.
- A scale-in is carried out even where it overloads the executor that is left with both loads: the model does
  not see single executors. Of all pairs the best one is taken.
- There is no threshold and no cool-down: none is described.

Neighbours: `examine` measures, `diagnose` has the migrations, `jackson` the M/M/k formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from penstock.control.decision import (
    AddExecutor,
    ExecutorView,
    Health,
    PolicyDecision,
    Prediction,
    Treatment,
)
from penstock.control.elasticutor.jackson import sojourn_us
from penstock.control.executor_names import CountingNames, NameExecutor
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.streamswitch.diagnose import (
    Diagnosis,
    Room,
    Strategy,
    capacity_per_s,
    diagnose,
    find_scale_out,
    least_merges,
    merge,
    pressure,
    worst_after_us,
)
from penstock.control.streamswitch.examination import Examination, Flags, Floats
from penstock.control.streamswitch.examine import Examiner
from penstock.control.streamswitch.unit_actions import actions_of
from penstock.control.target import LatencyTarget, Scope, TaskLimits


def executors_needed(arrival_per_s: float, capacity: float, latency_us: float, most: int) -> int | None:
    """The least k <= `most` with E[T](k) <= L in an M/M/k queue of servers of `capacity` rows per second
    each.

    None if no k up to `most` is enough: the service alone takes longer than L, or the load is too high.
    DRS, program (6), for one operator.
    """
    servers = np.arange(1, most + 1)
    times_us = sojourn_us(np.full(most, arrival_per_s), np.full(most, capacity), servers)
    enough = np.flatnonzero(times_us <= latency_us)
    return int(servers[enough[0]]) if enough.size else None


def is_least(arrival_per_s: Floats, capacity: Floats, latency_us: float, servers: int) -> Flags:
    """Whether `servers` is what `executors_needed` answers: enough, and one fewer is not; elementwise."""
    size = arrival_per_s.shape
    enough = sojourn_us(arrival_per_s, capacity, np.full(size, servers)) <= latency_us
    if servers == 1:
        return enough
    fewer: Flags = sojourn_us(arrival_per_s, capacity, np.full(size, servers - 1)) > latency_us
    return enough & fewer


def find_merge(seen: Examination, capacity: Floats) -> Strategy | None:
    """All shards of s to d such that the pressures of those left, from the worst down, are the least in
    lexicographic order: Algorithm 1 of StreamSwitch, without asking whether the operator stays good. None for
    one executor. Ties: the first pair."""
    count = len(seen.arrival_per_s)
    sources, destinations = np.divmod(np.arange(count * count), count)
    sources, destinations = sources[sources != destinations], destinations[sources != destinations]
    if not sources.size:
        return None
    best = least_merges(seen, capacity, sources, destinations)[0]
    return merge(seen, capacity, int(sources[best]), int(destinations[best]))


@dataclass(slots=True)
class _Operator:
    """What is remembered of one operator."""

    target: LatencyTarget
    limits: TaskLimits
    examiner: Examiner = field(init=False)

    def __post_init__(self) -> None:
        self.examiner = Examiner(self.target)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to be done about one operator, before it is put into actions."""

    treatment: Treatment
    rule: str
    reason: str
    strategies: tuple[Strategy, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()


class Drs:
    """DRS; with `balances_load` DRS-LB. One task an executor."""

    def __init__(
        self, scope: Scope, name_executor: NameExecutor | None = None, *, balances_load: bool = False
    ) -> None:
        self._scope = scope
        self._name_executor = name_executor or CountingNames()
        self._balances_load = balances_load
        self._operators = {
            operator: _Operator(target, scope.limits_of(operator))
            for operator, target in scope.targets.items()
        }

    @property
    def name(self) -> str:
        return "DRS-LB" if self._balances_load else "DRS"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator in scope."""
        spent, most = self._scope.cores_used(snapshot.tasks), self._scope.cores_max
        decisions = []
        for name, operator in self._operators.items():
            if (seen := snapshot.operators.get(name)) is not None:
                core = self._scope.cores_of(name)
                affordable = math.inf if most is None else (most - spent) / core + 1e-9
                decision = self._one(snapshot.at_us, operator, seen, affordable)
                spent += core * _added(decision)
                decisions.append(decision)
        return tuple(decisions)

    def _one(
        self, at_us: int, operator: _Operator, seen: OperatorSnapshot, affordable: float
    ) -> PolicyDecision:
        examined = operator.examiner.observe(at_us, seen)
        if seen.treatment:
            busy = _Verdict(Treatment.NONE, "treatment", "a treatment is under way")
            return self._decision(at_us, seen, busy, examined, None)
        missing = examined.missing
        if not missing and np.isnan(examined.service_per_s).any():
            missing = "no row has been worked on yet, so that no service rate is known"
        if missing:
            conditions = (("MetricsUnavailable", missing),)
            told = f"nothing is decided: {missing}"
            unknown = _Verdict(Treatment.HOLD, "missing-metrics", told, conditions=conditions)
            return self._decision(at_us, seen, unknown, examined, None)
        no_room = Room(may_go=np.zeros(len(examined.executors), np.bool_), more=0)
        diagnosis = diagnose(examined, operator.target, no_room)
        verdict = self._verdict(operator, examined, diagnosis, affordable)
        return self._decision(at_us, seen, verdict, examined, diagnosis)

    def _verdict(
        self, operator: _Operator, examined: Examination, diagnosis: Diagnosis, affordable: float
    ) -> _Verdict:
        """Scale towards the model's k; else, as DRS-LB, balance."""
        target, limits = operator.target, operator.limits
        has = len(examined.executors)
        capacity = capacity_per_s(examined.service_per_s, target.safety_margin)
        arrival, mean_capacity = float(examined.arrival_per_s.sum()), float(capacity.mean())
        most = min(limits.max, max(len(examined.shards), has))
        needed: int | None = has
        if not is_least(np.array([arrival]), np.array([mean_capacity]), target.latency_us, has)[0]:
            needed = executors_needed(arrival, mean_capacity, target.latency_us, most)
        wanted = max(limits.min, most if needed is None else needed)
        said = f"{arrival:.0f} rows/s at {mean_capacity:.0f} rows/s an executor ask for "
        said += f"more than {most}" if needed is None else f"{needed}"
        said += f" executors, {has} are there"
        conditions = (("Infeasible", said),) if needed is None else ()
        if wanted > has:
            load = np.where(examined.stalled, math.inf, pressure(examined.arrival_per_s, capacity))
            outs: list[Strategy] = []
            for source in np.argsort(-load, kind="stable").tolist():
                if len(outs) + 1 <= min(wanted - has, affordable):
                    out = find_scale_out(examined, source, capacity)
                    outs += () if out is None else (out,)
            if outs:
                return _Verdict(Treatment.SCALE_OUT, "model-asks-for-more", said, tuple(outs), conditions)
            lacking = "no split of an executor helps" if affordable >= 1 else "the budget is spent"
            why = f"{said}; {lacking}"
            rest = _Verdict(Treatment.HOLD, "cannot-scale-out", why, (), conditions)
        elif wanted < has and (merged := find_merge(examined, capacity)) is not None:
            return _Verdict(Treatment.SCALE_IN, "model-asks-for-less", said, (merged,), conditions)
        else:
            rest = _Verdict(Treatment.NONE, "model-is-content", said, (), conditions)
        if self._balances_load and diagnosis.treatment is Treatment.LOAD_BALANCE:
            return _Verdict(Treatment.LOAD_BALANCE, diagnosis.rule, said, diagnosis.strategies, conditions)
        return rest

    def _decision(
        self,
        at_us: int,
        seen: OperatorSnapshot,
        verdict: _Verdict,
        examined: Examination,
        diagnosis: Diagnosis | None,
    ) -> PolicyDecision:
        strategies = verdict.strategies
        actions, after = actions_of(seen.operator, examined, strategies, self._name_executor)
        return PolicyDecision(
            at_us=at_us,
            policy=self.name,
            operator=seen.operator,
            treatment=verdict.treatment,
            rule=verdict.rule,
            reason=verdict.reason,
            health=Health.UNKNOWN if diagnosis is None else diagnosis.health,
            actions=actions,
            seen=() if diagnosis is None else _views(examined, diagnosis),
            without=None if diagnosis is None else Prediction(_worst(diagnosis.expected_us), seen.tasks),
            expected=None
            if diagnosis is None or not strategies
            else Prediction(worst_after_us(diagnosis.expected_us, strategies), after),
            conditions=dict(verdict.conditions),
        )


def _views(examined: Examination, diagnosis: Diagnosis) -> tuple[ExecutorView, ...]:
    return tuple(
        ExecutorView(
            name=name,
            arrival_per_s=float(examined.arrival_per_s[i]),
            service_per_s=float(examined.service_per_s[i]),
            instantaneous_us=float(examined.instantaneous_us[i]),
            expected_us=float(diagnosis.expected_us[i]),
            health=Health.SEVERE
            if diagnosis.is_severe[i]
            else (Health.GOOD if diagnosis.is_good[i] else Health.MODERATE),
        )
        for i, name in enumerate(examined.executors)
    )


def _worst(expected_us: Floats) -> float:
    return float(expected_us.max(initial=0.0))


def _added(decision: PolicyDecision) -> int:
    """How many tasks more there are after it."""
    return sum(isinstance(action, AddExecutor) for action in decision.actions)
