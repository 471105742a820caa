"""What a load step did, worked out from the rows that came out: pure arithmetic for `scale_out`.

A row names its record by its number in the source, and the trace says when that record was due; so a row
that was seen in the output at a moment has an age. Neighbours: `sink_watch` sees the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.rate_trace import RateTrace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class WrongRowsError(Exception):
    """Rows are missing, or there twice."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Output rows in the order in which they were seen: number of the record, process that worked on it,
    microseconds of the wall clock."""

    numbers: Ints
    processes: Ints
    at_us: Ints

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class Reaction:
    """Seconds since the load step. `first_record_s` is the first row of a process that gave none before the
    step, None where no process came; `broken_s` the first moment at which the mean age of the rows of the
    last window was above the bound, None where it never was; `sla_met_s` the last one, 0 where it never was,
    None where it still is at the end. `longest_gap_ms` is the longest time without a row from the step on.
    `decided_s` is when the first scale-out was decided, None where none is known."""

    first_record_s: float | None
    broken_s: float | None
    sla_met_s: float | None
    longest_gap_ms: float
    worst_mean_ms: float
    processes: int
    decided_s: float | None = None


def check_whole(rows: Rows, records: int, *, repeats: bool = False) -> None:
    """Every record 0, 1, ..., `records` - 1 came out, and once; twice is allowed where `repeats` says so.

    Raises WrongRowsError.
    """
    seen = np.unique(rows.numbers)
    if len(seen) != records or (records and (seen[0] != 0 or seen[-1] != records - 1)):
        raise WrongRowsError(f"{len(seen)} different records came out of {records}")
    if not repeats and len(rows) != records:
        raise WrongRowsError(f"{len(rows) - records} records came out twice")


def begun_us(rows: Rows, trace: RateTrace) -> float:
    """When the source began: no record comes out before it is due, and the fastest one is out at once."""
    return float((rows.at_us - trace.due_us(rows.numbers.astype(np.float64))).min())


def ages_us(rows: Rows, trace: RateTrace) -> Floats:
    """By row: how long after its record was due it was seen."""
    due_us = trace.due_us(rows.numbers.astype(np.float64))
    ages: Floats = rows.at_us - begun_us(rows, trace) - due_us
    return ages


def window_means_us(at_us: Ints, ages: Floats, window_us: int) -> Floats:
    """By row: mean age of the rows that were seen in the window that ends with it, itself among them."""
    sums = np.concatenate([[0.0], np.cumsum(ages)])
    last = np.arange(1, len(at_us) + 1)
    first = np.searchsorted(at_us, at_us - window_us, side="right")
    means: Floats = (sums[last] - sums[first]) / (last - first)
    return means


def longest_gap_us(at_us: Ints, from_us: float, until_us: float) -> float:
    """The longest time without a row between two moments; the moments themselves end gaps too."""
    within = at_us[(at_us > from_us) & (at_us < until_us)]
    return float(np.diff(np.concatenate([[from_us], within, [until_us]])).max())


def reaction(
    rows: Rows,
    trace: RateTrace,
    step_s: float,
    end_s: float,
    bound_us: int,
    window_us: int,
    decisions_us: Sequence[int] = (),
) -> Reaction:
    """What followed the step at second `step_s` of the trace; the load ends at `end_s`.

    `decisions_us` are the moments of scale-outs, by the clock of the rows.
    """
    begin_us = begun_us(rows, trace)
    step_us, end_us = begin_us + step_s * 1e6, begin_us + end_s * 1e6
    is_after = rows.at_us > step_us
    before = np.unique(rows.processes[~is_after])
    is_new = is_after & ~np.isin(rows.processes, before)
    means_us = window_means_us(rows.at_us, ages_us(rows, trace), window_us)
    is_within = is_after & (rows.at_us <= end_us)
    broken = rows.at_us[is_within & (means_us > bound_us)]
    still_broken = bool(means_us[is_within][-1] > bound_us) if is_within.any() else True

    def since_step_s(at_us: Ints, place: int) -> float | None:
        return float(at_us[place] - step_us) / 1e6 if len(at_us) else None

    return Reaction(
        first_record_s=since_step_s(rows.at_us[is_new], 0),
        broken_s=since_step_s(broken, 0),
        sla_met_s=None if still_broken else since_step_s(broken, -1) or 0.0,
        longest_gap_ms=longest_gap_us(rows.at_us, step_us, end_us) / 1000,
        worst_mean_ms=float(means_us[is_within].max(initial=0.0)) / 1000,
        processes=len(np.unique(rows.processes[is_within])),
        decided_s=min(((at_us - step_us) / 1e6 for at_us in decisions_us if at_us > step_us), default=None),
    )
