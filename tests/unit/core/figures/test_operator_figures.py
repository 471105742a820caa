"""All figures of an operator: whole looks go in, whole lines come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from penstock.dataflow.outline import OutlinedOperator
from penstock.figures.operators import Look, OperatorFigures, Waiting, operator_figures, waiting_in
from penstock.figures.samples import Sample, ShardSample
from penstock.metrics.latency import LatencyHistogram
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.store.port import ShardCounters, Watermark

COUNT = OutlinedOperator("count", "keyed", "count")
TOTALS = OutlinedOperator("totals", "sink", "count", ("other",))
CLICKS = OutlinedOperator("clicks", "source", "clicks", timed_by=("clicks",))
SESSIONS = OutlinedOperator("sessions", "keyed", "sessions", timed_by=("clicks", "views"))
SEEN = ShardCounters(1, 1, 1, 25, 10, 3, 0, 0, 0, "e", False)
SCHEDULE = OperatorSchedule(
    "count",
    7,
    0,
    (WorkerPlace("w0", "a", "a", "u0"), WorkerPlace("w1", "b", "b", "u1")),
    (ExecutorPlace("c0", "w0", 3, (("b", 1),)), ExecutorPlace("c1", "w1", 1)),
    {"count/0": ShardPlace("c0", "a"), "count/1": ShardPlace("c1", "b")},
)


def sample(at_s: float, rows: int) -> Sample:
    latency = LatencyHistogram()
    for _ in range(rows):
        latency.record(2000)
    shards = {f"count/{part}": ShardSample("a", 1, rows, {"totals": rows}) for part in range(2)}
    shards["other/0"] = ShardSample("a", 1, 0, {"totals": rows})
    return Sample(at_s, shards, latency={"totals": latency}, heard=frozenset({"totals"}))


def running(place: WorkerPlace) -> Mapping[str, int] | None:
    return {("w0", "u0"): {"c0": 9}}.get((place.name, place.uid), {})


LOOK = Look(
    (sample(0.0, 10), sample(2.0, 30)),
    {"count": ["count/0", "count/1"], "other": ["other/0"]},
    {"count": [SEEN, SEEN]},
    {"count": SCHEDULE},
    running,
)


def test_a_stage_has_all_figures() -> None:
    assert operator_figures(COUNT, LOOK) == OperatorFigures(
        "count", "keyed", "count", rate_per_s=20.0, inbox_entries=6,
        inbox_rows=waiting_rows(), workers=2, executors=2, tasks_wanted=4,
        tasks_ready=3, tasks_remote=1, shards=2,
    )  # fmt: skip


def waiting_rows() -> int:
    return 2 * (SEEN.arrived_rows - SEEN.completed_rows)


def test_a_fused_operator_has_what_comes_out_of_all_stages_that_run_it() -> None:
    found = operator_figures(TOTALS, LOOK)
    assert (found.rate_per_s, found.tasks_wanted, found.shards, found.inbox_entries) == (
        30.0,
        None,
        None,
        None,
    )
    assert found.p50_ms is not None
    assert abs(found.p50_ms - 2) < 0.05


def test_a_fused_operator_is_not_known_while_a_stage_that_runs_it_is_not() -> None:
    look = replace(LOOK, shards={"count": ["count/0", "count/1"]})
    assert operator_figures(TOTALS, look) == OperatorFigures("totals", "sink", "count")


def test_of_an_operator_without_schedule_only_its_name_is_known() -> None:
    assert operator_figures(COUNT, Look()) == OperatorFigures("count", "keyed", "count")


def test_what_waits_is_not_known_where_one_shard_was_not_seen_and_of_a_source_nothing_waits() -> None:
    assert waiting_in([SEEN, None]) is None
    assert waiting_in([SEEN]) == Waiting(3, waiting_rows() // 2)
    source = replace(COUNT, kind="source")
    assert operator_figures(source, LOOK).inbox_entries is None


def test_tasks_of_another_start_of_a_worker_and_more_than_are_scheduled_do_not_count() -> None:
    other = replace(SCHEDULE, workers=(replace(SCHEDULE.workers[0], uid="u9"), SCHEDULE.workers[1]))
    assert operator_figures(COUNT, replace(LOOK, schedules={"count": other})).tasks_ready == 0
    assert operator_figures(COUNT, LOOK).tasks_ready == 3


def test_where_no_worker_can_be_heard_the_number_of_tasks_is_not_known() -> None:
    assert operator_figures(COUNT, replace(LOOK, running=lambda _: None)).tasks_ready is None


def test_what_is_unseen_keeps_what_the_schedule_says() -> None:
    unseen = replace(operator_figures(COUNT, LOOK), records=9, trend=(1.0,)).unseen()
    assert unseen == OperatorFigures(
        "count",
        "keyed",
        "count",
        workers=2,
        executors=2,
        tasks_wanted=4,
        tasks_remote=1,
        shards=2,
        trend=(1.0,),
    )


def told(*watermarks: Watermark | None) -> list[ShardCounters | None]:
    return [structs.replace(SEEN, told=watermark) for watermark in watermarks]


TIMED = Look(
    (Sample(0.0, {"sessions/0": ShardSample("a", 1, 9, {"sessions/late": 3}),
                  "sessions/1": ShardSample("a", 1, 9, {"sessions": 9})}),),
    {"sessions": ["sessions/0", "sessions/1"]},
    {"clicks": told(Watermark(7000), Watermark(9000)), "views": told(Watermark(5000, is_idle=True)),
     "sessions": told(Watermark(1000))},
    now_ms=10_500,
)  # fmt: skip


def watermark_of(operator: OutlinedOperator, look: Look) -> tuple[int | None, int | None]:
    found = operator_figures(operator, look)
    return found.watermark_ms, found.watermark_lag_ms


def test_a_source_has_the_watermark_that_all_its_shards_told_and_a_processor_that_of_its_input() -> None:
    assert watermark_of(CLICKS, TIMED) == (7000, 3500)
    assert watermark_of(SESSIONS, TIMED) == (7000, 3500), "nobody waits for idle views"
    ahead = replace(TIMED, now_ms=6000)
    assert watermark_of(CLICKS, ahead) == (7000, -1000), "event time may be ahead of the clock"


def test_a_watermark_is_not_known_while_a_shard_told_nothing_or_was_not_seen() -> None:
    for missing in (told(Watermark(7000), None), [*told(Watermark(7000)), None], []):
        look = replace(TIMED, counters={**TIMED.counters, "clicks": missing})
        assert watermark_of(CLICKS, look) == (None, None)
        assert watermark_of(SESSIONS, look) == (None, None)


def test_of_an_input_that_is_idle_there_is_no_lag_and_without_a_clock_neither() -> None:
    ended = replace(TIMED, counters={"clicks": told(Watermark(7000, is_idle=True))})
    assert watermark_of(CLICKS, ended) == (7000, None)
    assert watermark_of(CLICKS, replace(TIMED, now_ms=None)) == (7000, None)


def test_late_rows_are_those_of_all_shards_and_not_known_where_one_was_not_seen() -> None:
    assert operator_figures(SESSIONS, TIMED).late_rows == 3
    unseen = replace(TIMED, shards={"sessions": ["sessions/0", "sessions/1", "sessions/2"]})
    assert operator_figures(SESSIONS, unseen).late_rows is None
    assert operator_figures(SESSIONS, replace(TIMED, samples=())).late_rows is None
    assert operator_figures(CLICKS, TIMED).late_rows is None, "at a source no row is late"


def test_what_has_no_event_time_has_no_watermark_and_no_late_rows() -> None:
    found = operator_figures(replace(SESSIONS, timed_by=()), TIMED)
    assert not found.has_event_time
    assert (found.watermark_ms, found.watermark_lag_ms, found.late_rows) == (None, None, None)


def test_what_is_unseen_still_has_event_time_but_no_watermark() -> None:
    unseen = operator_figures(SESSIONS, TIMED).unseen()
    assert unseen.has_event_time
    assert (unseen.watermark_ms, unseen.watermark_lag_ms, unseen.late_rows) == (None, None, None)
