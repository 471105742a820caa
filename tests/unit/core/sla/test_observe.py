"""What a look says of an operator: who speaks, who holds what, and what is known of no moment."""

from __future__ import annotations

from penstock.metrics.rows import ShardRow
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.sla.look import Places, Samples, SlaLook
from penstock.sla.observe import TASK_SILENT_US, Observer, waiting_rows
from penstock.store.port import ShardCounters

NOW_US = 10_000_000
SCHEDULE = OperatorSchedule(
    operator="count",
    version=1,
    term=0,
    workers=(WorkerPlace("w0", "n0", "h", "u"), WorkerPlace("w1", "n1", "h", "v")),
    executors=(ExecutorPlace("a", "w0", 2), ExecutorPlace("b", "w1", 1)),
    shards={"count/0": ShardPlace("a", "n0"), "count/1": ShardPlace("b", "n1")},
)


def look(spoke: dict[str, list[int]], arrived: int = 9, completed: int = 4) -> SlaLook:
    counters: dict[str, ShardCounters | None] = {
        shard: ShardCounters(1, 1, 1, arrived, completed, 0, 0, 0, 0, place.executor, False)
        for shard, place in SCHEDULE.shards.items()
    }
    rows = {shard: ShardRow(1, 1, NOW_US, completed, 0, 0) for shard in SCHEDULE.shards}
    return SlaLook(NOW_US, Samples({"count": counters}, rows, spoke), Places({"count": SCHEDULE}, {}, {}))


def test_executors_are_seen_with_the_tasks_that_have_spoken_lately() -> None:
    late_us = NOW_US - TASK_SILENT_US - 1
    seen = Observer("count").snapshot(look({"a": [NOW_US, late_us], "b": [NOW_US, NOW_US]}))
    assert [(one.name, one.tasks, one.tasks_ready, one.node) for one in seen.executors] == [
        ("a", 2, 1, "n0"),
        ("b", 1, 1, "n1"),
    ]
    assert seen.assignment == {"count/0": "a", "count/1": "b"}
    assert not seen.treatment


def test_of_the_shards_of_a_silent_executor_nothing_is_known() -> None:
    seen = Observer("count").snapshot(look({"a": [NOW_US]}))
    assert seen.samples["count/0"] is not None
    assert seen.samples["count/1"] is None


def test_rows_wait_that_have_arrived_and_are_not_completed_where_that_is_known() -> None:
    samples = look({}).samples
    unknown = Samples({"count": {**samples.counters["count"], "count/1": None}}, {}, {})
    assert waiting_rows("count", unknown) == {"count/0": 5, "count/1": None}


def test_the_names_that_are_taken_are_those_of_all_executors() -> None:
    assert look({}).places.executors == {"a", "b"}
