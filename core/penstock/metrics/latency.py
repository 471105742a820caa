"""A latency histogram with a bounded relative error, mergeable and subtractable.

Buckets grow by 2%: a quantile read off is within 1% of a measured value (as DDSketch does it,
Masson et al., VLDB 2019, with alpha = 0.01), from 1 microsecond to days in about 1 300 buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

_GROWTH = 1.02
_LOG_GROWTH = math.log(_GROWTH)
_BUCKET_MAX = 2300
"""Of what takes as long as a 64-bit number of microseconds."""


def bucket_of(microseconds: float) -> int:
    """Index of the bucket that holds a latency; everything up to 1 microsecond is bucket 0."""
    return int(math.log(microseconds) / _LOG_GROWTH) + 1 if microseconds > 1.0 else 0


def value_of(bucket: int) -> float:
    """Middle of a bucket in microseconds; of one that nothing can be in, that of the last one."""
    return 1.0 if bucket == 0 else float(_GROWTH ** (min(bucket, _BUCKET_MAX) - 0.5))


class LatencyHistogram:
    """Sparse counts by bucket."""

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts: dict[int, int] = {} if counts is None else counts

    def record(self, microseconds: float, count: int = 1) -> None:
        bucket = bucket_of(microseconds)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def add(self, other: Mapping[int, int]) -> None:
        for bucket, count in other.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram:
        """What was recorded after `earlier`, an older reading of the same histogram."""
        grown = {b: n - earlier.counts.get(b, 0) for b, n in self.counts.items()}
        return LatencyHistogram({b: n for b, n in grown.items() if n > 0})

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile_us(self, q: float) -> float | None:
        """The latency that a share `q` of all records stays at or below; None without records."""
        total = self.total
        if total == 0:
            return None
        rank = max(1, math.ceil(q * total))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return value_of(bucket)
        return None

    def max_us(self) -> float | None:
        return value_of(max(self.counts)) if self.counts else None


def merged(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    out = LatencyHistogram()
    for histogram in histograms:
        out.add(histogram.counts)
    return out


def buckets_of(microseconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """`bucket_of` for an array."""
    safe = np.maximum(microseconds, 1.0)
    out: npt.NDArray[np.int64] = np.where(safe > 1.0, (np.log(safe) / _LOG_GROWTH).astype(np.int64) + 1, 0)
    return out
