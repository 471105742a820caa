"""Many looks at an operator at once: the metrics of each, as `examine` would find them one by one
(StreamSwitch, 4).

For virtual time, where queues are worked out far ahead and nearly every look leads to nothing. Holders,
executors and writers are the same in all of them, and nothing is missing. Neighbours: `examine` says when
that is so and takes the looks in, `snapshot_series` is what comes from the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.control.samples.snapshot_series import OperatorSeries, SnapshotSeries
from penstock.control.streamswitch.service_rates import Courses, ServiceRates
from penstock.control.streamswitch.slot_history import (
    ARRIVED,
    COMPLETED,
    LATENCY,
    ROWS_MIN,
    Flags,
    Floats,
    Indices,
    SlotHistory,
)

_BUSY = 3


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Who holds which shard: `holder` (shards,), and the same as a matrix (shards, executors) of 0 and 1, by
    which values by shard become values by executor."""

    holder: Indices
    matrix: Floats

    @classmethod
    def of(cls, holder: Indices, executors: int) -> Holding:
        """Nobody holds a shard of an executor that has gone."""
        return cls(holder, (holder[:, None] == np.arange(executors)).astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What looks in a row have counted since the last look that was taken in. `totals` is (4, looks, shards)
    of rows arrived and completed, summed latency and useful time; `by_executor` the same by who holds the
    shards; `rows` (looks, executors) are those completed in each slot, `courses` what they make of mu."""

    at_us: NDArray[np.int64]
    totals: Floats
    backlog: Floats
    by_executor: Floats
    rows: Floats
    courses: Courses


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """[looks, executors]. `certain`: the metrics of that look are as they stand here, no window short and
    nobody near a stall."""

    counted: Counted
    arrival_per_s: Floats
    service_per_s: Floats
    instantaneous_us: Floats
    certain: Flags


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What looks that were taken in at once have shown of an operator: by look whether it was in good health,
    and (looks, executors) rates; of no executor while a treatment was under way. `tasks` are the executors',
    which serve at `service_per_s` together."""

    at_us: NDArray[np.int64]
    executors: tuple[str, ...]
    tasks: tuple[int, ...]
    arrival_per_s: Floats
    service_per_s: Floats
    is_good: Flags


@runtime_checkable
class TellsMany(Protocol):
    """A policy with `observe_many` that says what it saw, and heeds what is refused."""

    @property
    def told(self) -> Mapping[str, Sequence[Told]]:
        """By operator, in the order of time, of the looks that were taken in last."""
        ...

    def observe_many_refused(self, series: SnapshotSeries, scale_in_from_us: Mapping[str, float]) -> int:
        """`observe_many` where a scale-in of an operator is refused at every look before a moment: such a
        look has no action either."""
        ...


def count_ahead(
    rates: ServiceRates, holding: Holding, last: Floats, at_us: NDArray[np.int64], series: OperatorSeries
) -> Counted:
    """`last` is (4, shards) as read at the last look: arrived, completed, waited + served, busy."""
    totals = np.empty((4, *series.arrived.shape))
    np.subtract(series.arrived, last[ARRIVED], out=totals[ARRIVED])
    np.subtract(series.completed, last[COMPLETED], out=totals[COMPLETED])
    np.add(series.waited_us, series.served_us, out=totals[LATENCY])
    totals[LATENCY] -= last[LATENCY]
    np.subtract(series.busy_us, last[_BUSY], out=totals[_BUSY])
    by_executor = totals @ holding.matrix
    by_slot = by_executor[[COMPLETED, _BUSY]]
    by_slot[:, 1:] -= by_executor[[COMPLETED, _BUSY], :-1]
    rows, busy_us = by_slot
    backlog = series.arrived - series.completed
    return Counted(at_us, totals, backlog, by_executor, rows, rates.courses(rows, busy_us))


def look_ahead(
    history: SlotHistory,
    rates: ServiceRates,
    holding: Holding,
    counted: Counted,
    stall_us: float,
    known_us_min: float,
) -> Ahead:
    """`stall_us` is how long an executor may complete nothing before it has to be looked at more closely,
    `known_us_min` how much of a window must be known."""
    at_us = counted.at_us
    window = history.window_ahead(at_us, counted.totals, counted.by_executor, holding.matrix)
    done, latency_us = window.completed, window.latency_us
    moments_us = at_us[:, None].astype(np.float64)
    worked_us = np.where(counted.rows > ROWS_MIN, moments_us, rates.last_completed_us)
    is_quiet = moments_us - np.maximum.accumulate(worked_us, axis=0) > stall_us
    near_stall = is_quiet.any(axis=1)
    if near_stall.any():
        near_stall = (is_quiet & (counted.backlog @ holding.matrix > ROWS_MIN)).any(axis=1)
    return Ahead(
        counted=counted,
        arrival_per_s=window.arrival_per_s,
        service_per_s=counted.courses.per_busy_s * rates.tasks_each,
        instantaneous_us=latency_us / np.maximum(done, ROWS_MIN),
        certain=window.is_full & (window.known_us >= known_us_min) & ~near_stall,
    )
