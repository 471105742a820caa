"""Whether a rate was held: what waits must not grow. One rule for both systems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

GROWTH_SHARE_MAX = 0.03
"""A backlog may grow by this share of the rate before it counts as growing: what a sawtooth of few
micro-batches looks like when nothing grows."""


def growth_per_s(at_s: Sequence[float], waiting: Sequence[float]) -> float:
    """Slope of the least-squares line through (time, records that wait). ValueError for under 3 points."""
    if len(at_s) < 3:
        raise ValueError("a backlog of under three readings has no trend")
    slope, _ = np.polyfit(np.asarray(at_s) - at_s[0], np.asarray(waiting, dtype=np.float64), 1)
    return float(slope)


def is_held(at_s: Sequence[float], waiting: Sequence[float], rate_per_s: float) -> bool:
    """Too few readings to tell is not held: a system that answers thrice in a run holds nothing."""
    return len(at_s) >= 3 and growth_per_s(at_s, waiting) <= GROWTH_SHARE_MAX * rate_per_s
