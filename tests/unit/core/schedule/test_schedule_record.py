"""A schedule that contradicts itself cannot be made; one that does not becomes one call."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.port import Publish
from penstock.store.publishing import to_publish

W0 = WorkerPlace("w-0", "node-a", "10.0.0.1", "uid-0")
W1 = WorkerPlace("w-1", "node-b", "10.0.0.2", "uid-1")
S = StorePlace("s", "node-a", "10.0.0.1:6379")


def schedule(**changes: Any) -> OperatorSchedule:
    fields: dict[str, Any] = {
        "operator": "count",
        "version": 3,
        "term": 1,
        "workers": (W1, W0),
        "executors": (ExecutorPlace("count-w-0", "w-0", 2),),
        "shards": {"count/1": ShardPlace("count-w-0", "s"), "count/0": ShardPlace("count-w-0", "s")},
    }
    return OperatorSchedule(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": -1}, "version -1"),
        ({"term": -1}, "term -1"),
        ({"workers": (W0, W0)}, "twice"),
        ({"executors": (ExecutorPlace("count-w-0", "w-0", 1),) * 2}, "twice"),
        ({"executors": (ExecutorPlace("count-w-0", "w-9", 1),)}, "worker w-9, which is unknown"),
        ({"executors": (ExecutorPlace("count-w-0", "w-0", -1),)}, "-1 tasks"),
        ({"shards": {"count/0": ShardPlace("other", "s")}}, "executor other, which is unknown"),
        ({"shards": {"lines/0": ShardPlace("count-w-0", "s")}}, "not one of operator count"),
        ({"stores": (S, S)}, "a store is there twice"),
        ({"stores": (StorePlace("t", "n", "h:1"),)}, "home of shard count/1 is store s, which is unknown"),
        ({"shards": {"count/0": ShardPlace("count-w-0", "s", 4)}}, "fresh since version 4 in one of 3"),
    ],
)
def test_a_schedule_that_contradicts_itself_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        schedule(**changes)


def test_an_executor_names_its_shards_and_tasks_are_summed() -> None:
    made = schedule(
        executors=(ExecutorPlace("a", "w-0", 2), ExecutorPlace("b", "w-1", 0)),
        shards={"count/0": ShardPlace("a", "s"), "count/1": ShardPlace("b", "s")},
    )
    assert made.shards_of("a") == ("count/0",)
    assert made.shards_of("b") == ("count/1",)
    assert made.tasks == 2


def test_a_schedule_is_published_in_order_with_all_its_workers() -> None:
    assert to_publish(schedule()) == Publish(
        operator="count",
        version=3,
        term=1,
        workers=(("w-0", "node-a", "10.0.0.1", "uid-0"), ("w-1", "node-b", "10.0.0.2", "uid-1")),
        executors=(("count-w-0", "w-0", 2),),
        shards=(("count/0", "count-w-0", "s"), ("count/1", "count-w-0", "s")),
    )
