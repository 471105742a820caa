"""The greatest load of each executor over the last while, and whether executors have stayed for that long.

A merge gives up what two executors hold in reserve. Where a task takes longer to come than a row may take,
that reserve is all that meets a rise: then what was there in the last while must fit too. Neighbours:
`policy` samples, `plans` decides on the loads.
"""

from __future__ import annotations

import numpy as np

from penstock.control.elasticutor.jackson import US_PER_S, Floats
from penstock.control.sliding_extreme import SlidingMax


class Peaks:
    """Of one operator. Begins anew whenever its executors change."""

    def __init__(self, span_us: int) -> None:
        self._span_us = span_us
        self._executors: tuple[str, ...] = ()
        self._since_us = 0
        self._last: tuple[int, Floats] = (0, np.zeros(0))
        self._greatest: list[SlidingMax] = []

    def take(self, at_us: int, executors: tuple[str, ...], arrived: Floats) -> None:
        """A sample: rows that have arrived at each executor so far."""
        if executors != self._executors:
            self._executors, self._since_us = executors, at_us
            self._greatest = [SlidingMax(self._span_us) for _ in executors]
        elif at_us > self._last[0]:
            rates = np.nan_to_num((arrived - self._last[1]) * (US_PER_S / (at_us - self._last[0])))
            for greatest, rate in zip(self._greatest, rates.tolist(), strict=True):
                greatest.add(at_us, rate)
        self._last = at_us, arrived

    def of(self, at_us: int) -> Floats | None:
        """Rows per second of each executor, the greatest over `span_us`; None while they are newer."""
        if at_us - self._since_us < self._span_us:
            return None
        return np.array([each.greatest or 0.0 for each in self._greatest])
