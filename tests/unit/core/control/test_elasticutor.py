"""The scheduler as a policy: rates by differences, missing is not zero, up at once and down slowly,
limits."""

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
from penstock.control.samples.sample_table import (
    ARRIVED,
    BUSY_US,
    COMPLETED,
    ROWS,
    AssignmentTable,
    SampleTable,
    Shards,
)
from penstock.control.samples.shard_rates import ServiceMemory, ShardRates
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits

S = 1_000_000


class Plant:
    """Operators whose shards count at rates that a test sets; decisions are carried out at once.

    Each operator has `executors` of `shards` shards. Every row takes `service_us`, however many wait.
    """

    def __init__(
        self,
        nodes: Mapping[str, int],
        homes: Mapping[str, list[str]],
        shards: int = 8,
        service_us: float = 10_000,
        state_bytes: int | None = 1_000,
        bytes_per_row: Mapping[str, int] | None = None,
        cores_max: float = math.inf,
    ) -> None:
        self.now_us = 0
        self.nodes = nodes
        self.cores_max = cores_max
        self.service_us = service_us
        self.state_bytes = state_bytes
        self.bytes_per_row = bytes_per_row or {}
        self.cores = {
            f"{operator}-{j}": {node: 1} for operator, at in homes.items() for j, node in enumerate(at)
        }
        self.home = {f"{operator}-{j}": node for operator, at in homes.items() for j, node in enumerate(at)}
        self.operators = tuple(homes)
        self.shards = shards
        self.rows = dict.fromkeys(self.cores, 0.0)
        self.lost: set[str] = set()
        self.treated: set[str] = set()
        self.writer: dict[str, int] = dict.fromkeys(self.cores, 1)

    def run(self, seconds: float, rate_per_s: Mapping[str, float]) -> None:
        """Let `seconds` pass with so many rows a second for each executor that is named."""
        self.now_us += int(seconds * S)
        for name, rate in rate_per_s.items():
            self.rows[name] += rate * seconds

    def snapshot(self) -> TopologySnapshot:
        """As it is now."""
        return TopologySnapshot(
            self.now_us,
            {name: self._operator(name) for name in self.operators},
            self.nodes,
            tuple(zip(self.operators, self.operators[1:], strict=False)),
            self.cores_max,
        )

    def _operator(self, operator: str) -> OperatorSnapshot:
        mine = [name for name in self.cores if name.rsplit("-", 1)[0] == operator]
        assignment, samples = {}, {}
        for name in mine:
            rows = self.rows[name] / self.shards
            for k in range(self.shards):
                shard = f"{operator}/{name}.{k}"
                assignment[shard] = name
                samples[shard] = (
                    None
                    if name in self.lost
                    else ShardSample(
                        arrived=round(rows * 1000),
                        completed=round(rows * 1000),
                        waited_us=0.0,
                        served_us=rows * 1000 * self.service_us / 1000,
                        busy_us=rows * 1000 * self.service_us / 1000,
                        writer=self.writer[name],
                        state_bytes=self.state_bytes,
                        bytes_in=round(rows * self.bytes_per_row.get(operator, 0)),
                        bytes_out=0,
                    )
                )
        executors = tuple(
            ExecutorSeen(
                name,
                sum(self.cores[name].values()),
                sum(self.cores[name].values()),
                self.home[name],
                self.cores[name] if self.nodes else {},
            )
            for name in mine
        )
        return OperatorSnapshot(operator, executors, assignment, samples, operator in self.treated)

    def carry_out(self, decisions: tuple[PolicyDecision, ...]) -> None:
        """Cores as decided."""
        for decision in decisions:
            for action in decision.actions:
                assert isinstance(action, AssignCores)
                self.cores[action.name] = dict(action.cores)

    def total(self, name: str) -> int:
        """X_j."""
        return sum(self.cores[name].values())


# Counts are in thousandths of a row, so that rates of a few rows a second are whole: rates in tests are rows
# * 1000 at service_us / 1000, which is the same load.
RATE = 1000


def scope(
    *operators: str,
    latency_us: float = 10 * S,
    margin: float = 0.0,
    limits: TaskLimits | None = None,
    cores_max: float | None = None,
    task_cpu: Mapping[str, float] | None = None,
) -> Scope:
    return Scope(
        targets={each: LatencyTarget(latency_us, window_us=S, safety_margin=margin) for each in operators},
        limits=dict.fromkeys(operators, limits) if limits else {},
        cores_max=cores_max,
        task_cpu=task_cpu or {},
    )


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


# --- tables and rates ----------------------------------------------------------------------------------


def test_a_table_is_the_mapping_that_it_stands_for() -> None:
    plant = Plant({"n0": 8}, {"count": ["n0", "n0"]}, shards=3)
    plant.lost = {"count-1"}
    plant.run(1, {"count-0": 30})
    samples = plant.snapshot().operators["count"].samples
    shards = Shards(sorted(samples))
    values = np.full((ROWS, 6), np.nan)
    writer = np.array([1, 1, 1, -1, -1, -1])
    values[:, :3] = np.array(
        [[10_000.0] * 3, [10_000.0] * 3, [1e5] * 3, [0] * 3, [0] * 3, [0] * 3, [1e5] * 3, [1e3] * 3]
    )
    table = SampleTable(shards, values, writer)
    assert dict(table) == dict(samples)
    assert len(table) == 6
    assert "count/count-1.0" in table
    owners = AssignmentTable(shards, ("count-0", "count-1"), np.array([0, 0, 0, 1, 1, -1]))
    assert dict(owners) == {name: f"count-{k // 3}" for k, name in enumerate(shards.names[:5])}
    assert len(owners) == 5
    with pytest.raises(KeyError):
        owners[shards.names[5]]


def test_arrays_and_mappings_give_the_same_decisions() -> None:
    plant = Plant({"n0": 8, "n1": 8}, {"count": ["n0", "n1"]})
    plain, arrays = Elasticutor(scope("count")), Elasticutor(scope("count"))
    shards = None
    for _ in range(4):
        plant.run(1, {"count-0": 250, "count-1": 130})
        snapshot = plant.snapshot()
        operator = snapshot.operators["count"]
        names = tuple(sorted(operator.samples))
        shards = shards or Shards(names)
        samples = [operator.samples[name] for name in names]
        values = np.array(
            [
                (
                    s.arrived,
                    s.completed,
                    s.busy_us,
                    s.bytes_in,
                    s.bytes_out,
                    s.waited_us,
                    s.served_us,
                    s.state_bytes,
                )
                for s in samples
                if s is not None
            ]
        ).T.astype(float)
        owner = np.array([int(operator.assignment[name][-1]) for name in names])
        table = replace(
            operator,
            samples=SampleTable(shards, values, np.ones(len(names), dtype=np.int64)),
            assignment=AssignmentTable(shards, ("count-0", "count-1"), owner),
        )
        expected = plain.decide(snapshot)
        assert arrays.decide(replace(snapshot, operators={"count": table})) == expected
        plant.carry_out(expected)


def rates_table(shards: Shards, arrived: list[float], writer: list[int]) -> SampleTable:
    values = np.zeros((ROWS, len(arrived)))
    values[ARRIVED] = values[COMPLETED] = arrived
    values[BUSY_US] = values[COMPLETED] * 100
    return SampleTable(shards, values, np.array(writer))


def observed(rates: ShardRates, at_us: int, table: SampleTable) -> list[float]:
    owner = AssignmentTable(table.shards, ("e",), np.zeros(len(table), dtype=np.int64))
    operator = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, table)
    return rates.observe(at_us, operator).arrival_per_s().tolist()


def test_a_shard_with_a_new_writer_is_told_from_the_new_writer_alone() -> None:
    shards = Shards(("o/0", "o/1"))
    rates = ShardRates(1 * S)
    half = S // 2
    observed(rates, 0, rates_table(shards, [0, 0], [1, 1]))
    assert observed(rates, half, rates_table(shards, [50, 50], [1, 1])) == [100, 100]
    # Its count begins anew: a difference to the old writer's would be negative. One sample tells nothing yet.
    assert observed(rates, 2 * half, rates_table(shards, [100, 3], [1, 2])) == [100, 100]
    assert observed(rates, 3 * half, rates_table(shards, [150, 103], [1, 2])) == [100, 200]


def test_a_shard_that_was_not_read_makes_its_executor_unknown() -> None:
    shards = Shards(("o/0", "o/1"))
    rates = ShardRates(1 * S)
    observed(rates, 0, rates_table(shards, [0, 0], [1, 1]))
    observed(rates, S, rates_table(shards, [50, 50], [1, 1]))
    table = rates_table(shards, [100, 100], [1, -1])
    table.rows[:, 1] = np.nan
    assert math.isnan(observed(rates, 2 * S, table)[1])
    owner = AssignmentTable(shards, ("e",), np.zeros(2, dtype=np.int64))
    seen = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, table)
    look = rates.observe(3 * S, seen)
    assert math.isnan(ServiceMemory().rates([look]).arrival_per_s[0])


def test_a_shard_whose_writers_keep_changing_is_unknown_after_a_window() -> None:
    shards = Shards(("o/0",))
    rates = ShardRates(1 * S)
    half = S // 2
    observed(rates, 0, rates_table(shards, [0], [1]))
    assert observed(rates, half, rates_table(shards, [50], [1])) == [100]
    found = [observed(rates, n * half, rates_table(shards, [50 * n], [n])) for n in range(2, 6)]
    assert found[0] == found[1] == [100]
    assert math.isnan(found[2][0])


def test_the_last_service_rate_stands_while_nothing_is_completed() -> None:
    shards = Shards(("o/0",))
    rates, memory = ShardRates(1 * S), ServiceMemory()
    owner = AssignmentTable(shards, ("e",), np.zeros(1, dtype=np.int64))
    found = []
    for second, rows in enumerate((0, 50, 50, 50)):
        seen = OperatorSnapshot("o", (ExecutorSeen("e", 1, 1),), owner, rates_table(shards, [rows], [1]))
        found.append(memory.rates([rates.observe(second * S, seen)]).service_per_s[0])
    # 100 us of work a row.
    assert math.isnan(found[0])
    assert found[1:] == [10_000, 10_000, 10_000]


def test_settings_out_of_range_are_refused() -> None:
    for wrong in (
        {"window_us": 0},
        {"release_after_us": -1},
        {"threshold_bytes_per_s": 0},
        {"end_to_end_us": 0},
    ):
        with pytest.raises(ValueError, match=r"out of range|end-to-end"):
            Settings(**wrong)
