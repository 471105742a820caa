"""Rates, latencies and backlogs of a topology, from what its stores counted.

A figure is a difference between two samples; what is not known is None, never zero (promise 7): no difference
reaches across a store's generation, a shard's new home or another writer. Neighbours: `memory` keeps the
samples, `status` shows the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.metrics.latency import LatencyHistogram, merged
from penstock.metrics.rows import TaskRow, histogram_of, is_same_writer
from penstock.schedule.record import OperatorSchedule
from penstock.store.codec import decode_counts
from penstock_operator.cluster.observing.observed import Observed

WINDOW_S = 10.0
INTERVAL_S = 1.0
"""Samples are at least so far apart."""
ROW_AGE_US_MAX = 5_000_000
"""A task writes its row at least once a second; an older one tells nothing about now."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all stores. `completed` is shard -> (home, generation, rows worked), `out` what came out of
    the shard by operator, as `ShardCounters.counts`; `tasks` is (store, row name) -> row."""

    at_s: float
    completed: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    out: Mapping[str, bytes] = field(default_factory=dict)
    tasks: Mapping[tuple[str, str], TaskRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """One operator now. None: not known."""

    rate_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


def with_sample(
    samples: tuple[Sample, ...], observed: Observed, schedules: Iterable[OperatorSchedule], now_s: float
) -> tuple[Sample, ...]:
    """`samples` and this look, without what is too old; the same ones when the last is too new."""
    if samples and now_s - samples[-1].at_s < INTERVAL_S:
        return samples
    completed, out = {}, {}
    for schedule in schedules:
        for shard, place in schedule.shards.items():
            reading = observed.readings.get(place.home)
            counters = reading.shards.get(shard) if reading is not None else None
            if counters is not None:
                completed[shard] = (place.home, counters.generation, counters.completed_rows)
                out[shard] = counters.counts
    tasks = {
        (store, name): row
        for store, reading in observed.readings.items()
        if reading is not None
        for name, row in reading.tasks.items()
        if reading.now_us - row.at_us <= ROW_AGE_US_MAX
    }
    kept = [*samples, Sample(now_s, completed, out, tasks)]
    while len(kept) > 2 and kept[1].at_s <= now_s - WINDOW_S:
        kept.pop(0)
    return tuple(kept)


def figures_of_stage(samples: tuple[Sample, ...], operator: str, shards: Iterable[str]) -> Figures:
    """A source or processor: rows worked, over all its shards."""
    p50_ms, p99_ms = _latencies(samples, operator)
    if len(samples) < 2:
        return Figures(None, p50_ms, p99_ms)
    first, last = samples[0], samples[-1]
    rows = 0
    for shard in shards:
        before, now = first.completed.get(shard), last.completed.get(shard)
        if before is None or now is None or before[:2] != now[:2]:
            return Figures(None, p50_ms, p99_ms)
        rows += now[2] - before[2]
    return Figures(rows / (last.at_s - first.at_s), p50_ms, p99_ms)


def figures_of_fused(samples: tuple[Sample, ...], operator: str, shards: Iterable[str]) -> Figures:
    """A step or sink: rows that came out of it and were committed. `shards` are all of the stages that it is
    fused in."""
    p50_ms, p99_ms = _latencies(samples, operator)
    if len(samples) < 2:
        return Figures(None, p50_ms, p99_ms)
    first, last = samples[0], samples[-1]
    rows = 0
    for shard in shards:
        before, now = first.completed.get(shard), last.completed.get(shard)
        if before is None or now is None or before[:2] != now[:2]:
            return Figures(None, p50_ms, p99_ms)
        grown = [decode_counts(sample.out.get(shard, b"")).get(operator, 0) for sample in (first, last)]
        rows += grown[1] - grown[0]
    return Figures(rows / (last.at_s - first.at_s), p50_ms, p99_ms)


def _latencies(samples: tuple[Sample, ...], operator: str) -> tuple[float | None, float | None]:
    if len(samples) < 2:
        return None, None
    first, last = samples[0], samples[-1]
    recent = []
    for key, row in last.tasks.items():
        if operator not in row.latency:
            continue
        histogram = histogram_of(row, operator)
        before = first.tasks.get(key)
        if before is not None and is_same_writer(before, row):
            histogram = histogram.since(histogram_of(before, operator))
        recent.append(histogram)
    total: LatencyHistogram = merged(recent)
    return _ms(total.quantile_us(0.5)), _ms(total.quantile_us(0.99))


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 3)
