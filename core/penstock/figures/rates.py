"""Rates and latencies of an operator over a window of samples.

A figure is a difference between the window's two ends. What is not known is None, never zero (promise 7): no
difference reaches across a store's generation, a shard's new home or a gap, and an operator of which no task
has spoken lately has no latency. Pure. Neighbour: `samples`.
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
    return _figures(samples, operator, _growth(samples, shards, lambda shard: shard.completed_rows))


def figures_of_fused(samples: Samples, operator: str, shards: Iterable[str]) -> Figures:
    """A step or sink: rows that came out of it and were committed. `shards` are all of the stages that it is
    fused in."""
    return _figures(samples, operator, _growth(samples, shards, lambda shard: shard.out.get(operator, 0)))


def figures_of_delivered(samples: Samples, sink: str) -> Figures:
    """A sink whose rows are written by who shows them."""
    grown = samples[-1].delivered[sink] - samples[0].delivered[sink] if samples else None
    return _figures(samples, sink, grown)


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


def _growth(samples: Samples, shards: Iterable[str], count: Callable[[ShardSample], int]) -> int | None:
    if not samples:
        return None
    rows = 0
    for name in shards:
        before, now = samples[0].shards.get(name), samples[-1].shards.get(name)
        if before is None or now is None or (before.home, before.generation) != (now.home, now.generation):
            return None
        rows += count(now) - count(before)
    return rows


def _figures(samples: Samples, operator: str, grown: int | None) -> Figures:
    if len(samples) < 2:
        return Figures()
    first, last = samples[0], samples[-1]
    passed_s = last.at_s - first.at_s
    rate_per_s = grown / passed_s if grown is not None and passed_s > 0 else None
    latency = last.latency.get(operator)
    if latency is None or operator not in last.heard:
        return Figures(rate_per_s)
    if operator in first.latency:
        latency = latency.since(first.latency[operator])
    return Figures(
        rate_per_s, milliseconds(latency.quantile_us(0.5)), milliseconds(latency.quantile_us(0.99))
    )
