"""Samples of what stores counted and tasks told, from which all shown figures are made.

Rows are counted where they are committed, with the shards: a sample holds these totals by shard, with the
store and its generation, since no difference reaches across them. Latencies are told by tasks, each from its
own start: a sample holds what all of them have told so far, also those that were replaced meanwhile. Pure.
Neighbours: `rates` makes figures; the live view of `penstock run` and a Topology's status take the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow, histogram_of, is_same_writer
from penstock.store.codec import decode_counts
from penstock.store.port import ShardCounters

Writer = tuple[str, str]
"""A store, and the name of a metric row in it."""


class ShardSample(msgspec.Struct, frozen=True, gc=False):
    """`out` is what came out of the shard so far, by operator."""

    home: str
    generation: int
    completed_rows: int
    out: Mapping[str, int] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. `shards` has those that were seen; `told` the last row of each writer; `latency` is operator
    -> all that was told of it so far; `heard` are the operators of which a task has spoken lately.
    `delivered` are rows that whoever shows has written itself, by sink."""

    at_s: float
    shards: Mapping[str, ShardSample] = field(default_factory=dict)
    told: Mapping[Writer, TaskRow] = field(default_factory=dict)
    latency: Mapping[str, LatencyHistogram] = field(default_factory=dict)
    heard: frozenset[str] = frozenset()
    delivered: Mapping[str, int] = field(default_factory=dict)


Samples = tuple[Sample, ...]
"""Those of a window, oldest first."""


def sampled(home: str, counters: ShardCounters) -> ShardSample:
    return ShardSample(home, counters.generation, counters.completed_rows, decode_counts(counters.counts))


def operators_told(rows: Iterable[TaskRow]) -> frozenset[str]:
    """The operators that these rows tell of."""
    return frozenset(name for row in rows for name in (*row.rows, *row.latency))


def next_sample(
    before: Sample | None,
    at_s: float,
    shards: Mapping[str, ShardSample],
    rows: Mapping[Writer, TaskRow],
    heard: frozenset[str],
) -> Sample:
    """The sample after `before`. `rows` are those that are there now, old ones too; a writer that is not
    among them (its store is away) keeps its last word."""
    told = dict(before.told) if before is not None else {}
    latency = dict(before.latency) if before is not None else {}
    for writer, row in rows.items():
        for operator, grown in _grown(told.get(writer), row).items():
            total = LatencyHistogram(dict(latency[operator].counts) if operator in latency else {})
            total.add(grown.counts)
            latency[operator] = total
        told[writer] = row
    return Sample(at_s, shards, told, latency, heard)


def within_window(samples: Samples, window_s: float) -> Samples:
    """Without those that are too old; the first is the last one that the window reaches back to."""
    first = 0
    while len(samples) - first > 2 and samples[first + 1].at_s <= samples[-1].at_s - window_s:
        first += 1
    return samples[first:]


def _grown(before: TaskRow | None, row: TaskRow) -> dict[str, LatencyHistogram]:
    """What a writer has told since its last row: all of it where that was another one's."""
    if before is None or not is_same_writer(before, row):
        return {name: histogram_of(row, name) for name in row.latency}
    return {
        name: histogram_of(row, name).since(histogram_of(before, name))
        for name, counts in row.latency.items()
        if counts != before.latency.get(name)
    }
