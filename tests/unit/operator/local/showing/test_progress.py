"""From readings of the store to rates, latencies and totals; what is missing stays missing."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.dataflow.outline import OutlinedOperator
from penstock.figures.operators import OperatorFigures
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.latency import bucket_of
from penstock.metrics.rows import (
    ROW_AGE_US_MAX,
    ShardRow,
    TaskRow,
    WorkerRow,
    pack,
    shard_row_name,
    worker_row_name,
)
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.store.codec import encode_counts
from penstock.store.port import ShardCounters, Watermark
from penstock_operator.local.showing.progress import (
    TREND_POINTS,
    ProgressReader,
    Reading,
    task_and_worker_rows,
)

OPERATORS = (
    OutlinedOperator("lines", "source", "lines"),
    OutlinedOperator("words", "step", "lines"),
    OutlinedOperator("count", "keyed", "count"),
    OutlinedOperator("totals", "sink", "count"),
)
NO_SHARD = ShardCounters(1, 1, 0, 0, 0, 0, 0, 0, 0, "", False)


def counters(
    completed: int = 0, arrived: int = 0, inbox: int = 0, generation: int = 1, **out: int
) -> ShardCounters:
    """`out` came out by name."""
    return replace(
        NO_SHARD,
        completed_rows=completed,
        arrived_rows=arrived or completed,
        inbox_entries=inbox,
        generation=generation,
        counts=encode_counts(out),
    )


def task(
    counts: dict[str, int], ms: dict[str, float] | None = None, pid: int = 1, at_s: float = 0.0
) -> TaskRow:
    """A task of `count`; all rows of an operator have one latency."""
    latency = {name: {bucket_of(value * 1000): counts[name]} for name, value in (ms or {}).items()}
    return TaskRow(
        "count-w0", "count", 0, "ready", pid, int(at_s * 1e6), latency, counts, sum(counts.values()), 0
    )


def reading(at_s: float, count: ShardCounters | None = NO_SHARD, tasks: tuple[TaskRow, ...] = ()) -> Reading:
    rows: dict[str, TaskRow | WorkerRow] = {
        f"task:w0:count-w0:{number}": row for number, row in enumerate(tasks)
    }
    return Reading(at_s, int(at_s * 1e6), {"lines": (NO_SHARD,), "count": (count,)}, rows)


SCHEDULE = OperatorSchedule(
    "count",
    1,
    0,
    (WorkerPlace("w0", "local", "local", "u0"), WorkerPlace("w1", "local", "local", "u1")),
    (ExecutorPlace("count-w0", "w0", 2), ExecutorPlace("count-w1", "w1", 2)),
    {"count/0": ShardPlace("count-w0", "local")},
)


def line(reader: ProgressReader, name: str) -> OperatorFigures:
    return {each.name: each for each in reader.progress({"count": SCHEDULE})}[name]


def test_before_anything_is_read_all_is_unknown() -> None:
    shown = line(ProgressReader(OPERATORS), "count")
    assert (shown.rate_per_s, shown.p50_ms, shown.records, shown.inbox_rows, shown.tasks_ready) == (None,) * 5


def test_a_stage_is_counted_by_the_store_since_the_start_of_the_run() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(1000)))
    reader.take(reading(2, counters(1300)))
    shown = line(reader, "count")
    assert (shown.rate_per_s, shown.records) == (150.0, 300)


def test_a_rate_looks_back_five_seconds_only() -> None:
    reader = ProgressReader(OPERATORS)
    for second in range(11):
        reader.take(reading(second, counters(1000 if second >= 6 else 100 * second)))
    assert line(reader, "count").rate_per_s == 100.0
    reader.take(reading(11, counters(1000)))
    assert line(reader, "count").rate_per_s == 0.0


def test_no_difference_reaches_across_a_start_of_the_store() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(1000)))
    reader.take(reading(1, counters(2000, generation=2)))
    assert line(reader, "count").rate_per_s is None
    reader.take(reading(2, counters(2100, generation=2)))
    assert line(reader, "count").rate_per_s == 100.0


def test_a_shard_that_the_store_does_not_know_makes_its_stage_unknown() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, None))
    reader.take(reading(1, None))
    shown = line(reader, "count")
    assert (shown.rate_per_s, shown.records, shown.inbox_entries) == (None, None, None)


def test_what_waits_is_told_in_entries_and_rows() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(10, arrived=25, inbox=3)))
    shown = line(reader, "count")
    assert (shown.inbox_entries, shown.inbox_rows) == (3, 15)
    assert line(reader, "lines").inbox_entries is None


def test_a_fused_operator_is_counted_by_the_store_since_the_start_of_the_run() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(totals=1000)))
    reader.take(reading(2, counters(totals=1070)))
    shown = line(reader, "totals")
    assert (shown.rate_per_s, shown.records) == (35.0, 70)
    assert shown.shards is None
    assert line(reader, "words").records == 0


def test_what_tasks_tell_of_rows_counts_nothing_twice() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(), (task({"totals": 100}),)))
    reader.take(reading(1, counters(totals=107), (task({"totals": 5}, pid=2, at_s=1),)))
    assert line(reader, "totals").records == 107


def test_a_shard_that_the_store_does_not_know_makes_fused_operators_unknown() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(totals=5)))
    reader.take(reading(1, None))
    shown = line(reader, "totals")
    assert (shown.rate_per_s, shown.records) == (None, None)


def test_a_fused_operator_whose_tasks_are_silent_has_no_latency() -> None:
    reader = ProgressReader(OPERATORS)
    silent = task({"totals": 10}, {"totals": 2.0})
    reader.take(reading(0, counters(), (silent,)))
    reader.take(reading(ROW_AGE_US_MAX / 1e6 + 1, counters(totals=10), (silent,)))
    shown = line(reader, "totals")
    assert (shown.p99_ms, shown.records) == (None, 10)


def test_latency_is_of_the_window_and_of_all_tasks_together() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, tasks=(task({"totals": 1000}, {"totals": 500.0}),)))
    fast = TaskRow(
        "count-w0", "count", 0, "r", 1, 1_000_000,
        {"totals": {bucket_of(500_000): 1000, bucket_of(2_000): 98, bucket_of(40_000): 2}},
        {"totals": 1100}, 1100, 0,
    )  # fmt: skip
    reader.take(reading(1, tasks=(fast,)))
    shown = line(reader, "totals")
    assert shown.p50_ms is not None
    assert shown.p99_ms is not None
    assert abs(shown.p50_ms - 2) < 0.05
    assert abs(shown.p99_ms - 40) < 0.8


def test_nothing_in_the_window_has_no_latency() -> None:
    reader = ProgressReader(OPERATORS)
    for second in (0, 1):
        reader.take(reading(second, tasks=(task({"totals": 10}, {"totals": 2.0}, at_s=second),)))
    assert line(reader, "totals").p50_ms is None


def test_totals_cover_the_whole_run_and_all_starts_of_tasks() -> None:
    reader = ProgressReader(OPERATORS)
    reader.take(reading(0, counters(), (task({"totals": 99}, {"totals": 2.0}),)))
    reader.take(reading(60, counters(totals=100), (task({"totals": 1}, {"totals": 800.0}, pid=2, at_s=60),)))
    total = {each.name: each for each in reader.totals()}["totals"]
    assert total.records == 100
    assert total.p50_ms is not None
    assert total.max_ms is not None
    assert abs(total.p50_ms - 2) < 0.05
    assert abs(total.max_ms - 800) < 10


def test_rows_that_the_command_delivers_are_counted_by_itself() -> None:
    reader = ProgressReader(OPERATORS, ["totals"])
    reader.take(reading(0))
    reader.deliver("totals", [1000, 2000, 3000])
    reader.take(reading(1))
    shown = line(reader, "totals")
    assert (shown.rate_per_s, shown.records) == (3.0, 3)
    assert shown.p50_ms is not None
    assert abs(shown.p50_ms - 2) < 0.05


def test_tasks_are_those_that_their_workers_report_lately() -> None:
    reader = ProgressReader(OPERATORS)
    rows: dict[str, TaskRow | WorkerRow] = {
        "worker:w0": WorkerRow("w0", "u0", 0, 1, "ready", "", 10_000_000, {"count-w0": 2, "lines-w0": 1}),
        "worker:w1": WorkerRow("w1", "u1", 0, 1, "ready", "", 1_000_000, {"count-w1": 2}),
    }
    reader.take(Reading(10, 10_000_000, {"lines": (NO_SHARD,), "count": (NO_SHARD,) * 8}, rows))
    shown = line(reader, "count")
    assert (shown.tasks_ready, shown.executors, shown.workers, shown.shards) == (2, 2, 2, 8)
    assert (shown.tasks_wanted, shown.tasks_remote) == (4, 0)


def test_the_trend_has_a_point_a_second_and_forgets_the_oldest() -> None:
    reader = ProgressReader(OPERATORS)
    for tick in range(4 * 40):
        reader.take(reading(tick / 4, counters(25 * tick)))
    trend = line(reader, "count").trend
    assert len(trend) == TREND_POINTS
    assert trend[-1] == 100.0


def test_rows_of_an_earlier_run_and_of_shards_are_left_out() -> None:
    old = pack(WorkerRow("w0", "old", 0, 1, "ready", "", 5, {}))
    new = pack(WorkerRow("w1", "new", 0, 1, "ready", "", 15, {}))
    shard = pack(ShardRow(1, 1, 15, 0, 0, 0))
    packed = {worker_row_name("w0"): old, worker_row_name("w1"): new, shard_row_name("count/0"): shard}
    told = task_and_worker_rows(packed, HeardRows(), now_us=16, since_us=10)
    assert list(told) == [worker_row_name("w1")]


def test_late_rows_are_those_of_this_run_and_a_watermark_lags_behind_the_clock() -> None:
    timed = (
        OutlinedOperator("lines", "source", "lines", timed_by=("lines",)),
        OutlinedOperator("count", "keyed", "count", timed_by=("lines",)),
    )
    reader = ProgressReader(timed)
    assert line(reader, "count").late_rows is None
    assert line(reader, "count").has_event_time
    lines = replace(NO_SHARD, told=Watermark(1500))
    for at_s, late in ((2.0, 5), (4.0, 8)):
        shards = {"lines": (lines,), "count": (counters(9, **{"count/late": late}),)}
        reader.take(Reading(at_s, int(at_s * 1e6), shards, {}))
    shown = line(reader, "count")
    assert (shown.watermark_ms, shown.watermark_lag_ms, shown.late_rows) == (1500, 2500, 3)
    assert [total.late_rows for total in reader.totals()] == [None, 3]
