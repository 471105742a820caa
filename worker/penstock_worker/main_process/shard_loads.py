"""Load of each shard over the last second, from the rows that tasks leave (Elasticutor 3.1: the
aggregated computation cost of the records processed in one-second sliding windows).

A difference across an epoch or a generation is missing, not zero: None holds the shard where it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from penstock.metrics.rows import ShardRow

WINDOW_US = 1_000_000


class ShardLoads:
    """Feed it every cycle; it keeps a second of samples a shard."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, ShardRow]]] = {}

    def observe(self, rows: Mapping[str, ShardRow], now_us: int) -> None:
        """`now_us` is the reader's monotonic clock."""
        for shard in self._samples.keys() - rows.keys():
            del self._samples[shard]
        for shard, row in rows.items():
            samples = self._samples.setdefault(shard, deque())
            if samples and _writer(samples[-1][1]) != _writer(row):
                samples.clear()
            samples.append((now_us, row))
            # The sample at or just before the window's start stays: it is the window's base.
            while len(samples) > 2 and samples[1][0] <= now_us - WINDOW_US:
                samples.popleft()

    def last_second(self, shards: Iterable[str], now_us: int) -> dict[str, float | None]:
        """Shard -> share of one core it took over the window; None where that is not known."""
        return {shard: self._load(self._samples.get(shard), now_us) for shard in shards}

    def _load(self, samples: deque[tuple[int, ShardRow]] | None, now_us: int) -> float | None:
        if samples is None or len(samples) < 2:
            return None
        began_us, first = samples[0]
        took_us = now_us - began_us
        if took_us < WINDOW_US // 2:
            return None
        return (samples[-1][1].busy_us - first.busy_us) / took_us


def _writer(row: ShardRow) -> tuple[int, int]:
    return (row.epoch, row.generation)
