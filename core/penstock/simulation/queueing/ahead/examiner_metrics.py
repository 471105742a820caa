"""Many looks at an operator at once: the metrics of each, as `examine` would find them one by one
(StreamSwitch, 4).

Holders, executors and writers are the same in all of them, and nothing is missing. Neighbours: `examiner`
says when that is so and takes the looks in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries

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
