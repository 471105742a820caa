"""Static(n): the number that was asked for, shards spread by count, and nothing else ever."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.baselines.static import Static
from penstock.control.decision import AddExecutor, MoveShards, RemoveExecutor, Treatment
from penstock.control.executor_names import CountingNames
from penstock.control.resizing import resize
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits


def scope(most: int = 64) -> Scope:
    return Scope({"match": LatencyTarget(1e6)}, {"match": TaskLimits(1, most)})


def seen(assignment: dict[str, str], executors: list[str], treatment: bool = False) -> OperatorSnapshot:
    return OperatorSnapshot(
        "match", tuple(ExecutorSeen(name, 1, 1) for name in executors), assignment, {}, treatment
    )


def spread(shards: int, executors: int) -> OperatorSnapshot:
    names = [f"e{n}" for n in range(executors)]
    return seen({f"match/{k}": names[k % executors] for k in range(shards)}, names)


def shown(operator: OperatorSnapshot) -> TopologySnapshot:
    return TopologySnapshot(0, {"match": operator})


def after(operator: OperatorSnapshot, wanted: int) -> dict[str, str]:
    """Where the shards are once the actions are carried out; each action must fit what is there by then."""
    executors = {executor.name for executor in operator.executors}
    runs = dict(operator.assignment)
    for action in resize(operator, wanted, CountingNames()):
        match action:
            case AddExecutor(name):
                assert name not in executors
                executors.add(name)
            case MoveShards(shards, source, destination):
                assert destination in executors
                for shard in shards:
                    assert runs[shard] == source
                    runs[shard] = destination
            case RemoveExecutor(name):
                assert name not in runs.values()
                executors.remove(name)
            case _:
                pytest.fail(f"{action} is none of a static policy")
    assert len(executors) == wanted
    assert set(runs.values()) <= executors
    return runs


def test_the_right_number_is_left_alone_however_skewed() -> None:
    operator = seen({f"match/{k}": "e0" for k in range(8)}, ["e0", "e1"])
    (decision,) = Static(scope(), {"match": 2}).decide(shown(operator))
    assert decision.treatment is Treatment.NONE
    assert decision.actions == ()


def test_another_number_is_mended_in_one_decision() -> None:
    (decision,) = Static(scope(), {"match": 8}).decide(shown(spread(64, 3)))
    assert decision.treatment is Treatment.REPARTITION
    assert sum(isinstance(action, AddExecutor) for action in decision.actions) == 5


def test_nothing_is_decided_while_a_treatment_is_under_way() -> None:
    operator = seen({"match/0": "e0"}, ["e0"], treatment=True)
    (decision,) = Static(scope(), {"match": 2}).decide(shown(operator))
    assert decision.treatment is Treatment.NONE
    assert decision.rule == "treatment"


def test_two_executors_of_four_shards_become_three_by_two_moves() -> None:
    # 8 shards over 3 executors are 3, 3, 2: the two that are there give one each.
    moves = [action for action in resize(spread(8, 2), 3, CountingNames()) if isinstance(action, MoveShards)]
    assert sorted(len(move.shards) for move in moves) == [1, 1]


@given(st.integers(1, 64), st.integers(1, 12), st.integers(1, 12))
def test_shards_are_even_after_any_change_of_size(shards: int, has: int, wanted: int) -> None:
    runs = after(spread(shards, has), wanted)
    assert len(runs) == shards
    counts = Counter(runs.values())
    assert set(counts.values()) <= {shards // wanted, -(-shards // wanted)}
    assert len(counts) == min(shards, wanted)


@given(st.data(), st.integers(1, 8))
def test_shards_are_even_after_any_assignment(data: st.DataObject, wanted: int) -> None:
    names = [f"e{n}" for n in range(data.draw(st.integers(1, 6)))]
    assignment = {f"match/{k}": data.draw(st.sampled_from(names)) for k in range(24)}
    counts = Counter(after(seen(assignment, names), wanted).values())
    assert set(counts.values()) <= {24 // wanted, -(-24 // wanted)}
    assert len(counts) == wanted


@pytest.mark.parametrize("wanted", [0, 65])
def test_a_number_outside_the_limits_is_refused(wanted: int) -> None:
    with pytest.raises(ValueError, match=f"cannot have {wanted} executors"):
        Static(scope(), {"match": wanted})


def test_an_operator_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="operator match"):
        Static(scope(), {})
