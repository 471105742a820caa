"""Rates and latencies of an operator over a window of samples.

A figure is a difference between the window's two ends. What is not known is None, never zero (promise 7): no
difference reaches across a store's generation, a shard's new home or a gap, and an operator of which no task
has spoken lately has no latency. A rate begins at the first sample of the window from which it may reach to
the last, so it is there one sample after rows flow, or after a shard has arrived. Pure. Neighbour: `samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.figures.samples import Sample, Samples, ShardSample


@dataclass(frozen=True, slots=True)
class Figures:
    """One operator now. None: not known."""

    rate_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


def figures_of_stage(samples: Samples, operator: str, shards: Iterable[str]) -> Figures:
    """A source or processor: rows worked, over all its shards."""
    return _figures(samples, operator, _rate_per_s(samples, shards, lambda shard: shard.completed_rows))


def figures_of_fused(samples: Samples, operator: str, shards: Iterable[str]) -> Figures:
    """A step or sink: rows that came out of it and were committed. `shards` are all of the stages that it is
    fused in."""
    return _figures(samples, operator, _rate_per_s(samples, shards, lambda shard: shard.out.get(operator, 0)))


def figures_of_delivered(samples: Samples, sink: str) -> Figures:
    """A sink whose rows are written by who shows them."""
    if not samples:
        return Figures()
    rows = samples[-1].delivered[sink] - samples[0].delivered[sink]
    return _figures(samples, sink, _per_s(rows, samples[0], samples[-1]))


def rows_worked(sample: Sample, shards: Iterable[str]) -> int | None:
    """In all, by a stage; None when a shard was not seen."""
    return _total(sample, shards, lambda shard: shard.completed_rows)


def rows_put_out(sample: Sample, operator: str, shards: Iterable[str]) -> int | None:
    """In all, by a step or sink; None when a shard was not seen."""
    return _total(sample, shards, lambda shard: shard.out.get(operator, 0))


def milliseconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def _total(sample: Sample, shards: Iterable[str], count: Callable[[ShardSample], int]) -> int | None:
    rows = 0
    for name in shards:
        shard = sample.shards.get(name)
        if shard is None:
            return None
        rows += count(shard)
    return rows


def _rate_per_s(samples: Samples, shards: Iterable[str], count: Callable[[ShardSample], int]) -> float | None:
    """Rows a second, from the first sample in which all `shards` are as in the last one."""
    names = tuple(shards)
    for first in samples[:-1]:
        rows = _difference(first, samples[-1], names, count)
        if rows is not None:
            return _per_s(rows, first, samples[-1])
    return None


def _difference(
    first: Sample, last: Sample, shards: Iterable[str], count: Callable[[ShardSample], int]
) -> int | None:
    rows = 0
    for name in shards:
        before, now = first.shards.get(name), last.shards.get(name)
        if before is None or now is None or (before.home, before.generation) != (now.home, now.generation):
            return None
        rows += count(now) - count(before)
    return rows


def _per_s(rows: int, first: Sample, last: Sample) -> float | None:
    passed_s = last.at_s - first.at_s
    return rows / passed_s if passed_s > 0 else None


def _figures(samples: Samples, operator: str, rate_per_s: float | None) -> Figures:
    if len(samples) < 2:
        return Figures()
    first, last = samples[0], samples[-1]
    latency = last.latency.get(operator)
    if latency is None or operator not in last.heard:
        return Figures(rate_per_s)
    if operator in first.latency:
        latency = latency.since(first.latency[operator])
    return Figures(
        rate_per_s, milliseconds(latency.quantile_us(0.5)), milliseconds(latency.quantile_us(0.99))
    )
