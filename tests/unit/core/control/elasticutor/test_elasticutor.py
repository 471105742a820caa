"""Elasticutor: cores by load, where they come from and go to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.decision import AssignCores, Health, PolicyDecision, Treatment
from penstock.control.elasticutor.core_assignment import THRESHOLD_BYTES_PER_S
from penstock.control.elasticutor.policy import KEYED, Elasticutor, Settings, naive_ec
from penstock.control.guard import Guard
from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import TaskLimits
from scenes.elasticutor_plant import Plant, S, scope

# Counts are in thousandths of a row, so that rates of a few rows a second are whole: rates in tests are rows
# * 1000 at service_us / 1000, which is the same load.
RATE = 1000


def settled(
    policy: Elasticutor, plant: Plant, rates: Mapping[str, float], seconds: int = 3
) -> tuple[PolicyDecision, ...]:
    """Decisions at the last of `seconds` looks, each carried out."""
    decisions = policy.decide(plant.snapshot())
    for _ in range(seconds):
        plant.run(1, rates)
        decisions = policy.decide(plant.snapshot())
        plant.carry_out(decisions)
    return decisions


def test_cores_come_by_the_load_of_the_window() -> None:
    # 250 rows/s of 10 ms: a = 2.5, k = ceil(2.5) + 1 = 4 (section 4.1); E[T] is far below 10 s.
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert plant.cores["count-0"] == {"n0": 4}


def test_the_safety_margin_lessens_the_service_rate() -> None:
    # a = 2.5 / (1 - 0.2) = 3.125, k = 5.
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    settled(Elasticutor(scope("count", margin=0.2)), plant, {"count-0": 250})
    assert plant.total("count-0") == 5


def test_a_tight_bound_takes_more_than_the_minimum() -> None:
    # M/M/2 with a = 1 and 1/mu = 10 us (a thousandth of 10 ms): E[T] = 4/3 * 10 us; M/M/3: 23/22 * 10 us.
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    settled(Elasticutor(scope("count", latency_us=11.0)), plant, {"count-0": 100})
    assert plant.total("count-0") == 3


def test_the_first_look_holds() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    (decision,) = Elasticutor(scope("count")).decide(plant.snapshot())
    assert (decision.treatment, decision.rule) == (Treatment.HOLD, "no-window-yet")
    assert decision.actions == ()
    assert decision.health is Health.UNKNOWN
    assert decision.conditions == {}


def test_a_missing_metric_holds() -> None:
    plant = Plant({"n0": 16}, {"count": ["n0", "n0"]})
    policy = Elasticutor(scope("count"))
    settled(policy, plant, {"count-0": 250, "count-1": 250})
    plant.lost = {"count-0"}
    plant.run(1, {"count-1": 450})
    (decision,) = policy.decide(plant.snapshot())
    plant.carry_out((decision,))
    # The other one goes on being served.
    assert (plant.total("count-0"), plant.total("count-1")) == (4, 6)
    assert "count-0" in decision.conditions["MetricsUnavailable"]
    assert decision.health is Health.UNKNOWN
    plant.run(20, {})
    (decision,) = policy.decide(plant.snapshot())
    assert "count-0" not in [action.name for action in decision.actions if isinstance(action, AssignCores)]


def test_counts_without_useful_time_hold() -> None:
    shards = ("count/0", "count/1")
    policy = Elasticutor(scope("count"))
    rules = []
    for second in range(4):
        rows = np.full(2, 1000.0 * second)
        operator = OperatorSnapshot(
            "count", (ExecutorSeen("count-0", 3, 3, "n0"),), dict.fromkeys(shards, "count-0"),
            SampleColumns(shards, rows, rows),
        )  # fmt: skip
        (decision,) = policy.decide(TopologySnapshot(second * S, {"count": operator}, {"n0": 8}))
        rules.append(decision.rule)
    assert rules == ["no-window-yet", "metrics-missing", "metrics-missing", "metrics-missing"]


def test_an_executor_without_rows_needs_one_core() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0", "n0"]})
    settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert plant.total("count-1") == 1


def test_nothing_is_decided_while_a_treatment_is_under_way() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    plant.treated = {"count"}
    (decision,) = settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert (decision.treatment, decision.rule) == (Treatment.NONE, "treatment-under-way")
    assert plant.total("count-0") == 1


def test_cores_are_added_at_once_and_given_back_late() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    policy = Elasticutor(scope("count"), Settings(release_after_us=5 * S))
    settled(policy, plant, {"count-0": 350})
    assert plant.total("count-0") == 5
    totals = []
    for _ in range(9):
        plant.run(1, {"count-0": 50})
        plant.carry_out(policy.decide(plant.snapshot()))
        totals.append(plant.total("count-0"))
    assert totals == [5, 5, 5, 5, 5, 2, 2, 2, 2]


def test_what_was_needed_meanwhile_is_kept() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    policy = Elasticutor(scope("count"), Settings(release_after_us=3 * S))
    settled(policy, plant, {"count-0": 450})
    for rate in (50, 250, 50, 50):
        plant.run(1, {"count-0": rate})
        plant.carry_out(policy.decide(plant.snapshot()))
    # Six; of the four seconds with fewer, one needed ceil(2.5) + 1.
    assert plant.total("count-0") == 4


def test_surplus_goes_at_once_to_who_needs_it() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0", "n0"]})
    policy = Elasticutor(scope("count"))
    settled(policy, plant, {"count-0": 450, "count-1": 50})
    assert (plant.total("count-0"), plant.total("count-1")) == (6, 2)
    settled(policy, plant, {"count-0": 50, "count-1": 450}, seconds=1)
    assert (plant.total("count-0"), plant.total("count-1")) == (2, 6)


def test_remote_cores_are_used_when_a_node_is_full() -> None:
    plant = Plant({"n0": 2, "n1": 4}, {"count": ["n0"]})
    settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert plant.cores["count-0"] == {"n0": 2, "n1": 2}


def test_a_data_intensive_executor_gets_the_cores_of_its_node() -> None:
    # a = 1 and 1.5: k = 2 and 3, and four cores on their node.
    loads = {"plain-0": 100, "loud-0": 150}
    plant = Plant({"n0": 4, "n1": 4}, {"plain": ["n0"], "loud": ["n0"]})
    settled(Elasticutor(scope("plain", "loud")), plant, loads)
    assert plant.cores == {"plain-0": {"n0": 2}, "loud-0": {"n0": 2, "n1": 1}}
    # 150 rows/s of 20 kB over 3 cores: 1 MB/s a core.
    assert THRESHOLD_BYTES_PER_S < 150 * 20_000 / 3
    plant = Plant({"n0": 4, "n1": 4}, {"plain": ["n0"], "loud": ["n0"]}, bytes_per_row={"loud": 20_000})
    settled(Elasticutor(scope("plain", "loud")), plant, loads)
    assert plant.cores == {"plain-0": {"n0": 1, "n1": 1}, "loud-0": {"n0": 3}}


def test_limits_and_budget_hold() -> None:
    plant = Plant({"n0": 16}, {"count": ["n0"]})
    (decision,) = settled(Elasticutor(scope("count", limits=TaskLimits(1, 3))), plant, {"count-0": 450})
    assert plant.total("count-0") == 3
    assert "Infeasible" in decision.conditions
    assert (decision.treatment, decision.rule) == (Treatment.HOLD, "no-core-left")
    plant = Plant({"n0": 16}, {"count": ["n0"]})
    settled(Elasticutor(scope("count", cores_max=2, task_cpu={"count": 0.5})), plant, {"count-0": 450})
    assert plant.total("count-0") == 4
    plant = Plant({"n0": 16}, {"count": ["n0"]}, cores_max=2.0)
    settled(Elasticutor(scope("count", task_cpu={"count": 0.5})), plant, {"count-0": 450})
    assert plant.total("count-0") == 4, "what others leave of a budget that they share"


def test_the_lower_limit_is_filled() -> None:
    plant = Plant({"n0": 16}, {"count": ["n0"]})
    settled(Elasticutor(scope("count", limits=TaskLimits(6, 8))), plant, {"count-0": 50})
    assert plant.total("count-0") == 6


def test_without_nodes_only_the_number_of_cores_is_decided() -> None:
    plant = Plant({}, {"count": ["somewhere"]})
    settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert plant.cores["count-0"] == {"somewhere": 4}


def test_cores_of_operators_out_of_scope_are_not_given_away() -> None:
    plant = Plant({"n0": 4}, {"count": ["n0"], "other": ["n0"]})
    plant.cores["other-0"] = {"n0": 2}
    settled(Elasticutor(scope("count")), plant, {"count-0": 250})
    assert plant.cores == {"count-0": {"n0": 2}, "other-0": {"n0": 2}}


def test_the_topology_s_own_bound_counts_the_input_once() -> None:
    # Equation (1): lambda_0 = 100 of the first operator; E[T] = E[T_1] + E[T_2], each 4/3 * 10 us at k = 2.
    plant = Plant({"n0": 16}, {"first": ["n0"], "second": ["n0"]})
    loads = {"first-0": 100, "second-0": 100}
    settled(Elasticutor(scope("first", "second"), Settings(end_to_end_us=27.0)), plant, loads)
    assert (plant.total("first-0"), plant.total("second-0")) == (2, 2)
    settled(Elasticutor(scope("first", "second"), Settings(end_to_end_us=26.0)), plant, loads)
    assert plant.total("first-0") + plant.total("second-0") == 5


def test_backlog_counts_as_arrivals_when_it_is_to_be_drained() -> None:
    shards = tuple(f"count/{k}" for k in range(8))

    def decided(settings: Settings) -> PolicyDecision:
        policy = Elasticutor(scope("count"), settings)
        for second in range(3):
            done = np.full(8, 100.0 * second)
            operator = OperatorSnapshot(
                "count",
                (ExecutorSeen("count-0", 1, 1, "n0", {"n0": 1}),),
                dict.fromkeys(shards, "count-0"),
                SampleColumns(shards, done + 200, done, busy_us=done * 1000),
            )
            (decision,) = policy.decide(TopologySnapshot(second * S, {"count": operator}, {"n0": 8}))
        return decision

    # 800 rows/s of 1 ms: a = 0.8. With 1 600 rows that wait over 1 s: a = 2.4.
    (without,) = decided(Settings()).actions
    (with_backlog,) = decided(Settings(drain_within_us=S)).actions
    assert without == AssignCores("count-0", {"n0": 2})
    assert with_backlog == AssignCores("count-0", {"n0": 4})


def test_what_has_just_arrived_is_no_backlog() -> None:
    # 100 rows/s wait for 150 ms: the alert threshold, and an interval until tasks tell.
    shards = tuple(f"count/{k}" for k in range(8))
    policy = Elasticutor(scope("count"), replace(KEYED, drain_within_us=S))
    for second in range(3):
        done = np.full(8, 100.0 * second)
        operator = OperatorSnapshot(
            "count",
            (ExecutorSeen("count-0", 1, 1, "n0", {"n0": 1}),),
            dict.fromkeys(shards, "count-0"),
            SampleColumns(shards, done + 15, done, busy_us=done * 1000),
        )
        (decision,) = policy.decide(TopologySnapshot(second * S, {"count": operator}, {"n0": 8}))
    assert decision.rule == "enough-cores"


def test_no_core_comes_where_doing_nothing_keeps_the_bound() -> None:
    # 400/s at 0.2 ms each: as on a cluster where two tasks became four.
    rates = {"count-0": 0.4 * RATE, "count-1": 0.4 * RATE}
    for way, cores in ((Settings(), 4), (KEYED, 2)):
        plant = Plant({"n0": 8}, {"count": ["n0", "n0"]}, service_us=200)
        settled(Elasticutor(scope("count", latency_us=150_000.0, margin=0.2), way), plant, rates)
        assert plant.total("count-0") + plant.total("count-1") == cores


def test_with_shards_pinned_there_is_no_bound_over_the_topology() -> None:
    with pytest.raises(ValueError, match="none end to end"):
        Settings(pins_shards=True, end_to_end_us=27.0)


def test_a_decision_says_what_it_saw_and_expects() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0"]})
    policy = Elasticutor(scope("count"))
    policy.decide(plant.snapshot())
    plant.run(1, {"count-0": 250})
    (decision,) = policy.decide(plant.snapshot())
    (view,) = decision.seen
    assert view.arrival_per_s == pytest.approx(250 * RATE)
    assert view.service_per_s == pytest.approx(100 * RATE)
    assert view.expected_us == math.inf
    assert view.instantaneous_us == pytest.approx(10)
    assert decision.without is not None
    assert decision.expected is not None
    assert (decision.without.latency_us, decision.without.tasks) == (math.inf, 1)
    assert decision.expected.tasks == 4
    # M/M/4 with a = 2.5: C = 0.3199, E[T] = C / (4 - 2.5) + 1 = 1.2133 times 10 us.
    assert decision.expected.latency_us == pytest.approx(12.133, abs=0.01)
    assert decision.reason.startswith("1 to 4 cores")


def test_naive_ec_is_the_same_but_for_the_places() -> None:
    plants = [Plant({"n0": 8, "n1": 8}, {"count": ["n0"]}) for _ in range(2)]
    for plant, policy in zip(plants, (Elasticutor(scope("count")), naive_ec(scope("count"))), strict=True):
        settled(policy, plant, {"count-0": 350})
    assert plants[0].cores["count-0"] == {"n0": 5}
    assert plants[1].total("count-0") == 5
    assert plants[1].cores["count-0"].get("n1", 0) >= 2
    assert naive_ec(scope("count")).name == "naive-ec"


@given(st.lists(st.lists(st.floats(0, 600), min_size=4, max_size=4), min_size=3, max_size=14))
@settings(deadline=None, max_examples=40)
def test_limits_and_nodes_hold_under_any_load(loads: list[list[float]]) -> None:
    plant = Plant({"n0": 6, "n1": 6}, {"a": ["n0", "n1"], "b": ["n0", "n1"]})
    policy = Elasticutor(scope("a", "b", latency_us=15.0, limits=TaskLimits(2, 7)))
    for rates in loads:
        plant.run(1, dict(zip(plant.cores, rates, strict=True)))
        plant.carry_out(policy.decide(plant.snapshot()))
        for operator in ("a", "b"):
            assert 2 <= sum(plant.total(f"{operator}-{j}") for j in range(2)) <= 7
        for node, limit in plant.nodes.items():
            assert sum(cores.get(node, 0) for cores in plant.cores.values()) <= limit
        assert all(plant.total(name) >= 1 for name in plant.cores)


@given(st.lists(st.floats(0, 400), min_size=4, max_size=4))
@settings(deadline=None, max_examples=30)
def test_an_even_load_is_decided_upon_once(rates: list[float]) -> None:
    plant = Plant({"n0": 12, "n1": 12}, {"a": ["n0", "n1"], "b": ["n0", "n1"]})
    policy = Elasticutor(scope("a", "b"))
    loads = dict(zip(plant.cores, rates, strict=True))
    settled(policy, plant, loads, seconds=3)
    for _ in range(10):
        plant.run(1, loads)
        assert not any(decision.actions for decision in policy.decide(plant.snapshot()))


CALM_S = 5
"""What had too many cores for so long gives some back."""


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(20, 400), min_size=2, max_size=6))
@settings(deadline=None, max_examples=30)
def test_under_random_loads_no_core_that_was_given_back_is_soon_asked_for_again(
    seed: int, phases: list[int]
) -> None:
    """Unless more arrives than in the time before it was given back."""
    random = np.random.default_rng(seed)
    plant = Plant({"n0": 64}, {"count": ["n0"]})
    of = scope("count")
    policy = Guard(Elasticutor(of), of)
    rates: list[int] = []
    given_back: int | None = None
    for level in phases:
        for _ in range(int(random.integers(5, 40))):
            rates.append(int(random.poisson(level)))
            plant.run(1, {"count-0": rates[-1]})
            before = plant.total("count-0")
            plant.carry_out(policy.decide(plant.snapshot()))
            after = plant.total("count-0")
            if after < before:
                given_back = len(rates)
            elif after > before and given_back is not None and len(rates) - given_back <= CALM_S:
                assert rates[-1] > max(rates[max(given_back - CALM_S, 0) : given_back])
