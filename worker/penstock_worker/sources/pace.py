"""When the rows of a paced partition are due: from the moment it was taken up, at its part of the rate.

Due times are the rows' timestamps. A source that is held up by what comes after it gives the missed rows
late but with the times at which they were due, so that the delay counts as latency. Whoever takes a
partition up goes on at its position: what passed meanwhile is not made up for, and a rate trace goes on
where it was. A time of rate 0 in which a partition changed hands begins anew, since nothing tells how
much of it was over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.rate_trace import (
    ENDS_BEFORE_FILES,
    InvalidRateTrace,
    RateTrace,
    read_rate_trace,
)
from penstock.dataflow.source import Source
from penstock.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Pace:
    """Row `index` is due at anchor_us + (index - anchor_index + phase) * period_us.

    `phase`, from 0 to 1, keeps partitions of one rate from being due all at once.
    """

    anchor_us: int
    anchor_index: int
    period_us: float
    phase: float

    @property
    def rows(self) -> float:
        """There is no end to the rows."""
        return math.inf

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
        return _listed(self.times_us(np.arange(index, index + rows)))

    def times_us(self, indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """`due_us` of each of these."""
        offsets_us = (indexes - self.anchor_index + self.phase) * self.period_us
        return self.anchor_us + offsets_us.astype(np.int64)


@dataclass(frozen=True, slots=True)
class TracedPace:
    """Row `index` is row `index * spread + offset` of the source, and due when the trace says of that one.

    At `anchor_us` the trace is at its microsecond `begun_us`.
    """

    anchor_us: int
    begun_us: float
    trace: RateTrace
    spread: float
    offset: float

    @property
    def rows(self) -> float:
        """How many rows are ever due; inf when the trace does not end."""
        total = self.trace.total
        if math.isinf(total):
            return math.inf
        rows = max(0, math.ceil((total - self.offset) / self.spread))
        while rows > 0 and (rows - 1) * self.spread + self.offset >= total:
            rows -= 1
        while rows * self.spread + self.offset < total:
            rows += 1
        return rows

    def due_us(self, index: int) -> int:
        """Index below `rows`, from the one on that it was taken up at."""
        return self.timestamps_us(index, 1)[0]

    def due_rows(self, index: int, now_us: int) -> int:
        """How many rows from `index` on are due at `now_us`."""
        last = self.rows
        # As of an even pace: due times are rounded down, and rounding may err by one.
        traced_us = now_us - self.anchor_us + 1 + self.begun_us
        passed = math.ceil((self.trace.rows_before(traced_us) - self.offset) / self.spread)
        passed = int(min(passed, last))
        while passed > index and self.due_us(passed - 1) > now_us:
            passed -= 1
        while max(passed, index) < last and self.due_us(max(passed, index)) <= now_us:
            passed = max(passed, index) + 1
        return max(0, passed - index)

    def timestamps_us(self, index: int, rows: int) -> list[int]:
        """`due_us` of so many rows from `index` on."""
        return _listed(self.times_us(np.arange(index, index + rows)))

    def times_us(self, indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """`due_us` of each of these."""
        numbers = indexes.astype(np.float64) * self.spread + self.offset
        offsets_us = self.trace.due_us(numbers) - self.begun_us
        return self.anchor_us + np.floor(offsets_us).astype(np.int64)


AnyPace = Pace | TracedPace


def _listed(times_us: NDArray[np.int64]) -> list[int]:
    listed: list[int] = times_us.tolist()
    return listed


def pace_of(rate: float | RateTrace, spread: float, offset: float, index: int, now_us: int) -> AnyPace:
    """The pace of a partition that is taken up at row `index`.

    Its row i is row i * spread + offset of its source (offset from 0 to spread), whose rate is `rate`.
    """
    if isinstance(rate, RateTrace):
        return TracedPace(now_us, rate.reached_us(index * spread), rate, spread, offset)
    return Pace(now_us, index, 1e6 * spread / rate, offset / spread)


def rate_of(operator: str, source: Source, base_dir: Path) -> float | RateTrace | None:
    """The rate of all partitions of a source together; None for one that is not paced.

    Reads the trace that it names, relative to `base_dir`. Raises PermanentError.
    """
    rate = source.rate
    if rate.trace is None:
        return rate.per_s
    try:
        trace = read_rate_trace(base_dir / rate.trace)
        if not source.trace_may_end and not math.isinf(trace.total):
            raise InvalidRateTrace([ENDS_BEFORE_FILES])
    except InvalidRateTrace as error:
        raise PermanentError(f"source {operator}: rate trace {rate.trace}: {error}") from error
    return trace
