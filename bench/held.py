"""Whether a rate was held (what waits must not grow), and the highest that is: one rule for both systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

GROWTH_SHARE_MAX = 0.03
"""A backlog may grow by this share of the rate before it counts as growing: what a sawtooth of few
micro-batches looks like when nothing grows."""


class _Held(Protocol):
    @property
    def held(self) -> bool: ...


Run = TypeVar("Run", bound=_Held)


def growth_per_s(at_s: Sequence[float], waiting: Sequence[float]) -> float:
    """Slope of the least-squares line through (time, records that wait). ValueError for under 3 points."""
    if len(at_s) < 3:
        raise ValueError("a backlog of under three readings has no trend")
    slope, _ = np.polyfit(np.asarray(at_s) - at_s[0], np.asarray(waiting, dtype=np.float64), 1)
    return float(slope)


def is_held(at_s: Sequence[float], waiting: Sequence[float], rate_per_s: float) -> bool:
    """Too few readings to tell is not held: a system that answers thrice in a run holds nothing."""
    return len(at_s) >= 3 and growth_per_s(at_s, waiting) <= GROWTH_SHARE_MAX * rate_per_s


class NothingHeldError(Exception):
    """No rate that was tried was held."""


def highest_held(
    low_per_s: float, high_per_s: float, steps: int, run: Callable[[float], Run]
) -> tuple[float, Run]:
    """Bisect by ratio between a rate that should be held and one that should not: (rate, its run).

    Runs `steps` times, and goes on below `low_per_s`, halving, for as long as nothing was held, `steps` times
    at most. Raises NothingHeldError.
    """
    best: tuple[float, Run] | None = None
    low, high = low_per_s, high_per_s
    for _ in range(steps):
        rate_per_s = float(round(math.sqrt(low * high)))
        found = run(rate_per_s)
        if found.held:
            best, low = (rate_per_s, found), rate_per_s
        else:
            high = rate_per_s
    if best is not None:
        return best
    for step in range(steps):
        rate_per_s = float(round(low_per_s / 2**step))
        found = run(rate_per_s)
        if found.held:
            return rate_per_s, found
    raise NothingHeldError(f"nothing was held, down to {rate_per_s:.0f} records/s")
