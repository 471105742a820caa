"""mu of an operator's executors, as they work, and when each last completed a row (StreamSwitch, 4.2).

A rate is per busy second of one task, and what is averaged is useful time a row, 1 / mu: the mean of C / busy
time is C / (C - 1) mu where service times are exponential, that of busy time / C is right. Slots without work
change nothing, so that an idle executor keeps the rate it had. Neighbour: `examine` feeds it slot by slot.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.control.streamswitch.slot_history import GONE, ROWS_MIN, Flags, Floats, Indices, summed

ETA = 1 / 8
"""Decay factor of the moving average (4.2). The first samples count alike, until one of them weighs less."""

RATE_SAMPLE_ROWS = 64
"""Rows that one sample is made of at least. Exponential service times of n rows err by 1 / sqrt(n), the
moving average by about a quarter of that: 3%, well within any margin."""


@dataclass(frozen=True, slots=True)
class _Course:
    """Of one executor over several slots: `rows` completed, `busy_us`, and `row_us`, useful time a row.
    `ends` are the slots in which a sample ended. `state` is what it begins with: useful time a row, samples,
    and what is gathered for the next one (rows, busy time)."""

    state: tuple[float, float, float, float]
    rows: list[float]
    busy_us: list[float]
    row_us: list[float]
    ends: list[int]

    @classmethod
    def of(cls, state: tuple[float, float, float, float], rows: list[float], busy_us: list[float]) -> _Course:
        """`learn`, slot by slot."""
        row_us, samples, gathered, busy = state
        course: list[float] = []
        ends: list[int] = []
        for slot, more in enumerate(rows):
            gathered += more
            busy += busy_us[slot]
            if gathered >= RATE_SAMPLE_ROWS and busy > 0:
                row_us += max(ETA, 1.0 / (samples + 1.0)) * (busy / gathered - row_us)
                samples += 1.0
                gathered = busy = 0.0
                ends.append(slot)
            course.append(row_us)
        return cls(state, rows, busy_us, course, ends)

    def after(self, slots: int) -> tuple[float, float, float, float]:
        """The state after the first `slots`, at least one."""
        _, samples, gathered, busy = self.state
        begin = 0
        count = bisect_left(self.ends, slots)
        if count:
            samples, gathered, busy, begin = samples + count, 0.0, 0.0, self.ends[count - 1] + 1
        for slot in range(begin, slots):
            gathered += self.rows[slot]
            busy += self.busy_us[slot]
        return self.row_us[slots - 1], samples, gathered, busy


@dataclass(frozen=True, slots=True, eq=False)
class Courses:
    """Rates over several slots: `per_busy_s` (slots, executors), of one task; `each` executor's."""

    per_busy_s: Floats
    each: list[_Course]


class ServiceRates:
    """Of the `executors` in their order; `tasks` each has."""

    def __init__(self) -> None:
        self.executors: tuple[str, ...] = ()
        self.tasks: tuple[int, ...] = ()
        self.last_completed_us: Floats = np.zeros(0)
        self._row_us: Floats = np.zeros(0)
        self._samples: Floats = np.zeros(0)
        """How many samples a rate is made of; 0: it is not known."""
        self._rows: Floats = np.zeros(0)
        self._busy_us: Floats = np.zeros(0)
        self._is_settled = False
        self._factor: Floats = np.zeros(0)

    def renumber(self, executors: tuple[str, ...], at_us: int) -> Indices:
        """Other executors from `at_us` on, or in another order. Answers old index -> new one, GONE for those
        that left."""
        new = {name: order for order, name in enumerate(executors)}
        table = np.array([new.get(name, GONE) for name in self.executors], np.intp)
        stays = table != GONE

        def kept(values: Floats, empty: float) -> Floats:
            there = np.full(len(executors), empty)
            there[table[stays]] = values[stays]
            return there

        self.last_completed_us = kept(self.last_completed_us, float(at_us))
        self._row_us = kept(self._row_us, 0.0)
        self._samples = kept(self._samples, 0.0)
        self._rows = kept(self._rows, 0.0)
        self._busy_us = kept(self._busy_us, 0.0)
        self._is_settled = False
        self.executors = executors
        return table

    def set_tasks(self, tasks: tuple[int, ...]) -> None:
        if tasks != self.tasks or len(self._factor) != len(tasks):
            self.tasks = tasks
            self._factor = np.maximum(np.array(tasks, dtype=np.float64), 1.0)

    def inherit(self, moves: set[tuple[str, str]]) -> None:
        """Shards went from one executor to another, by name: mu_d = mu_s while mu_d is not known (3.4). It
        counts as one sample."""
        index = {name: order for order, name in enumerate(self.executors)}
        for source, destination in sorted(moves):
            s, d = index.get(source), index.get(destination)
            if s is not None and d is not None and not self._samples[d] and self._samples[s]:
                self._row_us[d] = self._row_us[s]
                self._samples[d] = 1.0

    def learn(self, holder: Indices, completed: Floats, busy_us: Floats) -> Floats:
        """One slot's rows and useful time, by shard, each with a holder. Answers rows by executor."""
        count = len(self.executors)
        done = summed(holder, completed, count)
        self._rows += done
        self._busy_us += summed(holder, busy_us, count)
        full = (self._rows >= RATE_SAMPLE_ROWS) & (self._busy_us > 0)
        if self._is_settled and full.all():
            self._row_us += ETA * (self._busy_us / self._rows - self._row_us)
            self._rows.fill(0.0)
            self._busy_us.fill(0.0)
        elif full.any():
            sample = self._busy_us / np.where(full, self._rows, 1.0)
            weight = np.where(full, np.maximum(ETA, 1.0 / (self._samples + 1.0)), 0.0)
            self._row_us += weight * (sample - self._row_us)
            self._samples += full
            self._rows *= ~full
            self._busy_us *= ~full
            self._is_settled = bool((self._samples >= 1 / ETA).all())
        return done

    def learn_parts(self, holder: Indices, completed: Floats, busy_us: Floats, usable: Flags) -> None:
        """The same where not all is known: of the shards that are `usable`, have a holder, and a busy
        time."""
        usable = usable & (busy_us >= 0) & (holder != GONE)
        if usable.any():
            self.learn(holder[usable], completed[usable], busy_us[usable])

    def worked(self, at_us: int, done: Floats) -> None:
        """Who completed rows in the slot that ends at `at_us`."""
        np.copyto(self.last_completed_us, at_us, where=done > ROWS_MIN)

    @property
    def all_measured(self) -> bool:
        """Everyone has a sample, own or inherited."""
        return bool((self._samples > 0).all())

    @property
    def tasks_each(self) -> Floats:
        """By how many tasks a rate counts."""
        return self._factor

    def courses(self, rows: Floats, busy_us: Floats) -> Courses:
        """What several slots to come would make of everyone's rate: `rows`, `busy_us` are (slots,
        executors)."""
        states = zip(
            self._row_us.tolist(),
            self._samples.tolist(),
            self._rows.tolist(),
            self._busy_us.tolist(),
            strict=True,
        )
        each = [
            _Course.of(state, of, work_us)
            for state, of, work_us in zip(states, rows.T.tolist(), busy_us.T.tolist(), strict=True)
        ]
        row_us = np.array([course.row_us for course in each]).reshape(rows.shape[::-1]).T
        return Courses(_per_s(row_us), each)

    def learn_many(self, at_us: NDArray[np.int64], rows: Floats, courses: Courses) -> None:
        """Take the first slots of `courses` in, as many as `at_us` and `rows` have."""
        if courses.each:
            states = np.array([course.after(len(at_us)) for course in courses.each])
            self._row_us, self._samples, self._rows, self._busy_us = np.ascontiguousarray(states.T)
        self._is_settled = bool((self._samples >= 1 / ETA).all())
        worked_us = np.where(rows > ROWS_MIN, at_us[:, None], 0).max(axis=0)
        np.copyto(self.last_completed_us, worked_us, where=worked_us > 0)

    def per_executor(self) -> Floats:
        """mu_i, of all its tasks. Who has no sample has the ratio of what there is so far, else the others'
        mean; NaN when nobody's is known."""
        rate = _per_s(self._row_us)
        if not self._is_settled:
            begun = (self._rows > 0) & (self._busy_us > 0)
            so_far = np.where(begun, self._rows * 1e6 / np.where(begun, self._busy_us, 1.0), np.nan)
            rate = np.where(self._samples > 0, rate, so_far)
            unknown = np.isnan(rate)
            if unknown.any() and not unknown.all():
                rate = np.where(unknown, rate[~unknown].mean(), rate)
        return rate * self._factor


def _per_s(row_us: Floats) -> Floats:
    """0 where useful time is not known."""
    rate: Floats = np.divide(1e6, row_us, out=np.zeros_like(row_us), where=row_us > 0)
    return rate
