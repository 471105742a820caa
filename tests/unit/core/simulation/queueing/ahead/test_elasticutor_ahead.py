"""Elasticutor, the hybrid and a guard do the same whether looks are taken in at once or shown one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from penstock.control.decision import PolicyDecision
from penstock.control.elasticutor.policy import KEYED, Elasticutor, Settings, naive_ec
from penstock.control.guard import PAPER_RULES, Guard, GuardRules
from penstock.control.hybrid.policy import Hybrid
from penstock.control.policy import Policy, Watches
from penstock.control.snapshot import TopologySnapshot
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.ahead.looking_ahead import looking_ahead
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    InitialExecutor,
    Run,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run

SLOT_US = 100_000
TARGET = LatencyTarget(latency_us=500_000.0)
SHARDS = 16


class Asked:
    """Counts how often it is asked, and hides that the policy inside takes many looks in."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self.count = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        self.count += 1
        return self.inner.decide(snapshot)


class AskedSeldom(Asked):
    """The same, without hiding it."""

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self.ahead = looking_ahead(inner)

    def observe_many(self, series):  # type: ignore[no-untyped-def]
        assert self.ahead is not None
        return self.ahead.observe_many(series)


def scope(limits: TaskLimits) -> Scope:
    return Scope({"a": TARGET, "b": TARGET}, {"a": limits, "b": limits}, cores_max=20)


def hybrid(of: Scope) -> Hybrid:
    return Hybrid(of, Elasticutor(of), StreamSwitch(of))


POLICIES: dict[str, Callable[[Scope], Policy]] = {
    "elasticutor": Elasticutor,
    "naive": naive_ec,
    "end to end": lambda of: Elasticutor(of, Settings(end_to_end_us=60_000.0, release_after_us=1_000_000)),
    "data-intensive": lambda of: Elasticutor(of, Settings(threshold_bytes_per_s=30_000.0)),
    "hybrid": hybrid,
    "keyed": lambda of: Elasticutor(of, KEYED),
    "keyed hybrid": lambda of: Hybrid(of, Elasticutor(of, KEYED), StreamSwitch(of, one_at_a_time=True)),
    "guarded": lambda of: Guard(StreamSwitch(of), of, GuardRules(scale_in_after_us=3_000_000)),
    "guarded as in the papers": lambda of: Guard(StreamSwitch(of), of, PAPER_RULES),
}


def simulated(policy: Policy, seed: int, seconds: int, bytes_in: float) -> Run:
    """Two operators on three nodes, under loads that jump every few seconds."""
    random = np.random.default_rng(seed)
    level = np.repeat(random.uniform(50, 500, seconds // 4 + 1), 40)[: seconds * 10]
    skew = random.dirichlet(np.full(SHARDS, 1.0))
    rows = random.poisson(level[:, None] / 10 * skew)
    nodes = [f"n{i}" for i in range(3)]

    def operator(name: str, service_us: float) -> SimulatedOperator:
        return SimulatedOperator(
            name,
            SHARDS,
            service_us,
            tuple(InitialExecutor(f"{name}{i}", 2, node) for i, node in enumerate(nodes)),
            service=Service.EXPONENTIAL,
            start_delay_us=500_000,
            task_start_delay_us=100_000,
            switching=Switching(task_us_per_shard=2_000),
            bytes_in=bytes_in,
            state_bytes=1_000.0,
        )

    topology = SimulatedTopology(
        (operator("a", 8_000), operator("b", 5_000)), (Edge("a", "b"),), dict.fromkeys(nodes, 8), 1e7
    )
    arrivals = Arrivals(SLOT_US, {"a": rows})
    return run(topology, arrivals, policy, TARGET, np.random.default_rng(seed))


FURTHER_SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow(held_by="test_looks_at_once_lead_to_the_same_run"))
    for seed in (1, 2)
]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", [0, *FURTHER_SEEDS])
def test_looks_at_once_lead_to_the_same_run(name: str, seed: int) -> None:
    limits = TaskLimits(2, 12)
    bytes_in = 400.0 if name == "data-intensive" else 10.0
    plain, seldom = Asked(POLICIES[name](scope(limits))), AskedSeldom(POLICIES[name](scope(limits)))
    assert looking_ahead(plain) is None
    expected, found = (simulated(policy, seed, 60, bytes_in) for policy in (plain, seldom))
    # Looks at which nothing was done are left out of a run where the policy was not asked; figures in words
    # may differ in their last digits.
    acted, others = (
        [(each.at_us, each.operator, each.rule, each.actions) for each in one.decisions if each.actions]
        for one in (expected, found)
    )
    assert acted
    assert others == acted
    for operator in ("a", "b"):
        one, other = expected.operators[operator], found.operators[operator]
        assert np.array_equal(one.tasks, other.tasks)
        assert np.array_equal(one.latency_mean_us, other.latency_mean_us, equal_nan=True)
    assert seldom.count < plain.count


def test_most_looks_of_a_calm_hour_need_not_be_shown_one_by_one() -> None:
    for name, most in (("elasticutor", 0.1), ("hybrid", 0.25), ("guarded", 0.1)):
        rows = np.full((1200, SHARDS), 1)
        one = SimulatedOperator(
            "a", SHARDS, 8_000, (InitialExecutor("a0", 4, "n0"),), task_start_delay_us=100_000
        )
        topology = SimulatedTopology((one,), (), {"n0": 8})
        of = replace(scope(TaskLimits(2, 12)), targets={"a": TARGET})
        policy = AskedSeldom(POLICIES[name](of))
        run(topology, Arrivals(SLOT_US, {"a": rows}), policy, TARGET, np.random.default_rng(1))
        assert policy.count < most * len(rows)


def test_who_is_watched_only_remembers_as_if_it_had_decided() -> None:
    of = scope(TaskLimits(2, 12))
    assert isinstance(StreamSwitch(of), Watches)
    with_watch, without = hybrid(of), hybrid(of)
    slow = StreamSwitch(of)
    without._slow = Asked(slow)
    found, expected = (simulated(policy, 7, 60, 10.0) for policy in (with_watch, Asked(without)))
    assert [each.actions for each in found.decisions if each.actions] == [
        each.actions for each in expected.decisions if each.actions
    ]
