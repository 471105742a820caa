"""Many looks at once for an `Examiner`, which StreamSwitch and DRS see by.

Neighbours: `examiner_metrics` does the arithmetic, `streamswitch` and `drs` decide how many are taken in.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.control.streamswitch.examine import KNOWN_SHARE_MIN, STALL_SLOTS, Examiner
from penstock.simulation.queueing.ahead.examiner_metrics import (
    Ahead,
    Counted,
    Holding,
    count_ahead,
    look_ahead,
)
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries


class ExaminerAhead:
    """For one examiner, which may be shown single looks in between."""

    def __init__(self, examiner: Examiner) -> None:
        self.examiner = examiner
        self._held: Holding | None = None

    def ahead(self, at_us: NDArray[np.int64], series: OperatorSeries) -> Ahead | None:
        """What `observe` would find at several looks to come, without taking them in. None where that has to
        be found one by one: who holds what has changed, or not everything is known."""
        if not self._goes_on(int(at_us[0]), series) or not self.examiner._rates.all_measured:
            return None
        return look_ahead(
            self.examiner._history,
            self.examiner._rates,
            self._holding(),
            count_ahead(self.examiner._rates, self._holding(), self.examiner._last, at_us, series),
            STALL_SLOTS * self.examiner._target.interval_us,
            KNOWN_SHARE_MIN * self.examiner._target.window_us,
        )

    def take(self, ahead: Ahead, series: OperatorSeries, looks: int) -> None:
        """Take in the first `looks` of `ahead`, which was made of `series`: as `observe` on each would."""
        if looks:
            self._take(ahead.counted, series, looks)

    def pass_by(self, at_us: NDArray[np.int64], series: OperatorSeries) -> None:
        """Take in all looks of `series` as `observe` on each would, without an answer: during a treatment, or
        where nobody asks."""
        looks = 0
        while looks < len(at_us) and not self._goes_on(int(at_us[looks]), series):
            self.examiner.observe(int(at_us[looks]), series.snapshot(looks))
            looks += 1
        if looks < len(at_us):
            rest = series.since(looks)
            counted = count_ahead(
                self.examiner._rates, self._holding(), self.examiner._last, at_us[looks:], rest
            )
            self._take(counted, rest, len(at_us) - looks)

    def _goes_on(self, at_us: int, series: OperatorSeries) -> bool:
        """Whether `series`, from `at_us` on, goes on where the last look ended: everything is known, nothing
        changed hands."""
        previous_us = self.examiner._history.last_at_us
        return (
            self.examiner._was_whole
            and previous_us is not None
            and at_us - previous_us <= self.examiner._target.window_us
            and series.shards.names == self.examiner._shards
            and self.examiner._is_same(series.assignment)
            and not self.examiner._unplaced
            and tuple([executor.name for executor in series.executors]) == self.examiner._rates.executors
            and tuple([executor.tasks for executor in series.executors]) == self.examiner._rates.tasks
            and self.examiner._writers.count(_writer_of(series)) == len(self.examiner._writers)
            and not np.isnan(self.examiner._last).any()
        )

    def _holding(self) -> Holding:
        if self._held is None or self._held.holder is not self.examiner._holder:
            self._held = Holding.of(self.examiner._holder, len(self.examiner._rates.executors))
        return self._held

    def _take(self, counted: Counted, series: OperatorSeries, looks: int) -> None:
        at_us = counted.at_us[:looks]
        self.examiner._history.extend(
            at_us, counted.totals[:, :looks], counted.backlog[:looks], self.examiner._holder
        )
        self.examiner._rates.learn_many(at_us, counted.rows[:looks], counted.courses)
        if series.treatment:
            self.examiner._rates.last_completed_us.fill(at_us[-1])
        at = looks - 1
        self.examiner._last = np.stack(
            (
                series.arrived[at],
                series.completed[at],
                series.waited_us[at] + series.served_us[at],
                series.busy_us[at],
            )
        )


def _writer_of(series: OperatorSeries) -> object:
    """The writer that samples of `series` have when they are shown one by one."""
    return None if series.bytes_per_row is None and series.state_bytes is None else 0
