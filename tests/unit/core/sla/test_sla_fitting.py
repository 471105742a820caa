"""What of a decision there is room for."""

from __future__ import annotations

import pytest

from penstock.control.decision import (
    AddExecutor,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.target import Scope
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.sla.fitting import begin_what_fits
from penstock.sla.look import Places
from penstock.sla.treatment import NoRoom

SCHEDULE = OperatorSchedule(
    operator="count",
    version=7,
    term=0,
    workers=(WorkerPlace("w0", "here", "here", "uid0"),),
    executors=(ExecutorPlace("a", "w0", 1), ExecutorPlace("b", "w0", 1)),
    shards={f"count/{part}": ShardPlace("a" if part < 2 else "b", "local") for part in range(4)},
)
TWO_OUTS = PolicyDecision(
    at_us=0,
    policy="P",
    operator="count",
    treatment=Treatment.SCALE_OUT,
    rule="scale-out",
    reason="because",
    health=Health.SEVERE,
    actions=(
        AddExecutor("c"),
        MoveShards(("count/0",), "a", "c"),
        AddExecutor("d"),
        MoveShards(("count/2",), "b", "d"),
    ),
    expected=Prediction(1_000.0, 4),
)


UNBOUND = Scope({}, {})


def places(room: int) -> Places:
    return Places({"count": SCHEDULE}, {}, {"w0": room})


def names(room: int) -> tuple[list[str], PolicyDecision, bool]:
    decision, begun, lacked = begin_what_fits(TWO_OUTS, SCHEDULE, UNBOUND, places(room), 0)
    return [executor.name for executor in begun.schedule.executors], decision, lacked


def test_with_room_for_all_new_executors_a_decision_is_carried_out_whole() -> None:
    assert names(2) == (["a", "b", "c", "d"], TWO_OUTS, False)


def test_with_room_for_some_the_first_ones_come_and_the_lack_is_told() -> None:
    executors, decision, lacked = names(1)
    assert executors == ["a", "b", "c"]
    assert decision.actions == TWO_OUTS.actions[:2]
    assert decision.expected == Prediction(1_000.0, 3)
    assert lacked


def test_with_room_for_none_it_does_not_fit() -> None:
    with pytest.raises(NoRoom):
        names(0)


def test_what_is_no_scale_out_is_left_whole() -> None:
    merge = PolicyDecision(
        0,
        "P",
        "count",
        Treatment.SCALE_IN,
        "scale-in",
        "because",
        Health.GOOD,
        (MoveShards(("count/2", "count/3"), "b", "a"), RemoveExecutor("b")),
    )
    decision, begun, lacked = begin_what_fits(merge, SCHEDULE, UNBOUND, places(0), 0)
    assert (decision, lacked) == (merge, False)
    assert {place.executor for place in begun.schedule.shards.values()} == {"a"}
