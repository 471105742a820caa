"""The baseline: as many single-core executors as the model says, and the key space balanced over them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.baselines.resource_centric import ResourceCentric, Settings
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

S = 1_000_000
SERVICE_US = 1_000


class Operator:
    """One operator `o` whose shards count at rates that a test sets; decisions are carried out at once."""

    def __init__(self, shards: int, executors: int, nodes: Mapping[str, int] | None = None) -> None:
        self.now_us = 0
        self.nodes = nodes or {}
        self.executors = {f"o-{j}": "n0" if nodes else "" for j in range(executors)}
        self.assignment = {f"o/{k}": f"o-{k % executors}" for k in range(shards)}
        self.rows = dict.fromkeys(self.assignment, 0)
        self.lost: set[str] = set()
        self.treated = False

    def run(self, seconds: float, per_s: Mapping[str, int] | int) -> None:
        """Let `seconds` pass."""
        self.now_us += int(seconds * S)
        for shard in self.rows:
            rate = per_s if isinstance(per_s, int) else per_s.get(shard, 0)
            self.rows[shard] += int(rate * seconds)

    def snapshot(self) -> TopologySnapshot:
        """As it is now."""
        samples = {
            shard: None
            if shard in self.lost
            else ShardSample(rows, rows, 0.0, rows * SERVICE_US, rows * SERVICE_US, 1)
            for shard, rows in self.rows.items()
        }
        executors = tuple(ExecutorSeen(name, 1, 1, node) for name, node in self.executors.items())
        operator = OperatorSnapshot("o", executors, dict(self.assignment), samples, self.treated)
        return TopologySnapshot(self.now_us, {"o": operator}, self.nodes)

    def carry_out(self, decision: PolicyDecision) -> None:
        """Executors and shards as decided."""
        for action in decision.actions:
            match action:
                case AddExecutor(name, 1, node):
                    self.executors[name] = node or ""
                case MoveShards(shards, source, destination):
                    for shard in shards:
                        assert self.assignment[shard] == source
                        self.assignment[shard] = destination
                case RemoveExecutor(name):
                    del self.executors[name]
                case _:
                    raise AssertionError(f"{action} is none of this baseline's")
        assert set(self.assignment.values()) <= set(self.executors)


def scope(limits: TaskLimits | None = None, cores_max: float | None = None) -> Scope:
    return Scope(
        targets={"o": LatencyTarget(S, window_us=S, safety_margin=0.0)},
        limits={"o": limits} if limits else {},
        cores_max=cores_max,
    )


def look(policy: ResourceCentric, operator: Operator) -> PolicyDecision:
    (decision,) = policy.decide(operator.snapshot())
    operator.carry_out(decision)
    return decision


def test_executors_follow_the_model() -> None:
    # 16 shards of 200 rows/s at 1 ms: a = 3.2, k = ceil(3.2) + 1 = 5.
    operator = Operator(16, 1)
    policy = ResourceCentric(scope())
    look(policy, operator)
    operator.run(1, 200)
    decision = look(policy, operator)
    assert (decision.treatment, decision.rule) == (Treatment.REPARTITION, "executors-added")
    assert len(operator.executors) == 5
    # Each has its share: 16 shards over 5 executors within theta = 1.2 of the average, 3.2 shards, cannot be;
    # 4 is the least that the most loaded one can have.
    counts = [list(operator.assignment.values()).count(name) for name in operator.executors]
    assert max(counts) == 4
    assert decision.expected is not None
    assert decision.expected.tasks == 5


def test_keys_move_from_loaded_executors_to_lighter_ones() -> None:
    # o-0 has the even shards: 4 of 300 rows/s; o-1 the odd ones, of 100. 1.6 cores' work needs 3: none to
    # add.
    operator = Operator(8, 3)
    operator.assignment = {f"o/{k}": f"o-{min(k // 4, 1)}" for k in range(8)}
    policy = ResourceCentric(scope())
    look(policy, operator)
    operator.run(1, {f"o/{k}": 300 if k < 4 else 100 for k in range(8)})
    decision = look(policy, operator)
    assert decision.rule == "key-space-balanced"
    loads = dict.fromkeys(operator.executors, 0)
    for k in range(8):
        loads[operator.assignment[f"o/{k}"]] += 300 if k < 4 else 100
    assert max(loads.values()) <= 700


def test_a_balanced_operator_is_left_alone() -> None:
    operator = Operator(8, 2)
    policy = ResourceCentric(scope(TaskLimits(1, 2)))
    look(policy, operator)
    operator.run(1, 50)
    decision = look(policy, operator)
    assert (decision.treatment, decision.rule, decision.actions) == (Treatment.NONE, "balanced", ())


def test_executors_go_late_and_those_with_least_first() -> None:
    operator = Operator(8, 4)
    policy = ResourceCentric(scope(), Settings(remove_after_us=3 * S))
    look(policy, operator)
    counts = []
    for _ in range(5):
        operator.run(1, {f"o/{k}": 10 if k % 4 == 1 else 60 for k in range(8)})
        look(policy, operator)
        counts.append(len(operator.executors))
    assert counts == [4, 4, 4, 2, 2]
    assert "o-1" not in operator.executors


def test_it_is_looked_twice_a_second() -> None:
    operator = Operator(8, 1)
    policy = ResourceCentric(scope(TaskLimits(1, 1)))
    rules = []
    for _ in range(15):
        operator.run(0.1, 100)
        rules.append(look(policy, operator).rule)
    assert rules[:5] == ["no-window-yet"] * 5
    assert [rule == "balanced" for rule in rules[5:]] == [True, *[False] * 4, True, *[False] * 4]


def test_a_missing_metric_holds() -> None:
    operator = Operator(8, 1)
    policy = ResourceCentric(scope())
    look(policy, operator)
    operator.lost = {"o/3"}
    operator.run(1, 500)
    decision = look(policy, operator)
    assert (decision.treatment, decision.rule, decision.health) == (
        Treatment.HOLD,
        "metrics-missing",
        Health.UNKNOWN,
    )
    assert "MetricsUnavailable" in decision.conditions


def test_nothing_is_decided_while_keys_move() -> None:
    operator = Operator(8, 1)
    operator.treated = True
    policy = ResourceCentric(scope())
    look(policy, operator)
    operator.run(1, 500)
    assert look(policy, operator).rule == "treatment-under-way"


def test_limits_and_budget_hold() -> None:
    for bounds in (scope(TaskLimits(1, 3)), scope(cores_max=3)):
        operator = Operator(16, 1)
        policy = ResourceCentric(bounds)
        look(policy, operator)
        operator.run(1, 500)
        look(policy, operator)
        assert len(operator.executors) == 3


def test_new_executors_go_where_most_cores_are_free() -> None:
    operator = Operator(16, 1, {"n0": 2, "n1": 3})
    policy = ResourceCentric(scope())
    look(policy, operator)
    operator.run(1, 200)
    look(policy, operator)
    assert sorted(operator.executors.values()) == ["n0", "n0", "n1", "n1", "n1"]
