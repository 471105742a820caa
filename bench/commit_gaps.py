"""Arithmetic of the bench of moves: time without commits, and what moves add to others' ages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1000


def longest_gap_ms(commits_s: Floats, start_s: float, end_s: float) -> float:
    """The longest time between two commits, of those times of which any part lies in start_s..end_s.

    `commits_s` rises. ValueError when it does not reach around that time: the gap is not over then.
    """
    first = int(np.searchsorted(commits_s, start_s, side="right")) - 1
    last = int(np.searchsorted(commits_s, end_s, side="left"))
    if first < 0 or last >= len(commits_s):
        raise ValueError("no commit was seen before this time, or none after it")
    return float(np.diff(commits_s[first : last + 1]).max() * 1000)


def p99(values: Sequence[float] | Floats) -> float:
    """The value that 99% are at most; of under a hundred it is the largest."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), 0.99, method="higher"))


def quantiles_ms(gaps_ms: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": round(float(np.median(gaps_ms)), 1),
        "p99_ms": round(p99(gaps_ms), 1),
        "max_ms": round(max(gaps_ms), 1),
        "moves": len(gaps_ms),
    }


@dataclass(frozen=True, slots=True)
class Added:
    """A difference of p99s, and the interval that holds it in 95% of resampled runs."""

    ms: float
    low_ms: float
    high_ms: float


def added_p99(moved: Sequence[Floats], control: Sequence[Floats], seed: int = 1) -> Added:
    """p99 of the ages (ms) in `moved` less that in `control`; each is ages by stretch of time.

    Bootstrap over stretches, not over ages: what is late comes in heaps. ValueError where a side is empty.
    """
    moved = [ages for ages in moved if len(ages)]
    control = [ages for ages in control if len(ages)]
    if not moved or not control:
        raise ValueError("a side has no ages")
    generator = np.random.default_rng(seed)

    def drawn(stretches: Sequence[Floats]) -> float:
        picked = generator.integers(0, len(stretches), len(stretches))
        return p99(np.concatenate([stretches[number] for number in picked]))

    found = p99(np.concatenate(moved)) - p99(np.concatenate(control))
    differences = [drawn(moved) - drawn(control) for _ in range(RESAMPLES)]
    low, high = np.quantile(differences, (0.025, 0.975))
    return Added(round(found, 2), round(float(low), 2), round(float(high), 2))


def within(at_s: Floats, values: Floats, start_s: float, end_s: float) -> Floats:
    """The values whose time is in start_s..end_s, times rising."""
    first, last = np.searchsorted(at_s, (start_s, end_s))
    return values[first:last]
