"""DRS and DRS-LB: the M/M/k model by hand, one executor at a time, StreamSwitch's migrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from penstock.control.baselines.drs import Drs, executors_needed, is_least
from penstock.control.decision import (
    AddExecutor,
    Health,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.ahead.looking_ahead import looking_ahead
from penstock.simulation.queueing.model import (
    Arrivals,
    InitialExecutor,
    Pauses,
    Run,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run

MU = 600.0
SLOT_US = 100_000


def scope(latency_us: float = 1e6, epsilon: float = 0.0, most: int = 64, cores: float | None = None) -> Scope:
    target = LatencyTarget(latency_us, safety_margin=epsilon)
    return Scope({"match": target}, {"match": TaskLimits(1, most)}, cores_max=cores)


def seen(
    at_us: int, rates: Mapping[str, float], assignment: Mapping[str, str], latency_us: float
) -> OperatorSnapshot:
    """Every shard has had its rate from time zero on, worked off at MU; rows had `latency_us` each."""
    names = list(dict.fromkeys(assignment.values()))
    samples: dict[str, ShardSample | None] = {}
    for shard, rate in rates.items():
        rows = int(rate * at_us / 1e6)
        served_us = rows * 1e6 / MU
        samples[shard] = ShardSample(
            rows, rows, waited_us=rows * latency_us - served_us, served_us=served_us, busy_us=served_us
        )
    executors = tuple(ExecutorSeen(name, 1, 1) for name in names)
    return OperatorSnapshot("match", executors, dict(assignment), samples)


def last_decision(
    policy: Drs, rates: Mapping[str, float], assignment: Mapping[str, str], latency_us: float = 5_000
) -> PolicyDecision:
    """After two seconds of a steady load."""
    decisions: tuple[PolicyDecision, ...] = ()
    for slot in range(1, 21):
        operator = seen(slot * SLOT_US, rates, assignment, latency_us)
        # Carried out by nobody: as if a treatment were under way until the last look.
        operator = replace(operator, treatment=slot < 20)
        decisions = policy.decide(TopologySnapshot(slot * SLOT_US, {"match": operator}))
    (decision,) = decisions
    return decision


def evenly(shards: int, total_per_s: float) -> dict[str, float]:
    return {f"match/{k}": total_per_s / shards for k in range(shards)}


def spread(shards: int, executors: int) -> dict[str, str]:
    return {f"match/{k}": f"e{k % executors}" for k in range(shards)}


@pytest.mark.parametrize(
    ("latency_us", "needed"),
    [
        # lambda = 1000/s, mu = 600/s, a = 5/3. Erlang B by its recursion: B(1) = 0.625, B(2) = 0.342466,
        # B(3) = 0.159847, B(4) = 0.062444. C(k) = k B / (k - a (1 - B)); E[T] = C / (k mu - lambda) + 1 / mu:
        # k = 2: 0.757576 / 200 + 1/600 = 5.4545 ms; k = 3: 2.0414 ms; k = 4: 1.7399 ms; k = 1 never catches
        # up.
        (5_455, 2),
        (5_454, 3),
        (2_042, 3),
        (2_041, 4),
        # No k brings it below 1 / mu = 1.667 ms.
        (1_666, None),
    ],
)
def test_the_model_wants_the_least_k_of_drs_program_6(latency_us: float, needed: int | None) -> None:
    assert executors_needed(1_000, MU, latency_us, 64) == needed


@pytest.mark.parametrize("servers", range(1, 9))
def test_a_number_is_the_least_where_the_model_would_answer_it(servers: int) -> None:
    arrivals = np.array([0.0, 10.0, 590.0, 1_000.0, 2_500.0, 4_000.0])
    expected = [executors_needed(arrival, MU, 5_000, 64) == servers for arrival in arrivals.tolist()]
    assert is_least(arrivals, np.full(6, MU), 5_000, servers).tolist() == expected


def test_a_load_beyond_the_most_executors_is_not_met() -> None:
    assert executors_needed(1_000, MU, 1e6, 1) is None


def test_nothing_arriving_needs_one_executor() -> None:
    assert executors_needed(0.0, MU, 1e6, 64) == 1


def test_the_safety_margin_is_put_into_the_service_rate() -> None:
    # StreamSwitch 6.1: (1 - 0.4) mu = 360/s; 1000/s are more than 2 x 360 and less than 3 x 360.
    decision = last_decision(Drs(scope(epsilon=0.4)), evenly(8, 1_000), spread(8, 2))
    assert decision.treatment is Treatment.SCALE_OUT
    assert "ask for 3 executors, 2 are there" in decision.reason
    assert last_decision(Drs(scope()), evenly(8, 1_000), spread(8, 2)).treatment is Treatment.NONE


def test_a_scale_out_splits_the_most_loaded_executor_though_none_is_severe() -> None:
    rates = {"match/0": 200.0, "match/1": 200.0, "match/2": 180.0, "match/3": 300.0, "match/4": 300.0}
    assignment = {"match/0": "e0", "match/1": "e0", "match/2": "e0", "match/3": "e1", "match/4": "e1"}
    decision = last_decision(Drs(scope(epsilon=0.2)), rates, assignment)
    assert decision.treatment is Treatment.SCALE_OUT
    added, move = decision.actions
    assert isinstance(added, AddExecutor)
    assert isinstance(move, MoveShards)
    assert (move.source, move.destination) == ("e1", added.name)
    assert len(move.shards) == 1
    assert decision.expected is not None
    assert decision.expected.tasks == 3


def test_a_model_that_asks_for_two_more_gets_them_at_once_as_far_as_the_budget_goes() -> None:
    # 1 700/s at 480/s an executor: 4, from two executors of 850/s each.
    decision = last_decision(Drs(scope(epsilon=0.2)), evenly(12, 1_700), spread(12, 2))
    moves = [action for action in decision.actions if isinstance(action, MoveShards)]
    assert sorted(move.source for move in moves) == ["e0", "e1"]
    assert [len(move.shards) for move in moves] == [3, 3]
    assert decision.expected is not None
    assert decision.expected.tasks == 4
    some = last_decision(Drs(scope(epsilon=0.2, cores=3)), evenly(12, 1_700), spread(12, 2))
    assert sum(isinstance(action, AddExecutor) for action in some.actions) == 1


def test_a_scale_in_merges_the_two_that_are_least_loaded_together() -> None:
    rates = {"match/0": 250.0, "match/1": 30.0, "match/2": 100.0, "match/3": 40.0}
    assignment = {"match/0": "e0", "match/1": "e1", "match/2": "e2", "match/3": "e3"}
    decision = last_decision(Drs(scope()), rates, assignment)
    assert decision.treatment is Treatment.SCALE_IN
    move, removed = decision.actions
    assert isinstance(move, MoveShards)
    assert isinstance(removed, RemoveExecutor)
    assert {move.source, move.destination} == {"e1", "e3"}
    assert removed.name == move.source


def test_a_scale_in_is_carried_out_even_where_it_overloads_an_executor() -> None:
    # 1000/s ask for two of three executors, and any two of these together are more than one can do.
    rates = {"match/0": 333.0, "match/1": 333.0, "match/2": 334.0}
    assignment = {"match/0": "e0", "match/1": "e1", "match/2": "e2"}
    decision = last_decision(Drs(scope()), rates, assignment)
    assert decision.treatment is Treatment.SCALE_IN
    assert decision.expected is not None
    assert decision.expected.latency_us == float("inf")


def test_drs_does_not_see_skew_and_drs_lb_balances_it() -> None:
    rates = {f"match/{k}": 190.0 for k in range(5)} | {"match/5": 50.0}
    assignment = {f"match/{k}": "e0" for k in range(5)} | {"match/5": "e1"}
    plain = last_decision(Drs(scope()), rates, assignment, latency_us=300_000)
    assert (plain.treatment, plain.health) == (Treatment.NONE, Health.SEVERE)
    balanced = last_decision(Drs(scope(), balances_load=True), rates, assignment, latency_us=300_000)
    assert balanced.treatment is Treatment.LOAD_BALANCE
    (move,) = balanced.actions
    assert isinstance(move, MoveShards)
    assert (move.source, move.destination, len(move.shards)) == ("e0", "e1", 2)


def test_drs_lb_leaves_alone_what_is_not_severe() -> None:
    rates = {"match/0": 290.0, "match/1": 290.0, "match/2": 100.0}
    assignment = {"match/0": "e0", "match/1": "e0", "match/2": "e1"}
    decision = last_decision(Drs(scope(), balances_load=True), rates, assignment)
    assert decision.treatment is Treatment.NONE


def test_drs_lb_scales_before_it_balances() -> None:
    rates = {f"match/{k}": 300.0 for k in range(5)} | {"match/5": 50.0}
    assignment = {f"match/{k}": "e0" for k in range(5)} | {"match/5": "e1"}
    decision = last_decision(Drs(scope(), balances_load=True), rates, assignment, latency_us=300_000)
    assert decision.treatment is Treatment.SCALE_OUT


def test_a_missing_metric_holds() -> None:
    policy = Drs(scope())
    for slot in range(1, 21):
        operator = seen(slot * SLOT_US, evenly(4, 5_000), spread(4, 2), 5_000)
        if slot == 20:
            operator = replace(operator, samples={**operator.samples, "match/2": None})
        (decision,) = policy.decide(TopologySnapshot(slot * SLOT_US, {"match": operator}))
    assert decision.treatment is Treatment.HOLD
    assert decision.actions == ()
    assert "MetricsUnavailable" in decision.conditions


def test_nothing_is_decided_while_a_treatment_is_under_way() -> None:
    policy = Drs(scope())
    for slot in range(1, 21):
        operator = replace(seen(slot * SLOT_US, evenly(4, 5_000), spread(4, 2), 5_000), treatment=True)
        (decision,) = policy.decide(TopologySnapshot(slot * SLOT_US, {"match": operator}))
    assert decision.treatment is Treatment.NONE


def test_a_load_that_the_limit_cannot_serve_is_said_and_served_as_well_as_can_be() -> None:
    decision = last_decision(Drs(scope(most=3)), evenly(12, 5_000), spread(12, 2))
    assert decision.treatment is Treatment.SCALE_OUT
    assert "Infeasible" in decision.conditions
    decision = last_decision(Drs(scope(most=2)), evenly(12, 5_000), spread(12, 2))
    assert decision.treatment is Treatment.NONE
    assert "Infeasible" in decision.conditions


def test_a_spent_budget_holds() -> None:
    decision = last_decision(Drs(scope(cores=2)), evenly(12, 1_700), spread(12, 2))
    assert (decision.treatment, decision.rule) == (Treatment.HOLD, "cannot-scale-out")
    assert "budget" in decision.reason


class OneByOne:
    """A policy that is shown every look by itself."""

    def __init__(self, policy: Drs) -> None:
        self.name = policy.name
        self.decide = policy.decide


def simulated(policy: Drs | OneByOne, seed: int) -> Run:
    """Two minutes of a load that swings and is skewed."""
    random = np.random.default_rng(seed)
    per_slot = 60 + 40 * np.sin(np.arange(1_200) / 95)[:, None] * np.ones(12)
    shares = np.arange(1, 13) / np.arange(1, 13).sum()
    operator = SimulatedOperator(
        "match",
        12,
        1e6 / MU,
        (InitialExecutor("e0"), InitialExecutor("e1")),
        start_delay_us=300_000,
        switching=Switching(fixed_us=200_000, pauses=Pauses.EXECUTORS),
    )
    arrivals = Arrivals(SLOT_US, {"match": random.poisson(per_slot * shares)})
    target = LatencyTarget(1e6, safety_margin=0.2)
    return run(SimulatedTopology((operator,)), arrivals, policy, target, np.random.default_rng(seed))


@pytest.mark.parametrize("balances_load", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_looks_at_once_lead_to_the_same_run(balances_load: bool, seed: int) -> None:
    make = partial(Drs, scope(epsilon=0.2), balances_load=balances_load)
    assert looking_ahead(make()) is not None
    at_once, one_by_one = simulated(make(), seed), simulated(OneByOne(make()), seed)
    assert len(at_once.decisions) > 5
    assert [d.actions for d in at_once.decisions] == [d.actions for d in one_by_one.decisions]
    assert at_once.success_rate == one_by_one.success_rate
