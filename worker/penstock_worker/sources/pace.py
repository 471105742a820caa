"""When the rows of a paced partition are due: evenly, from the moment it was taken up.

Due times are the rows' timestamps. A source that is held up by what comes after it gives the missed rows
late but with the times at which they were due, so that the delay counts as latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Pace:
    """Row `index` is due at anchor_us + (index - anchor_index + phase) * period_us.

    `phase`, from 0 to 1, keeps partitions of one rate from being due all at once.
    """

    anchor_us: int
    anchor_index: int
    period_us: float
    phase: float

    def due_us(self, index: int) -> int:
        """Index from `anchor_index` on."""
        return self.anchor_us + int((index - self.anchor_index + self.phase) * self.period_us)

    def due_rows(self, index: int, now_us: int) -> int:
        """How many rows from `index` on are due at `now_us`."""
        # Due times are whole microseconds, rounded down: a row is due if it would be before the next one.
        passed = math.ceil((now_us - self.anchor_us + 1) / self.period_us - self.phase) + self.anchor_index
        # Rounding may put the last one on the wrong side.
        while passed > index and self.due_us(passed - 1) > now_us:
            passed -= 1
        while self.due_us(max(passed, index)) <= now_us:
            passed = max(passed, index) + 1
        return max(0, passed - index)

    def timestamps_us(self, index: int, rows: int) -> list[int]:
        """`due_us` of so many rows from `index` on."""
        first = index - self.anchor_index
        offsets_us = (np.arange(first, first + rows) + self.phase) * self.period_us
        due_us: list[int] = (self.anchor_us + offsets_us.astype(np.int64)).tolist()
        return due_us
