"""Two time scales: cores at once, executors split and merged on the slow one (Elasticutor, appendix B)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    Health,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.elasticutor.policy import Elasticutor
from penstock.control.guard import Guard, GuardRules
from penstock.control.hybrid.plans import Settings
from penstock.control.hybrid.policy import Hybrid
from penstock.control.policy import Policy
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.control.target import LatencyTarget, Scope, TaskLimits

S = 1_000_000
SERVICE_US = 1_000


class Operator:
    """One operator `o`; its shards count at rates that a test sets, decisions are carried out at once."""

    def __init__(self, nodes: Mapping[str, int], executors: Mapping[str, str], shards: int = 8) -> None:
        self.now_us = 0
        self.nodes = nodes
        self.home = dict(executors)
        self.cores: dict[str, dict[str, int]] = {name: {node: 1} for name, node in executors.items()}
        self.assignment = {f"o/{name}.{k}": name for name in executors for k in range(shards)}
        self.rows = dict.fromkeys(self.assignment, 0)
        self.treated = False
        self.cores_max = math.inf

    def run(self, seconds: int, per_s: Mapping[str, int]) -> None:
        """Let `seconds` pass with so many rows a second for each shard of the executors that were there at
        first."""
        self.now_us += seconds * S
        for shard in self.rows:
            self.rows[shard] += seconds * per_s[shard.split("/")[1].split(".")[0]]

    def snapshot(self) -> TopologySnapshot:
        """As it is now."""
        samples = {
            shard: ShardSample(rows, rows, 0.0, rows * SERVICE_US, rows * SERVICE_US, 1)
            for shard, rows in self.rows.items()
        }
        executors = tuple(
            ExecutorSeen(name, sum(cores.values()), sum(cores.values()), self.home[name], cores)
            for name, cores in self.cores.items()
        )
        operator = OperatorSnapshot("o", executors, dict(self.assignment), samples, self.treated)
        return TopologySnapshot(self.now_us, {"o": operator}, self.nodes, cores_max=self.cores_max)

    def carry_out(self, decision: PolicyDecision) -> None:
        """Executors, shards and cores as decided."""
        for action in decision.actions:
            match action:
                case AddExecutor(name, tasks, node):
                    assert node is not None
                    self.home[name], self.cores[name] = node, {node: tasks}
                case MoveShards(shards, source, destination):
                    for shard in shards:
                        assert self.assignment[shard] == source
                        self.assignment[shard] = destination
                case RemoveExecutor(name):
                    del self.cores[name]
                case AssignCores(name, cores):
                    self.cores[name] = dict(cores)
        assert set(self.assignment.values()) <= set(self.cores)
        for node, limit in self.nodes.items():
            assert sum(cores.get(node, 0) for cores in self.cores.values()) <= limit


def scope(limits: TaskLimits | None = None) -> Scope:
    return Scope(
        targets={"o": LatencyTarget(S, window_us=S, safety_margin=0.0)},
        limits={"o": limits} if limits else {},
    )


def run(policy: Policy, operator: Operator, seconds: int, per_s: Mapping[str, int]) -> list[PolicyDecision]:
    """A look a second; each decision is carried out."""
    made = []
    for _ in range(seconds):
        operator.run(1, per_s)
        (decision,) = policy.decide(operator.snapshot())
        operator.carry_out(decision)
        made.append(decision)
    return made


class Scripted:
    """A slow parent that always wants the same."""

    def __init__(self, treatment: Treatment, *actions: Action) -> None:
        self._treatment = treatment
        self._actions = actions
        self.seen = 0

    @property
    def name(self) -> str:
        return "scripted"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        self.seen += 1
        return (
            PolicyDecision(
                snapshot.at_us,
                self.name,
                "o",
                self._treatment,
                "rule",
                "so it wants",
                Health.SEVERE,
                self._actions,
            ),
        )


def hybrid(slow: Scripted | None = None, limits: TaskLimits | None = None) -> Hybrid:
    return Hybrid(scope(limits), Elasticutor(scope(limits)), slow)


def test_between_slow_moments_the_fast_parent_decides() -> None:
    operator = Operator({"n0": 8}, {"a": "n0"})
    made = run(hybrid(), operator, 9, {"a": 300})
    # 8 shards of 300 rows/s of 1 ms: a = 2.4, k = 4.
    assert operator.cores["a"] == {"n0": 4}
    assert {decision.policy for decision in made} == {"hybrid"}
    assert {decision.treatment for decision in made} == {Treatment.HOLD, Treatment.CORES, Treatment.NONE}


def test_an_executor_that_outgrew_its_node_is_split() -> None:
    # a = 8 * 0.75 = 6, k = 7, its node has 4: three cores are remote.
    operator = Operator({"n0": 4, "n1": 8}, {"a": "n0"})
    made = run(hybrid(), operator, 11, {"a": 750})
    split = made[-1]
    assert (split.treatment, split.rule) == (Treatment.REPARTITION, "executor-split")
    assert set(operator.cores) == {"a", "o-0"}
    assert operator.home["o-0"] == "n1"
    # fill = 0.6 of 4 cores stays: 4.6 of 7 cores' work would go, and 8 shards of 6 / 8 each: 5 of them go.
    moved = [shard for shard, name in operator.assignment.items() if name == "o-0"]
    assert len(moved) == 5
    assert split.expected is not None
    assert split.expected.latency_us < S
    # Afterwards all cores are local.
    run(hybrid_after := hybrid(), operator, 8, {"a": 750})
    assert hybrid_after.name == "hybrid"
    assert {name: set(cores) for name, cores in operator.cores.items()} == {"a": {"n0"}, "o-0": {"n1"}}


def test_a_split_stays_within_the_limits() -> None:
    operator = Operator({"n0": 4, "n1": 8}, {"a": "n0"})
    made = run(hybrid(limits=TaskLimits(1, 7)), operator, 11, {"a": 750})
    assert made[-1].rule == "executor-split"
    assert sum(sum(cores.values()) for cores in operator.cores.values()) <= 7
    # One task that may be added to none: there is nothing to split with.
    operator = Operator({"n0": 1, "n1": 8}, {"a": "n0"})
    made = run(hybrid(limits=TaskLimits(1, 1)), operator, 25, {"a": 750})
    assert operator.cores == {"a": {"n0": 1}}
    assert not any(decision.treatment is Treatment.REPARTITION for decision in made)


def test_a_split_stays_within_what_others_leave_of_a_budget() -> None:
    operator = Operator({"n0": 4, "n1": 8}, {"a": "n0"})
    operator.cores_max = 1.0
    made = run(hybrid(), operator, 25, {"a": 750})
    assert operator.cores == {"a": {"n0": 1}}
    assert not any(decision.treatment is Treatment.REPARTITION for decision in made)


def test_one_thing_at_a_slow_moment_and_none_before() -> None:
    operator = Operator({"n0": 4, "n1": 4, "n2": 4}, {"a": "n0"})
    made = run(hybrid(), operator, 40, {"a": 1100})
    when = [second for second, decision in enumerate(made) if decision.treatment is Treatment.REPARTITION]
    assert when
    assert all(later - sooner >= 10 for sooner, later in pairwise(when))


def test_small_executors_are_merged_and_a_core_is_saved() -> None:
    # Each has a = 8 * 0.05 = 0.4, k = 2; together a = 0.8, k = 2.
    operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
    made = run(hybrid(), operator, 11, {"a": 50, "b": 50})
    merge = made[-1]
    assert (merge.treatment, merge.rule) == (Treatment.REPARTITION, "executors-merged")
    assert list(operator.cores) == ["b"]
    assert sum(operator.cores["b"].values()) == 2
    assert merge.expected is not None
    assert merge.expected.tasks == 2


def test_where_a_task_comes_too_late_for_a_row_a_merge_waits_for_a_calm_minute() -> None:
    """And for one at whose peak both would have fitted."""

    def merges(seconds: int, peak: int) -> list[int]:
        of = Scope({"o": LatencyTarget(100_000.0, window_us=S, safety_margin=0.0)}, {})
        operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
        policy = Hybrid(of, Elasticutor(of), Scripted(Treatment.NONE))
        made = []
        for second in range(seconds):
            operator.run(1, dict.fromkeys("ab", peak if second == 30 else 50))
            (decision,) = policy.decide(operator.snapshot())
            operator.carry_out(decision)
            made.append(decision.rule)
        return [second for second, rule in enumerate(made) if rule == "executors-merged"]

    (calm,) = merges(80, 50)
    assert 59 <= calm < 70
    assert merges(80, 400) == []
    assert len(merges(110, 400)) == 1


def test_what_would_not_fit_a_node_stays_apart() -> None:
    # a = 2 each; together k = 5, and 0.6 of 8 cores are 4.8.
    operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
    made = run(hybrid(), operator, 25, {"a": 250, "b": 250})
    assert not any(decision.treatment is Treatment.REPARTITION for decision in made)


def test_a_split_executor_is_not_merged_again() -> None:
    operator = Operator({"n0": 4, "n1": 8}, {"a": "n0"})
    made = run(hybrid(), operator, 60, {"a": 750})
    assert [d.rule for d in made if d.treatment is Treatment.REPARTITION] == ["executor-split"]


def test_the_lower_limit_keeps_executors_apart() -> None:
    operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
    made = run(hybrid(limits=TaskLimits(4, 8)), operator, 25, {"a": 50, "b": 50})
    assert not any(decision.treatment is Treatment.REPARTITION for decision in made)


def test_the_slow_parent_sees_every_look_and_is_heard_at_slow_moments() -> None:
    # 3.04 and 2.08 cores of work on six: no core is left for the first, and it never catches up.
    move = MoveShards(("o/a.0",), "a", "b")
    slow = Scripted(Treatment.LOAD_BALANCE, move)
    operator = Operator({"n0": 3, "n1": 3}, {"a": "n0", "b": "n1"})
    made = run(hybrid(slow), operator, 12, {"a": 380, "b": 260})
    assert slow.seen == 12
    heard = [decision for decision in made if decision.rule == "slow-load-balance"]
    assert [decision.actions for decision in heard] == [(move,)]


def test_the_slow_parent_is_not_heard_where_cores_cure() -> None:
    slow = Scripted(Treatment.SCALE_OUT, AddExecutor("b"), MoveShards(("o/a.0",), "a", "b"))
    operator = Operator({"n0": 16}, {"a": "n0"})
    made = run(hybrid(slow), operator, 25, {"a": 300})
    assert not any(decision.treatment is Treatment.REPARTITION for decision in made)


def test_the_slow_parent_s_scale_in_is_heard_where_it_fits() -> None:
    # Without a core to save the hybrid has no reason of its own: the limit keeps four.
    shards = tuple(f"o/a.{k}" for k in range(8))
    slow = Scripted(Treatment.SCALE_IN, MoveShards(shards, "a", "b"), RemoveExecutor("a"))
    operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
    made = run(hybrid(slow), operator, 11, {"a": 50, "b": 50})
    assert made[-1].rule == "slow-scale-in"
    assert list(operator.cores) == ["b"]


def test_nothing_is_repartitioned_while_a_treatment_is_under_way() -> None:
    operator = Operator({"n0": 8}, {"a": "n0", "b": "n0"})
    operator.treated = True
    made = run(hybrid(), operator, 25, {"a": 50, "b": 50})
    assert {decision.rule for decision in made} == {"treatment-under-way"}


def test_the_slow_time_scale_is_ten_seconds_and_up() -> None:
    with pytest.raises(ValueError, match="slow time scale"):
        Settings(every_us=9 * S)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_under_random_loads_nothing_swings(seed: int, phases: int) -> None:
    """As it is live, with both parents and the guard: it comes to rest under any load that stays, and on the
    way there executors are changed on the slow time scale alone."""
    random = np.random.default_rng(seed)
    operator = Operator({"n0": 4, "n1": 4, "n2": 4}, {"a": "n0", "b": "n1", "c": "n2"})
    of = scope(TaskLimits(1, 12))
    inner = Hybrid(of, Elasticutor(of), StreamSwitch(of, one_at_a_time=True))
    policy = Guard(inner, of, GuardRules(scale_in_after_us=2 * S))
    for _ in range(phases):
        loads = dict(zip("abc", random.integers(0, 400, 3).tolist(), strict=True))
        made = run(policy, operator, 150, loads)
        changed = [at for at, one in enumerate(made) if one.treatment is Treatment.REPARTITION]
        assert all(later - earlier >= 10 for earlier, later in pairwise(changed))
        assert not any(one.actions for one in made[-30:]), loads
        assert 1 <= sum(sum(cores.values()) for cores in operator.cores.values()) <= 12
