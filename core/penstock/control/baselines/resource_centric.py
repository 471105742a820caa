"""Resource-centric elasticity: the baseline that Elasticutor is compared with (Wang et al., SIGMOD 2019,
sections 1, 2.2 and 5).

An executor is one task on one core, and the key space of an operator is partitioned anew over them: from
loaded executors to lighter ones, or to executors that are created. "RC uses the same performance model, load
balancing algorithm [...] as Elasticutor": k of an operator is that of an M/M/k system of its rates
(`jackson`), and shards are balanced by section 3.1's rounds (`intra_executor_balance`), here over executors,
with its theta. What makes it slow, the synchronization of all upstream executors and the pause of the
operator, is a matter of who carries the decision out: its treatment is REPARTITION.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.decision import (
    Action,
    AddExecutor,
    ExecutorView,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.elasticutor.intra_executor_balance import THETA, Balance, rebalance
from penstock.control.elasticutor.jackson import Bound, Network, Part, allocate, sojourn_us
from penstock.control.samples.sample_table import NOBODY, Floats
from penstock.control.samples.shard_rates import ExecutorRates, OperatorLook, ServiceMemory, ShardRates
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.control.target import Scope

MILLI = 1000
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Settings:
    """`window_us` and `every_us` are section 3.1's: the workload of a sliding second, looked at every 0.5 s.
    `remove_after_us`: how long an operator must have had too many executors before one goes."""

    window_us: int = 1_000_000
    every_us: int = 500_000
    remove_after_us: int = 5_000_000
    theta: float = THETA

    def __post_init__(self) -> None:
        if self.window_us <= 0 or self.every_us < 0 or self.remove_after_us < 0 or self.theta < 1:
            raise ValueError(f"settings out of range: {self}")


@dataclass(frozen=True, slots=True)
class _Measured:
    look: OperatorLook
    by_executor: ExecutorRates


class ResourceCentric:
    """A policy. Remembers samples of a window, when it last looked, and since when an operator has had too
    much."""

    def __init__(self, scope: Scope, settings: Settings | None = None) -> None:
        self._scope = scope
        self._settings = settings or Settings()
        self._rates: dict[str, ShardRates] = {}
        self._service: dict[str, ServiceMemory] = {}
        self._looked_us: dict[str, int] = {}
        self._surplus: dict[str, tuple[int, int]] = {}

    @property
    def name(self) -> str:
        """As users name it."""
        return "resource-centric"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        """One decision an operator in scope."""
        operators = [each for name, each in snapshot.operators.items() if name in self._scope.targets]
        measured = {}
        for each in operators:
            rates = self._rates.setdefault(each.operator, ShardRates(self._settings.window_us))
            look = rates.observe(snapshot.at_us, each)
            memory = self._service.setdefault(each.operator, ServiceMemory())
            measured[each.operator] = _Measured(look, memory.rates([look]))
        needed = self._needed(snapshot, operators, measured)
        return tuple(
            self._decision(snapshot, each, measured[each.operator], needed[each.operator])
            for each in operators
        )

    def _needed(
        self,
        snapshot: TopologySnapshot,
        operators: Sequence[OperatorSnapshot],
        measured: dict[str, _Measured],
    ) -> dict[str, int]:
        """k of each operator: the Jackson network with operators for executors."""
        if not operators:
            return {}
        arrival, service, fixed, parts, bounds = [], [], [], [], []
        for index, each in enumerate(operators):
            lambda_, mu = _rates_of(measured[each.operator])
            target = self._scope.targets[each.operator]
            limits = self._scope.limits.get(each.operator)
            known = lambda_ == 0 or (lambda_ > 0 and mu > 0)
            arrival.append(lambda_ if known else 0.0)
            service.append(mu * (1 - target.safety_margin) if known and lambda_ > 0 else 1.0)
            fixed.append(-1 if known and not each.treatment else len(each.executors))
            bounds.append(Bound(target.latency_us, arrival[-1]))
            parts.append(
                Part(
                    bound=index,
                    cores_min=limits.min if limits else 0,
                    cores_max=limits.max if limits else _UNLIMITED,
                    core_milli=max(1, round(self._scope.cores_of(each.operator) * MILLI)),
                )
            )
        budget = sum(snapshot.nodes.values()) * MILLI if snapshot.nodes else math.inf
        if self._scope.cores_max is not None:
            budget = min(budget, self._scope.cores_max * MILLI)
        network = Network(
            np.array(arrival),
            np.array(service),
            np.arange(len(operators)),
            np.array(fixed),
            np.array([len(measured[each.operator].look.shards.names) for each in operators]),
            tuple(parts),
            tuple(bounds),
        )
        cores = allocate(network, budget).cores.tolist()
        return {each.operator: count for each, count in zip(operators, cores, strict=True)}

    def _decision(
        self, snapshot: TopologySnapshot, operator: OperatorSnapshot, measured: _Measured, needed: int
    ) -> PolicyDecision:
        at_us = snapshot.at_us
        lambda_, mu = _rates_of(measured)
        conditions: dict[str, str] = {}
        actions: tuple[Action, ...] = ()
        treatment = Treatment.NONE
        latency_us = self._expected_us(operator, lambda_, mu, len(operator.executors))
        expected = None
        if operator.treatment:
            self._surplus.pop(operator.operator, None)
            rule, reason = "treatment-under-way", "nothing is decided while shards still move"
        elif measured.look.filling:
            treatment, rule = Treatment.HOLD, "no-window-yet"
            reason = "rates are known once half a window has passed"
        elif latency_us is None:
            treatment, rule, reason = Treatment.HOLD, "metrics-missing", "not all shards' rates are known"
            conditions["MetricsUnavailable"] = reason
        elif (
            at_us - self._looked_us.get(operator.operator, -self._settings.every_us) < self._settings.every_us
        ):
            rule, reason = "not-its-turn", f"it is looked every {self._settings.every_us / 1e6:g} s"
        else:
            self._looked_us[operator.operator] = at_us
            count = self._count(at_us, operator, needed)
            rule, reason, actions = self._repartition(snapshot, operator, measured, count)
            if actions:
                treatment = Treatment.REPARTITION
                after_us = self._expected_us(operator, lambda_, mu, count)
                expected = None if after_us is None else Prediction(after_us, count)
        return PolicyDecision(
            at_us=at_us,
            policy=self.name,
            operator=operator.operator,
            treatment=treatment,
            rule=rule,
            reason=reason,
            health=self._health(operator, latency_us),
            actions=actions,
            seen=_seen(measured, self._health(operator, latency_us)),
            without=None if latency_us is None else Prediction(latency_us, operator.tasks),
            expected=expected,
            conditions=conditions,
        )

    def _expected_us(self, operator: OperatorSnapshot, lambda_: float, mu: float, count: int) -> float | None:
        """E[T] of the operator as one M/M/k system, which balanced executors come close to."""
        if lambda_ == 0:
            return 0.0
        if not (lambda_ > 0 and mu > 0):
            return None
        service = mu * (1 - self._scope.targets[operator.operator].safety_margin)
        return float(sojourn_us(np.array([lambda_]), np.array([service]), np.array([count]))[0])

    def _health(self, operator: OperatorSnapshot, latency_us: float | None) -> Health:
        if latency_us is None:
            return Health.UNKNOWN
        return (
            Health.SEVERE if latency_us > self._scope.targets[operator.operator].latency_us else Health.GOOD
        )

    def _count(self, at_us: int, operator: OperatorSnapshot, needed: int) -> int:
        """Executors from now on: more at once, fewer after the most that was needed has been less for
        long."""
        now = len(operator.executors)
        if needed >= now:
            self._surplus.pop(operator.operator, None)
            return needed
        since_us, most = self._surplus.get(operator.operator, (at_us, needed))
        most = max(most, needed)
        if at_us - since_us < self._settings.remove_after_us:
            self._surplus[operator.operator] = (since_us, most)
            return now
        self._surplus.pop(operator.operator, None)
        return most

    def _repartition(
        self, snapshot: TopologySnapshot, operator: OperatorSnapshot, measured: _Measured, count: int
    ) -> tuple[str, str, tuple[Action, ...]]:
        """(rule, reason, actions): the executors, then every shard that goes to another one, then who is left
        over."""
        look = measured.look
        work = look.work()
        now = [executor.name for executor in operator.executors]
        loads = np.bincount(look.owner[look.owner != NOBODY], work[look.owner != NOBODY], len(now)).tolist()
        # Who has least to do goes: fewest keys change their place.
        leaving = sorted(range(len(now)), key=lambda j: (loads[j], -j))[: max(0, len(now) - count)]
        gone = tuple(now[j] for j in sorted(leaving))
        new = _new_names(operator.operator, now, count - len(now))
        executors = [name for name in now if name not in gone] + list(new)
        if not executors:
            return "no-executor", "limits allow no executor", ()
        load = {
            name: None if math.isnan(value) else value
            for name, value in zip(look.shards.names, work.tolist(), strict=True)
        }
        balance = rebalance(look.shards.names, operator.assignment, executors, load, self._settings.theta)
        moves = _moves(balance)
        actions: tuple[Action, ...] = (
            *(AddExecutor(name, 1, node) for name, node in zip(new, _nodes(snapshot, len(new)), strict=True)),
            *moves,
            *(RemoveExecutor(name) for name in gone),
        )
        if new or gone:
            rule = "executors-added" if new else "executors-removed"
            reason = f"{len(now)} to {count} executors, {len(balance.moves)} shards move; {balance.reason}"
        else:
            rule = "key-space-balanced" if moves else "balanced"
            reason = balance.reason
        return rule, reason, actions


def _rates_of(measured: _Measured) -> tuple[float, float]:
    """lambda and mu (of one core) of an operator; NaN where not known. An executor that completes nothing
    says nothing of mu; one that is not known makes the operator unknown."""
    each = measured.by_executor
    lambda_ = float(each.arrival_per_s.sum())
    told = np.isfinite(each.service_per_s)
    busy = np.where(told & (each.arrival_per_s > 0), each.arrival_per_s / each.service_per_s, 0.0)
    unknown = (each.arrival_per_s > 0) & ~told
    if bool(unknown.any()) or math.isnan(lambda_):
        return math.nan, math.nan
    demand = float(busy.sum())
    return lambda_, lambda_ / demand if demand > 0 else math.nan


def _seen(measured: _Measured, health: Health) -> tuple[ExecutorView, ...]:
    each = measured.by_executor

    def known(values: Floats) -> list[float | None]:
        return [None if math.isnan(value) else value for value in values.tolist()]

    columns = (known(each.arrival_per_s), known(each.service_per_s), known(each.latency_us))
    return tuple(
        ExecutorView(name, arrival, service, latency, None, health)
        for name, arrival, service, latency in zip(measured.look.executors, *columns, strict=True)
    )


def _moves(balance: Balance[str]) -> tuple[MoveShards, ...]:
    """Moves of single shards, put together by (from, to); a shard without executor is placed by who starts
    it."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for shard, source, destination in balance.moves:
        if source is not None:
            grouped.setdefault((source, destination), []).append(shard)
    return tuple(MoveShards(tuple(shards), *pair) for pair, shards in grouped.items())


def _new_names(operator: str, taken: Sequence[str], count: int) -> tuple[str, ...]:
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"{operator}-{number}"
        if name not in taken:
            names.append(name)
        number += 1
    return tuple(names)


def _nodes(snapshot: TopologySnapshot, count: int) -> list[str | None]:
    """Where new executors go: each to the node with most cores that nobody has; anywhere if no node is
    known."""
    free = dict(snapshot.nodes)
    for operator in snapshot.operators.values():
        for executor in operator.executors:
            if executor.node in free:
                free[executor.node] -= executor.tasks
    chosen: list[str | None] = []
    for _ in range(count):
        node = max(free, key=lambda name: free[name]) if free else None
        if node is not None:
            free[node] -= 1
        chosen.append(node)
    return chosen
