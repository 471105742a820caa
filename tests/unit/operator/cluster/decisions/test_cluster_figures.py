"""Figures are differences; what is not known is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from penstock.figures.rates import Figures, figures_of_fused, figures_of_stage
from penstock.figures.samples import Sample, Samples, ShardSample, next_sample, operators_told
from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow
from penstock.store.codec import encode_counts
from penstock.store.port import ShardCounters, Watermark
from penstock_operator.cluster.decisions.figures import WINDOW_S, with_sample
from penstock_operator.cluster.observing.observed import Observed
from worlds.cluster_world import World, manifest


def histogram(*milliseconds: float) -> dict[int, int]:
    found = LatencyHistogram()
    for value in milliseconds:
        found.record(value * 1000)
    return found.counts


def row(rows: int, counts: dict[int, int], *, pid: int = 1, batches: int = 1) -> TaskRow:
    return TaskRow("e", "count", 0, "r", pid, 0, {"totals": counts}, {"totals": rows}, batches, 0)


@dataclass(frozen=True)
class Look:
    at_s: float
    shards: dict[str, ShardSample]
    rows: tuple[TaskRow, ...]


def look(at_s: float, done: dict[str, tuple[str, int, int]], *rows: TaskRow, **out: dict[str, int]) -> Look:
    """`out` is what came out of shards of count, by part."""
    shards = {
        name: ShardSample(home, generation, completed, out.get(f"p{name.removeprefix('count/')}", {}))
        for name, (home, generation, completed) in done.items()
    }
    return Look(at_s, shards, rows)


def window(*looks: Look) -> Samples:
    samples: list[Sample] = []
    for seen in looks:
        rows = {("node-a", f"task:{number}"): one for number, one in enumerate(seen.rows)}
        before = samples[-1] if samples else None
        samples.append(next_sample(before, seen.at_s, seen.shards, rows, operators_told(seen.rows)))
    return tuple(samples)


def test_a_stages_rate_is_the_rows_of_all_its_shards_over_the_time() -> None:
    samples = window(
        look(0.0, {"count/0": ("a", 1, 10), "count/1": ("b", 1, 0)}),
        look(2.0, {"count/0": ("a", 1, 30), "count/1": ("b", 1, 10)}),
    )
    assert figures_of_stage(samples, "count", ["count/0", "count/1"]).rate_per_s == 15.0


def test_no_difference_reaches_across_a_generation_a_move_or_a_gap() -> None:
    before = look(0.0, {"count/0": ("a", 1, 10)})
    for after in ({"count/0": ("a", 2, 30)}, {"count/0": ("b", 1, 30)}, {}):
        assert figures_of_stage(window(before, look(2.0, after)), "count", ["count/0"]) == Figures()
    assert figures_of_stage(window(before), "count", ["count/0"]) == Figures()


def test_a_rate_is_there_one_sample_after_its_shards_are_and_after_one_has_moved() -> None:
    looks = [look(float(at), {}) for at in range(5)]
    looks += [look(5.0, {"count/0": ("a", 1, 0)}), look(6.0, {"count/0": ("a", 1, 20)})]
    assert figures_of_stage(window(*looks), "count", ["count/0"]).rate_per_s == 20.0
    moved = look(7.0, {"count/0": ("b", 1, 30)})
    assert figures_of_stage(window(*looks, moved), "count", ["count/0"]) == Figures()
    after = look(8.0, {"count/0": ("b", 1, 60)})
    assert figures_of_stage(window(*looks, moved, after), "count", ["count/0"]).rate_per_s == 30.0


def test_a_sinks_latency_is_that_of_the_window_only() -> None:
    first = look(0.0, {}, row(3, histogram(500, 500, 500)))
    last = look(2.0, {}, row(7, histogram(500, 500, 500, 10, 10, 10, 20), batches=5))
    found = figures_of_fused(window(first, last), "totals", ["count/0"])
    assert found.p50_ms is not None
    assert abs(found.p50_ms - 10) < 0.2
    assert found.p99_ms is not None
    assert abs(found.p99_ms - 20) < 0.4


def test_another_writer_of_a_row_has_a_latency_of_its_own() -> None:
    first = look(0.0, {}, row(100, histogram(*[9.0] * 100)))
    last = look(2.0, {}, row(4, histogram(1, 1, 1, 1), pid=2))
    found = figures_of_fused(window(first, last), "totals", ["count/0"])
    assert found.p99_ms is not None
    assert found.p99_ms < 2
    assert figures_of_fused(window(first, last), "nobody", ["count/0"]) == Figures()


def test_a_sinks_rate_is_what_was_committed_to_it_by_all_shards_before_it() -> None:
    places = {"count/0": ("a", 1, 10), "count/1": ("b", 1, 0)}
    first = look(0.0, places, p0={"totals": 7, "other": 1})
    last = look(2.0, places, p0={"totals": 10, "other": 9}, p1={"totals": 3})
    assert figures_of_fused(window(first, last), "totals", places).rate_per_s == 3.0
    moved = look(2.0, {**places, "count/1": ("a", 1, 0)}, p0={"totals": 10}, p1={"totals": 3})
    assert figures_of_fused(window(first, moved), "totals", places).rate_per_s is None


def seen_with(world: World, rows: int) -> Observed:
    observed = world.observed()
    counters = ShardCounters(1, 1, 1, 0, rows, 0, 0, 0, 0, "e", False)
    readings = {
        name: replace(reading, shards=dict.fromkeys(reading.shards, counters))
        for name, reading in observed.readings.items()
        if reading is not None
    }
    return replace(observed, readings=readings)


def test_samples_are_taken_once_a_second_and_kept_for_the_window() -> None:
    world = World()
    world.run(15)
    schedules = [seen.schedule for seen in world.schedules.values()]
    samples: Samples = ()
    for tick in range(60):
        samples = with_sample(samples, seen_with(world, tick), schedules, tick / 2)
    assert samples[-1].at_s - samples[0].at_s >= WINDOW_S
    assert len(samples) <= WINDOW_S + 2
    found = figures_of_stage(samples, "count", world.schedules["words.count"].schedule.shards)
    assert found.rate_per_s == 16.0, "eight shards of two rows a second"


def test_the_status_has_a_rate_as_soon_as_it_runs() -> None:
    world = World()
    looks = []
    for _ in range(20):
        world.step()
        looks.append((world.status["phase"], world.status.get("rate")))
    begun = [phase for phase, _ in looks].index("Running")
    assert None not in [rate for _, rate in looks[begun + 1 :]], looks


def test_what_a_store_has_and_nobody_can_read_is_told_as_that() -> None:
    world = World()
    world.run(20)
    silent = {"node-a": None}
    world.step(
        look=lambda seen: replace(
            seen, readings={**seen.readings, **silent}, unreadable={"node-a": "its workers wrote over it"}
        )
    )
    assert world.condition("MetricsUnavailable") == ("True", "StateUnreadable")
    told = next(one for one in world.status["conditions"] if one["type"] == "MetricsUnavailable")
    assert told["message"] == "its workers wrote over it"


def test_a_store_that_does_not_answer_leaves_no_figure_and_is_told() -> None:
    world = World()
    world.run(20)
    world.step(look=lambda seen: replace(seen, readings={**seen.readings, "node-a": None}))
    assert world.condition("MetricsUnavailable") == ("True", "StoreUnanswered")
    entry = next(one for one in world.status["operators"] if one["name"] == "count")
    assert "ratePerSecond" not in entry
    assert "backlog" not in entry
    assert world.status["phase"] == "Running"
    assert world.deleted == []


TIMED: dict[str, Any] = {
    "spec__operators__1__outputSchema": "word string, at timestamp",
    "spec__operators__1__eventTime": {"column": "at"},
    "spec__operators__2__timeMode": "EventTime",
    "spec__operators__2__lateTo": {"console": {}},
}


def with_event_time(seen: Observed) -> Observed:
    """Each shard has told a watermark, and has three late rows."""
    readings = {
        name: replace(
            reading,
            shards={
                shard: structs.replace(
                    one, told=Watermark(1767268805250), counts=encode_counts({"count/late": 3})
                )
                for shard, one in reading.shards.items()
                if one is not None
            },
        )
        for name, reading in seen.readings.items()
        if reading is not None
    }
    return replace(seen, readings=readings)


def test_the_status_tells_watermarks_and_late_rows_where_there_is_event_time() -> None:
    world = World(manifest(**TIMED))
    world.run(20)
    entries = {entry["name"]: entry for entry in world.status["operators"]}
    assert "watermark" not in entries["lines"], "nothing was told yet"
    assert (entries["count"].get("watermark"), entries["count"]["lateRecords"]) == (None, 0)
    world.now_s += 2
    world.step(look=with_event_time)
    entries = {entry["name"]: entry for entry in world.status["operators"]}
    assert entries["lines"]["watermark"] == entries["count"]["watermark"] == "2026-01-01T12:00:05.250Z"
    assert entries["count"]["lateRecords"] == 3 * len(world.schedules["words.count"].schedule.shards)
    told = [name for name, entry in entries.items() if "watermark" in entry or "lateRecords" in entry]
    assert told == ["lines", "count"]
    assert "lateRecords" not in entries["lines"]
    world.step(look=lambda seen: replace(seen, readings={**seen.readings, "node-a": None}))
    entries = {entry["name"]: entry for entry in world.status["operators"]}
    assert "watermark" not in entries["count"], "a store that is not seen may hold it back"


def test_a_sink_of_late_rows_is_in_the_status_behind_the_topologys_own_operators() -> None:
    world = World(manifest(**TIMED))
    world.run(20)
    assert world.status["phase"] == "Running"
    named = [entry["name"] for entry in world.status["operators"]]
    assert named == ["lines", "split", "count", "totals", "count-late"]
