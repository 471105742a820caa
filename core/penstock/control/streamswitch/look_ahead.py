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

from penstock.control.samples.snapshot_series import OperatorSeries
from penstock.control.streamswitch.service_rates import ServiceRates
from penstock.control.streamswitch.slot_history import (
    ARRIVED,
    COMPLETED,
    KNOWN,
    LATENCY,
    ROWS_MIN,
    Flags,
    Floats,
    Indices,
    SlotHistory,
    summed,
)


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """[looks, ...]. `totals` is (looks, 4, shards) since the last look that was taken in; `rows`, `busy_us`
    are of each slot, by executor. `certain`: the metrics of that look are as they stand here, no window short
    and nobody near a stall."""

    at_us: NDArray[np.int64]
    totals: Floats
    backlog: Floats
    rows: Floats
    busy_us: Floats
    arrival_per_s: Floats
    service_per_s: Floats
    instantaneous_us: Floats
    certain: Flags


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What looks that were taken in at once have shown of an operator: by look whether it was in good health,
    and (looks, executors) rates; of no executor while a treatment was under way."""

    at_us: NDArray[np.int64]
    executors: tuple[str, ...]
    arrival_per_s: Floats
    service_per_s: Floats
    is_good: Flags


@runtime_checkable
class TellsMany(Protocol):
    """A policy with `observe_many` that says what it saw."""

    @property
    def told(self) -> Mapping[str, Sequence[Told]]:
        """By operator, in the order of time, of the looks that were taken in last."""
        ...


def look_ahead(
    history: SlotHistory,
    rates: ServiceRates,
    holder: Indices,
    last: Floats,
    at_us: NDArray[np.int64],
    series: OperatorSeries,
    stall_us: float,
    known_us_min: float,
) -> Ahead:
    """`last` is (4, shards) as read at the history's last look: arrived, completed, waited + served, busy.
    `stall_us` is how long an executor may complete nothing before it has to be looked at more closely,
    `known_us_min` how much of a window must be known."""
    count, executors = len(at_us), len(rates.executors)
    before_us = history.last_at_us or 0
    totals = np.empty((count, 4, len(holder)))
    totals[:, ARRIVED] = series.arrived - last[ARRIVED]
    totals[:, COMPLETED] = series.completed - last[COMPLETED]
    totals[:, LATENCY] = series.waited_us + series.served_us - last[LATENCY]
    totals[:, KNOWN] = (at_us - before_us)[:, None]
    backlog = series.arrived - series.completed
    by_slot = np.diff(totals[:, COMPLETED], axis=0, prepend=0.0)
    rows = _by_executor(by_slot, holder, executors)
    busy_us = _by_executor(np.diff(series.busy_us, axis=0, prepend=last[3:4]), holder, executors)
    sums, done, latency_us, is_full = history.windows_ahead(at_us, totals, holder, executors)
    known_us = sums[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shard_arrival_per_s = sums[0] * 1e6 / known_us
    quiet_us = at_us[:, None] - np.maximum.accumulate(
        np.where(rows > ROWS_MIN, at_us[:, None].astype(np.float64), rates.last_completed_us)
    )
    waits = _by_executor(backlog, holder, executors) > ROWS_MIN
    near_stall = (waits & (quiet_us > stall_us)).any(axis=1)
    return Ahead(
        at_us=at_us,
        totals=totals,
        backlog=backlog,
        rows=rows,
        busy_us=busy_us,
        arrival_per_s=_by_executor(shard_arrival_per_s, holder, executors),
        service_per_s=rates.ahead(rows, busy_us),
        instantaneous_us=latency_us / np.maximum(done, ROWS_MIN),
        certain=is_full & (known_us.min(axis=1) >= known_us_min) & ~near_stall,
    )


def _by_executor(values: Floats, holder: Indices, executors: int) -> Floats:
    """(looks, shards) -> (looks, executors)."""
    looks = len(values)
    bins = (np.arange(looks)[:, None] * executors + holder).ravel()
    return summed(bins, values.ravel(), looks * executors).reshape(looks, executors)
