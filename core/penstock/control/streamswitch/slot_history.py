"""The last time slots of an operator: what its shards counted in each, and who held them (StreamSwitch,
4.1-4.3).

Kept as running totals of what is known, so that any window is one subtraction. Beside them stands the time
over which they are known: what is missing adds to neither. Neighbour: `examine` takes samples apart into the
increments that are kept here.
"""

from __future__ import annotations

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

    def windows_ahead(
        self, at_us: NDArray[np.int64], totals: Floats, holder: Indices, executors: int
    ) -> tuple[Floats, Floats, Floats, Flags]:
        """What the windows of looks to come would hold: `at_us` (looks,), `totals` (looks, 4, shards) since
        the last look, each shard held as `holder` says. Answers (2, looks, shards) of rows arrived and time
        known, (looks, executors) of rows completed and their summed latency, and whether the window is full
        by then."""
        past = slice(self._window, len(self._at_us))
        times = np.concatenate((np.array(self._at_us[past], np.int64), at_us))
        behind = len(times) - len(at_us)
        ends = np.arange(behind, len(times))
        edges = at_us - self._window_us + self._tolerance_us
        bases = np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)
        last = self._totals[len(self._at_us) - 1]
        sums = np.empty((2, len(at_us), totals.shape[2]))
        for row, of in enumerate((ARRIVED, KNOWN)):
            every = np.concatenate((self._totals[past, of], totals[:, of] + last[of]))
            np.subtract(every[ends], every[bases], out=sums[row])
        held = np.concatenate((self._holders[past], np.broadcast_to(holder, (len(at_us), len(holder)))))[1:]
        bins = (np.arange(len(held))[:, None] * (executors + 1) + held + 1).ravel()
        found = []
        for of in (COMPLETED, LATENCY):
            every = np.concatenate((self._totals[past, of], totals[:, of] + last[of]))
            slots = summed(bins, np.diff(every, axis=0).ravel(), len(held) * (executors + 1))
            running = np.zeros((len(times), executors))
            np.cumsum(slots.reshape(len(held), executors + 1)[:, 1:], axis=0, out=running[1:])
            found.append(running[ends] - running[bases])
        is_full = at_us - times[bases] >= self._window_us - self._tolerance_us
        return sums, found[0], found[1], is_full

    def extend(self, at_us: list[int], totals: Floats, backlog: Floats, holder: Indices) -> None:
        """Close several slots at once: `totals` (slots, 4, shards) since the last one, nobody's holder
        changes."""
        count = len(at_us)
        self._make_room(count)
        slots = slice(len(self._at_us), len(self._at_us) + count)
        # Compacting begins the totals anew: what was last stands before `slots` now.
        last = self._totals[slots.start - 1]
        np.add(totals, last, out=self._totals[slots])
        self._backlog[slots] = backlog
        self._holders[slots] = holder
        self._at_us += at_us
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
