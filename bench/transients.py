"""How long throughput is short after the load has changed (Elasticutor, figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 1.0
"""Published: throughput is that of a sliding window of a second."""
LEVEL = 0.9
"""Below this share of what throughput comes to it is short."""


def transients_s(completed: NDArray[np.float64], slot_s: float, changes: Sequence[int]) -> tuple[float, ...]:
    """Seconds in which throughput is short, after each of `changes` (slots) until the next one or the end;
    `completed` is rows by slot. What throughput comes to is its median in the second half of that time."""
    width = round(WINDOW_S / slot_s)
    sliding = np.convolve(completed, np.ones(width))[: len(completed)]
    found = []
    for begin, end in pairwise([*changes, len(completed)]):
        usual = np.median(sliding[(begin + end) // 2 : end])
        found.append(round(float((sliding[begin:end] < LEVEL * usual).sum() * slot_s), 3))
    return tuple(found)
