"""Which rate is tried next to find the highest at which a bound of latency holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

LOWEST_PER_S, HIGHEST_PER_S = 125.0, 160_000.0
APART = 1.5
"""How many times the rate that holds the one that does not may be, for the search to end."""


def next_rate(held: Mapping[float, bool]) -> float | None:
    """Of rates that were tried, whether each held the bound: the next one to try, or None where the highest
    is known well enough. `held` must not be empty."""
    below = highest(held)
    above = min((rate for rate, is_held in held.items() if not is_held and rate > below), default=None)
    if above is None:
        return min(2 * below, HIGHEST_PER_S) if below < HIGHEST_PER_S else None
    if not below:
        return max(above / 2, LOWEST_PER_S) if above > LOWEST_PER_S else None
    return None if above / below <= APART else rounded(math.sqrt(below * above))


def highest(held: Mapping[float, bool]) -> float:
    """The highest rate that held, 0 where none did."""
    return max((rate for rate, is_held in held.items() if is_held), default=0.0)


def rounded(rate: float) -> float:
    """To two digits."""
    unit = 10 ** (math.floor(math.log10(rate)) - 1)
    return float(round(rate / unit) * unit)
