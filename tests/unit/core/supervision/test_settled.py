"""Whether what was decided is done, and whether work may be moved about."""

from __future__ import annotations

from penstock.schedule.record import (
    AppliedPlace,
    ExecutorPlace,
    OperatorSchedule,
    ShardPlace,
    StorePlace,
    WorkerPlace,
)
from penstock.supervision.settled import TREATMENT_DEADLINE_S, Settling, held_back, settling
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Holding, Worker, WorkerState

STORES = (StorePlace("a", "a", "a:1"), StorePlace("b", "b", "b:1"))
COUNT = OperatorSchedule(
    "count",
    7,
    0,
    (WorkerPlace("w0", "a", "a", "u"),),
    (ExecutorPlace("count-w0", "w0", 1),),
    {"count/0": ShardPlace("count-w0", "a")},
    STORES,
)


def settled(*applied: AppliedPlace, away: str = "", now_s: float = 0.0) -> Settling:
    since = SinceWhen({"unsettled": 0.0}, now_s)
    return settling([(COUNT, applied)], lambda store: store.id != away, since)


def test_a_schedule_is_settled_once_all_stores_work_by_it_and_nothing_moves() -> None:
    assert settled(AppliedPlace("a", 7, 1), AppliedPlace("b", 8, 1)) == Settling(shards_moving={"count": 0})


def test_what_is_waited_for_is_told_in_words() -> None:
    found = settled(AppliedPlace("a", 7, 1, shards_moving=3), AppliedPlace("b", 6, 1))
    assert found.waits == (
        "3 shards of count leave node a",
        "the store of node b has not applied version 7 of count",
    )
    assert found.shards_moving == {"count": 3}
    assert not found.may_change


def test_a_store_that_is_away_is_not_waited_for_and_all_is_not_complete_without_it() -> None:
    found = settled(AppliedPlace("a", 7, 1), away="b")
    assert (found.may_change, found.is_complete) == (True, False)


def test_what_does_not_settle_holds_up_nothing_after_its_deadline() -> None:
    assert not settled(now_s=TREATMENT_DEADLINE_S - 1).may_change
    late = settled(now_s=TREATMENT_DEADLINE_S)
    assert (late.is_overdue, late.may_change) == (True, True)


def test_where_one_store_is_all_there_is_nothing_is_waited_for() -> None:
    alone = OperatorSchedule("count", 7, 0, COUNT.workers, COUNT.executors, COUNT.shards)
    found = settling([(alone, ())], lambda _: True, SinceWhen({}, 0.0))
    assert (found.waits, found.is_complete) == ((), True)


def test_who_holds_executors_and_is_not_ready_holds_back_and_so_does_who_is_awaited() -> None:
    dead = Worker("w1", 1, WorkerState.DEAD)
    holder = Worker("w0", 0, WorkerState.STARTING, holding=Holding(executors=1))
    assert held_back([dead]) == ""
    assert held_back([holder, dead]) == "worker w0 is not ready"
    assert held_back([holder, dead], awaited={"w1"}) == "worker w0, w1 is not ready"
