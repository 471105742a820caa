"""The greatest value of the last while, at a constant cost a look."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def outlasting(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of series side by side, (moments, series): which values are greater than all that come after them.
    `SlidingMax` remembers nothing else of a series once it has seen its end."""
    lasts = np.ones(values.shape, np.bool_)
    lasts[:-1] = values[:-1] > np.maximum.accumulate(values[:0:-1])[::-1]
    return lasts


class SlidingMax:
    """Values come in the order of time. Kept are only those that may still become the greatest."""

    __slots__ = ("_kept", "_span_us")

    def __init__(self, span_us: int) -> None:
        self._span_us = span_us
        self._kept: deque[tuple[int, float]] = deque()

    def add(self, at_us: int, value: float) -> None:
        while self._kept and self._kept[-1][1] <= value:
            self._kept.pop()
        self._kept.append((at_us, value))
        while self._kept[0][0] < at_us - self._span_us:
            self._kept.popleft()

    def add_many(self, at_us: Sequence[int], values: Sequence[float]) -> None:
        """All of them, in the order of time."""
        for at, value in zip(at_us, values, strict=True):
            self.add(at, value)

    @property
    def greatest(self) -> float | None:
        """None before the first value."""
        return self._kept[0][1] if self._kept else None
