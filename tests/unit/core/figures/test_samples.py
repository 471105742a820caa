"""Samples add up what tasks tell, whoever writes it; figures are differences between two of them."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from penstock.figures.rates import (
    Figures,
    figures_of_delivered,
    figures_of_fused,
    figures_of_stage,
    rows_put_out,
    rows_worked,
)
from penstock.figures.samples import (
    Sample,
    ShardSample,
    Writer,
    next_sample,
    operators_told,
    sampled,
    within_window,
)
from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow
from penstock.store.codec import encode_counts
from penstock.store.port import ShardCounters

ONE: Writer = ("node-a", "task:1")
TWO: Writer = ("node-b", "task:2")


def row(*milliseconds: float, pid: int = 1) -> TaskRow:
    """A task of `count` that has told so many rows of sink `totals`, so old."""
    told = LatencyHistogram()
    for value in milliseconds:
        told.record(value * 1000)
    counts = {"totals": told.counts}
    return TaskRow("e", "count", 0, "r", pid, 0, counts, {"totals": len(milliseconds)}, len(milliseconds), 0)


def after(before: Sample | None, at_s: float, rows: dict[Writer, TaskRow]) -> Sample:
    return next_sample(before, at_s, {}, rows, operators_told(rows.values()))


def counted(sample: Sample) -> int:
    return sample.latency["totals"].total if "totals" in sample.latency else 0


def test_what_a_replaced_task_told_within_the_window_still_counts() -> None:
    first = after(None, 0.0, {ONE: row(1, 1)})
    then = after(first, 1.0, {ONE: row(1, 1, 90, 90)})
    last = after(then, 2.0, {ONE: row(1, pid=2)})
    found = figures_of_fused((first, then, last), "totals", [])
    assert found.p50_ms is not None
    assert abs(found.p50_ms - 90) < 2
    assert counted(last) == 5


def test_a_store_that_was_away_brings_nothing_twice() -> None:
    first = after(None, 0.0, {ONE: row(1), TWO: row(5, 5, 5)})
    away = after(first, 1.0, {ONE: row(1, 1)})
    back = after(away, 2.0, {ONE: row(1, 1), TWO: row(5, 5, 5, 5)})
    assert [counted(sample) for sample in (first, away, back)] == [4, 5, 6]


def test_a_sample_is_not_changed_by_those_after_it() -> None:
    first = after(None, 0.0, {ONE: row(1)})
    after(first, 1.0, {ONE: row(1, 1, 1)})
    assert counted(first) == 1


def test_an_operator_of_which_nobody_has_spoken_lately_has_no_latency() -> None:
    first = after(None, 0.0, {ONE: row(1)})
    last = replace(after(first, 1.0, {ONE: row(1, 1)}), heard=frozenset())
    assert figures_of_fused((first, last), "totals", []) == Figures(rate_per_s=0.0)


def test_rows_that_the_command_delivers_have_a_rate_of_their_own() -> None:
    first, last = Sample(0.0, delivered={"totals": 3}), Sample(2.0, delivered={"totals": 13})
    assert figures_of_delivered((first, last), "totals") == Figures(rate_per_s=5.0)
    assert figures_of_delivered((first,), "totals") == figures_of_delivered((), "totals") == Figures()


def test_two_samples_of_one_moment_have_no_rate() -> None:
    sample = Sample(1.0, {"count/0": ShardSample("a", 1, 5)})
    assert figures_of_stage((sample, sample), "count", ["count/0"]) == Figures()


def test_totals_are_known_when_every_shard_is() -> None:
    counters = ShardCounters(1, 3, 0, 0, 7, 0, 0, 0, 0, "", False, counts=encode_counts({"totals": 2}))
    one = sampled("a", counters)
    assert one == ShardSample("a", counters.generation, counters.completed_rows, {"totals": 2})
    sample = Sample(0.0, {"count/0": one, "count/1": structs.replace(one, out={})})
    shards = ["count/0", "count/1"]
    assert rows_worked(sample, shards) == 2 * counters.completed_rows
    assert rows_put_out(sample, "totals", shards) == 2
    assert rows_worked(sample, [*shards, "count/2"]) is None
    assert rows_put_out(sample, "totals", [*shards, "count/2"]) is None


def test_a_window_reaches_back_to_the_last_sample_that_is_old_enough() -> None:
    samples = tuple(Sample(float(second)) for second in range(20))
    kept = within_window(samples, 5.0)
    assert (kept[0].at_s, kept[-1].at_s) == (14.0, 19.0)
    assert within_window(samples[:2], 0.1) == samples[:2], "two are kept, however old"
