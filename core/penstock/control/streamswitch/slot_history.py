"""The last time slots of an operator: what its shards counted in each, and who held them (StreamSwitch,
4.1-4.3).

Kept as running totals of what is known, so that any window is one subtraction. Beside them stands the time
over which they are known: what is missing adds to neither. Neighbour: `examine` takes samples apart into the
increments that are kept here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

ARRIVED, COMPLETED, LATENCY, KNOWN = range(4)
"""Rows of an increment: rows arrived, rows completed, summed latency of those (us), time covered (us)."""

GONE = -1
"""Holder of a shard in a slot: an executor that is not there any more."""

ROWS_MIN = 1e-6
"""Less than this is what rounding leaves of a row where rows are counted like water."""


def summed(bins: Indices, values: Floats, count: int) -> Floats:
    """`values` summed by `bins`, of which there are `count`."""
    return np.bincount(bins, weights=values, minlength=count).astype(np.float64, copy=False)


def renumbered(table: Indices, held: Indices) -> Indices:
    """`held` with other indices: `table` is old -> new, GONE for those that left."""
    if not table.size:
        return np.full_like(held, GONE)
    return np.where(held == GONE, GONE, table[held])


@dataclass(frozen=True, slots=True, eq=False)
class WindowsAhead:
    """(looks, executors): rows arrived a second, rows completed and their summed latency. (looks,): for how
    long the shard known least is known, and whether the window is full."""

    arrival_per_s: Floats
    completed: Floats
    latency_us: Floats
    known_us: Floats
    is_full: Flags


class SlotHistory:
    """Slots of `shards` shards. `window_us` is T, `reach_us` how far back they are remembered (at least
    T)."""

    def __init__(self, shards: int, window_us: int, interval_us: int, reach_us: int) -> None:
        self._window_us = window_us
        self._reach_us = max(reach_us, window_us)
        # A look that comes a little late or early still closes the same number of slots.
        self._tolerance_us = interval_us // 2
        capacity = 2 * (self._reach_us // interval_us + 3)
        self._totals: Floats = np.zeros((capacity, 4, shards))
        self._backlog: Floats = np.zeros((capacity, shards))
        self._holders: Indices = np.zeros((capacity, shards), np.intp)
        self._at_us: list[int] = []
        self._window = 0
        self._oldest = 0
        self._steady = 0
        """The first slot from which on nobody changed a shard's holder."""

    @property
    def last_at_us(self) -> int | None:
        return self._at_us[-1] if self._at_us else None

    @property
    def span_us(self) -> int:
        """What the window covers: T once there were enough looks."""
        return self._at_us[-1] - self._at_us[self._window] if self._at_us else 0

    def append(
        self, at_us: int, increments: Floats, backlog: Floats, holders: Indices, *, moved: bool
    ) -> None:
        """Close a slot at `at_us`. `increments` is (4, shards); `backlog` (shards,) the rows that wait at its
        end, NaN where that is not known; `holders` (shards,) indices of executors; `moved` says whether they
        differ from the last ones. ValueError when time does not go on."""
        if self._at_us and at_us <= self._at_us[-1]:
            raise ValueError(f"a look at {at_us} us after one at {self._at_us[-1]} us")
        self._make_room()
        slot = len(self._at_us)
        if slot:
            np.add(self._totals[slot - 1], increments, out=self._totals[slot])
        else:
            self._totals[0] = 0.0
        self._backlog[slot] = backlog
        self._holders[slot] = holders
        if moved or not slot:
            self._steady = slot
        self._at_us.append(at_us)
        self._window = self._base(self._window, self._window_us)
        self._oldest = self._base(self._oldest, self._reach_us)

    def spread(self, shard: int, since_us: int) -> None:
        """Interpolate linearly what the last slot brought for `shard` over all slots after `since_us`
        (4.3)."""
        last = len(self._at_us) - 1
        start = last - 1
        while start > 0 and self._at_us[start] > since_us:
            start -= 1
        begin, end = self._totals[start, :, shard].copy(), self._totals[last, :, shard].copy()
        span_us = self._at_us[last] - self._at_us[start]
        for slot in range(start + 1, last):
            share = (self._at_us[slot] - self._at_us[start]) / span_us
            self._totals[slot, :, shard] = begin + share * (end - begin)

    def renumber(self, table: Indices) -> None:
        """Executors have other indices."""
        count = len(self._at_us)
        self._holders[:count] = renumbered(table, self._holders[:count])

    def window_sums(self) -> Floats:
        """(4, shards): increments summed over the window."""
        sums: Floats = self._totals[len(self._at_us) - 1] - self._totals[self._window]
        return sums

    def window_by_executor(self, executors: int, sums: Floats) -> tuple[Floats, Floats]:
        """(completed rows, their summed latency in us) of each executor over the window, each slot's counted
        for who held the shard then: sums over K_i[m] (section 4.1). `sums` is what `window_sums` gave."""
        last = len(self._at_us) - 1
        if self._steady <= self._window + 1:
            held = self._holders[last]
            return summed(held, sums[COMPLETED], executors), summed(held, sums[LATENCY], executors)
        totals = self._totals[self._window : last + 1]
        bins = self._holders[self._window + 1 : last + 1].ravel() + 1
        completed, latency = (np.diff(totals[:, row], axis=0).ravel() for row in (COMPLETED, LATENCY))
        return (
            summed(bins, completed, executors + 1)[1:],
            summed(bins, latency, executors + 1)[1:],
        )

    def counted_latency_us(self, at_us: int, completed_before: Floats, completed: Floats) -> Floats:
        """Summed latency of the rows of each shard completed in the slot that ends at `at_us`, by counting
        slots.

        `completed_before`, `completed` are positions in the totals of arrived rows. Row r arrived in the slot
        m' with r in (a[m'-1], a[m']] and completes in slot m: (m - m') slots (section 4.1). That is one slot
        for every earlier j with a[j] >= r, so the sum over rows is the area under min(a[j], c[m]) - c[m-1].
        Rows from before what is remembered count from there on: a lower bound.
        """
        slots = len(self._at_us)
        arrived = self._totals[self._oldest : slots, ARRIVED]
        lengths_us = np.diff(np.array([*self._at_us[self._oldest :], at_us], dtype=np.float64))
        overlap = np.clip(arrived, completed_before, completed) - completed_before
        latency: Floats = lengths_us @ overlap
        return latency

    def window_ahead(
        self, at_us: NDArray[np.int64], totals: Floats, by_executor: Floats, matrix: Floats
    ) -> WindowsAhead:
        """What the windows of looks to come would hold: `at_us` (looks,); `totals` (rows of an increment,
        looks, shards) since the last look, all of them known, and `by_executor` the same summed by `matrix`
        (shards, executors), which says who holds what in all of them."""
        past = slice(self._window, len(self._at_us))
        times = np.concatenate((np.array(self._at_us[past], np.int64), at_us))
        behind = len(times) - len(at_us)
        bases = np.maximum(
            np.searchsorted(times, at_us - self._window_us + self._tolerance_us, side="right") - 1, 0
        )
        before = self._totals[past]
        count = matrix.shape[1]
        running = np.zeros((3, len(times), count))
        # What a shard brought goes with it, what was completed counts for who held it then.
        running[ARRIVED, :behind] = (before[:, ARRIVED] - before[0, ARRIVED]) @ matrix
        if self._steady <= self._window + 1:
            running[1:, :behind] = (before[:, 1:3] - before[0, 1:3]).transpose(1, 0, 2) @ matrix
        elif behind > 1:
            bins = (np.arange(behind - 1)[:, None] * (count + 1) + self._holders[past][1:] + 1).ravel()
            for of in (COMPLETED, LATENCY):
                slots = summed(bins, np.diff(before[:, of], axis=0).ravel(), (behind - 1) * (count + 1))
                np.cumsum(slots.reshape(behind - 1, count + 1)[:, 1:], axis=0, out=running[of, 1:behind])
        np.add(by_executor[:3], running[:, behind - 1 : behind], out=running[:, behind:])
        arrived, completed, latency_us = running[:, behind:] - running[:, bases]
        spans_us = at_us - times[bases]
        known = before[-1, KNOWN] - before[0, KNOWN]
        if (known >= self._at_us[-1] - self._at_us[self._window]).all():
            known_us = spans_us.astype(np.float64)
            arrival_per_s = arrived * 1e6 / known_us[:, None]
        else:
            every = np.concatenate((before[:, ARRIVED], totals[ARRIVED] + before[-1, ARRIVED]))
            since = np.concatenate(
                (before[:, KNOWN], (at_us - times[behind - 1])[:, None] + before[-1, KNOWN])
            )
            of_shards_us = since[behind:] - since[bases]
            known_us = of_shards_us.min(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                arrival_per_s = ((every[behind:] - every[bases]) * 1e6 / of_shards_us) @ matrix
        is_full = spans_us >= self._window_us - self._tolerance_us
        return WindowsAhead(arrival_per_s, completed, latency_us, known_us, is_full)

    def extend(self, at_us: NDArray[np.int64], totals: Floats, backlog: Floats, holder: Indices) -> None:
        """Close several slots at once: `totals` (rows of an increment, slots, shards) since the last one, all
        of them known; nobody's holder changes."""
        count = len(at_us)
        self._make_room(count)
        slots = slice(len(self._at_us), len(self._at_us) + count)
        # Compacting begins the totals anew: what was last stands before `slots` now.
        last, since_us = self._totals[slots.start - 1], self._at_us[-1]
        into = self._totals[slots]
        for row in (ARRIVED, COMPLETED, LATENCY):
            np.add(totals[row], last[row], out=into[:, row])
        np.add((at_us - since_us)[:, None], last[KNOWN], out=into[:, KNOWN])
        self._backlog[slots] = backlog
        self._holders[slots] = holder
        self._at_us += at_us.tolist()
        self._window = self._base(self._window, self._window_us)
        self._oldest = self._base(self._oldest, self._reach_us)

    def waiting_us(self) -> Floats:
        """(shards,): how long the oldest waiting row has waited at least, as far as is remembered; 0 where
        none waits.

        Rows of a shard are taken in order: what waited at a look after which none was completed waits still.
        Time in which completions are not known ends that.
        """
        live = slice(self._oldest, len(self._at_us))
        totals = self._totals[live]
        ago_us = self._at_us[-1] - np.array(self._at_us[live], dtype=np.float64)
        none_since = totals[-1, COMPLETED] - totals[:, COMPLETED] <= ROWS_MIN
        known_since = totals[-1, KNOWN] - totals[:, KNOWN] >= ago_us[:, None] - 1.0
        waited = none_since & known_since & (self._backlog[live] > ROWS_MIN)
        return np.where(waited.any(axis=0), ago_us[waited.argmax(axis=0)], 0.0)

    def arrived(self) -> Floats:
        """(shards,): total of arrived rows at the last look."""
        total: Floats = self._totals[len(self._at_us) - 1, ARRIVED]
        return total

    def _base(self, base: int, span_us: int) -> int:
        """The newest slot that ends before the last `span_us` begin: they are what came after it."""
        edge = self._at_us[-1] - span_us + self._tolerance_us
        while base + 1 < len(self._at_us) and self._at_us[base + 1] <= edge:
            base += 1
        return base

    def _make_room(self, more: int = 1) -> None:
        count = len(self._at_us)
        capacity = len(self._totals)
        if count + more <= capacity:
            return
        live = slice(self._oldest, count)
        kept = count - self._oldest
        totals, backlog, holders = (
            part[live].copy() for part in (self._totals, self._backlog, self._holders)
        )  # From zero again, so that sums of years keep their last digits.
        totals -= totals[0].copy()
        if 2 * (kept + more) > capacity:
            capacity = 2 * (kept + more)
            self._totals = np.zeros((capacity, *totals.shape[1:]))
            self._backlog = np.zeros((capacity, *backlog.shape[1:]))
            self._holders = np.zeros((capacity, *holders.shape[1:]), np.intp)
        self._totals[:kept], self._backlog[:kept], self._holders[:kept] = totals, backlog, holders
        self._at_us = self._at_us[live]
        self._window -= self._oldest
        self._steady = max(self._steady - self._oldest, 0)
        self._oldest = 0
