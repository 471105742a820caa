"""Seconds at each level of degradation (N-Storm V.B): 60% is throughput at or under 40% of normal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BUCKET_S = 0.1
LEVELS = (20, 40, 60, 80, 100)


def buckets(
    at_s: NDArray[np.float64], records: NDArray[np.int64], start_s: float, end_s: float
) -> NDArray[np.int64]:
    """Records that came in each bucket of 100 ms from start_s to end_s; `records` came at `at_s`, each."""
    count = round((end_s - start_s) / BUCKET_S)
    number = np.floor((at_s - start_s) / BUCKET_S).astype(np.int64)
    inside = (number >= 0) & (number < count)
    out = np.zeros(count, dtype=np.int64)
    np.add.at(out, number[inside], records[inside])
    return out


def seconds_at(counts: NDArray[np.int64], normal: float) -> dict[str, float]:
    """Level in percent -> seconds in which throughput was lower than normal by at least so much.

    `normal` is the records of a bucket while nothing happens.
    """
    lost_percent = 100 * (1 - counts / normal)
    return {str(level): round(float((lost_percent >= level - 1e-9).sum() * BUCKET_S), 1) for level in LEVELS}
