"""Rates of one operator over a window, by differences of cumulative samples; by shard, then by executor.

What is not known stays NaN through all sums (promise 7): an executor with one shard that cannot be told has
no rates. A shard whose writer changed is told from the samples of the new writer alone as soon as there are
two, and until then by its last rates, for as long as a window. Neighbours: `sample_table` has the arrays,
`elasticutor.policy`, `hybrid` and `resource_centric` decide on what comes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.samples.sample_table import (
    ARRIVED,
    BUSY_US,
    BYTES_IN,
    BYTES_OUT,
    COMPLETED,
    CUMULATIVE,
    NO_WRITER,
    NOBODY,
    ROWS,
    SERVED_US,
    STATE_BYTES,
    WAITED_US,
    Floats,
    Integers,
    SampleTable,
    Shards,
    Writers,
    owners_of,
    table_of,
)
from penstock.control.snapshot import OperatorSnapshot

US_PER_S = 1e6
_STORED_PER_WINDOW = 8
"""How many tables a window keeps, however often it is looked."""
_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True)
class ExecutorRates:
    """Arrays over executors, NaN where not known. Rates per second, sizes in bytes.

    `service_per_s` is mu of one core: rows over useful time; the last one known while an executor completes
    nothing. `backlog` is rows that arrived and are not completed. `latency_us` is the mean of rows completed
    in the window (l_i). `shards` is how many it has.
    """

    arrival_per_s: Floats
    service_per_s: Floats
    backlog: Floats
    bytes_per_s: Floats
    latency_us: Floats
    state_bytes: Floats
    shards: Integers


class _Growth:
    """Growth a second of each shard's counters since an older table, worked out when somebody asks.

    `filled` are shards told otherwise: (columns, their growth, when it was measured).
    """

    __slots__ = ("_base", "_filled", "_per_s", "_since_us", "_table", "at_us")

    def __init__(self, at_us: int, table: SampleTable, since_us: int, base: SampleTable | None) -> None:
        self.at_us = at_us
        self._table = table
        self._since_us = since_us
        self._base = base
        self._filled: tuple[Integers, Integers] | None = None
        self._per_s: Floats | None = None

    def per_s(self) -> Floats:
        """CUMULATIVE rows by shards; NaN where not known, everywhere without an older table."""
        if self._per_s is None:
            if self._base is None:
                self._per_s = np.full((CUMULATIVE, len(self._table)), np.nan)
            else:
                per_s: Floats = self._table.rows[:CUMULATIVE] - self._base.rows[:CUMULATIVE]
                per_s *= US_PER_S / (self.at_us - self._since_us)
                self._per_s = per_s
        return self._per_s

    def waiting(self) -> Floats:
        """Rows of each shard that have arrived and are not completed."""
        rows: Floats = self._table.rows[ARRIVED] - self._table.rows[COMPLETED]
        return rows

    def told_us(self, columns: Integers) -> Integers:
        """When the growth of `columns` was measured."""
        if self._filled is None:
            return np.full(len(columns), self.at_us)
        told_us = np.full(len(self._table), self.at_us)
        told_us[self._filled[0]] = self._filled[1]
        answer: Integers = told_us[columns]
        return answer

    def fill(self, columns: Integers, per_s: Floats, told_us: Integers) -> None:
        """Say of `columns` what was not measured by this table."""
        self.per_s()[:, columns] = per_s
        self._filled = columns, told_us


@dataclass(frozen=True, slots=True)
class OperatorLook:
    """One operator at one moment. `owner` is an index into `executors` for each shard. `grown` is
    [CUMULATIVE, executors], growth a second; `counted` [ROWS, executors], the counters themselves; `held` the
    shards of each executor. `filling`: half a window has not passed yet, no growth is known. `newest_per_s`
    is lambda of each executor since the look before, at least: less two deviations of a Poisson count; 0
    where that is not known."""

    shards: Shards
    executors: tuple[str, ...]
    owner: Integers
    grown: Floats
    counted: Floats
    held: Integers
    filling: bool
    growth: _Growth
    newest_per_s: Floats

    def arrival_per_s(self) -> Floats:
        """lambda of each shard."""
        arrival: Floats = self.growth.per_s()[ARRIVED]
        return arrival

    def waiting(self) -> Floats:
        """Rows of each shard that have arrived and are not completed."""
        return self.growth.waiting()

    def work(self) -> Floats:
        """Useful time of each shard as a share of one core: section 3.1's workload of a shard."""
        work: Floats = self.growth.per_s()[BUSY_US] / US_PER_S
        return work


class ServiceMemory:
    """Rates of executors, with the last mu of those that complete nothing: that is no measurement of it."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, ...], Floats] = ((), np.zeros(0))

    def rates(self, looks: Sequence[OperatorLook]) -> ExecutorRates:
        """Of all executors of `looks`, one operator after the other."""
        executors = tuple(name for look in looks for name in look.executors)
        grown = np.concatenate([np.zeros((CUMULATIVE, 0)), *(look.grown for look in looks)], axis=1)
        counted = np.concatenate([np.zeros((ROWS, 0)), *(look.counted for look in looks)], axis=1)
        arrival, completed, busy_us = grown[ARRIVED], grown[COMPLETED], grown[BUSY_US]
        service = np.full(len(executors), np.nan)
        np.divide(completed * US_PER_S, busy_us, out=service, where=(completed > 0) & (busy_us > 0))
        # Useful time that is missing is not the same as none.
        known = self._known(executors)
        service = np.where((completed == 0) & ~np.isnan(busy_us), known, service)
        self._last = executors, np.where(np.isnan(service), known, service)
        latency = np.full(len(executors), np.nan)
        np.divide(grown[WAITED_US] + grown[SERVED_US], completed, out=latency, where=completed > 0)
        return ExecutorRates(
            arrival_per_s=arrival,
            service_per_s=service,
            backlog=counted[ARRIVED] - counted[COMPLETED],
            bytes_per_s=grown[BYTES_IN] + grown[BYTES_OUT],
            latency_us=latency,
            state_bytes=counted[STATE_BYTES],
            shards=np.concatenate([np.zeros(0, dtype=np.int64), *(look.held for look in looks)]),
        )

    def _known(self, executors: tuple[str, ...]) -> Floats:
        names, rates = self._last
        if names == executors:
            return rates
        by_name = dict(zip(names, rates.tolist(), strict=True))
        return np.array([by_name.get(name, np.nan) for name in executors])


@dataclass(frozen=True, slots=True)
class _Look:
    """A table, and its sums by executor under the assignment of that moment."""

    at_us: int
    table: SampleTable
    layout: _Layout
    sums: Floats


class ShardRates:
    """Remembers one operator's samples for a window of `window_us`. Snapshots come in the order of time."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._writers = Writers()
        self._shards: Shards | None = None
        self._kept: deque[_Look] = deque()
        self._before: _Look | None = None
        self._last: _Growth | None = None
        self._layout: _Layout | None = None
        self._assigned: tuple[Mapping[str, str], Shards, tuple[str, ...], Integers] | None = None

    def observe(self, at_us: int, operator: OperatorSnapshot) -> OperatorLook:
        """Rates at `at_us`; everything is NaN until half a window has passed."""
        shards = self._known_shards(operator)
        table = table_of(operator.samples, shards, self._writers)
        executors = tuple(executor.name for executor in operator.executors)
        owner = self._owners(operator.assignment, shards, executors)
        if self._layout is None or not self._layout.fits(owner, len(executors)):
            self._layout = _Layout(owner, len(executors))
        now = _Look(at_us, table, self._layout, self._layout.sums(table.rows))
        while len(self._kept) > 1 and self._kept[1].at_us <= at_us - self._window_us:
            self._kept.popleft()
        filling = not self._kept or 2 * (at_us - self._kept[0].at_us) < self._window_us
        if filling:
            growth, sums = _Growth(at_us, table, at_us, None), np.full((CUMULATIVE, len(executors)), np.nan)
        else:
            growth, sums = self._growth(now)
            self._last = growth
        if not self._kept or (at_us - self._kept[-1].at_us) * _STORED_PER_WINDOW >= self._window_us:
            self._kept.append(now)
        newest_per_s = _newest_per_s(self._before, now)
        self._before = now
        held = self._layout.counts
        return OperatorLook(shards, executors, owner, sums, now.sums, held, filling, growth, newest_per_s)

    def _owners(self, assignment: Mapping[str, str], shards: Shards, executors: tuple[str, ...]) -> Integers:
        """The same mapping says the same: snapshots are not written to."""
        last = self._assigned
        if last is not None and last[0] is assignment and last[1] is shards and last[2] == executors:
            return last[3]
        owner = owners_of(assignment, shards, executors)
        self._assigned = assignment, shards, executors, owner
        return owner

    def _known_shards(self, operator: OperatorSnapshot) -> Shards:
        shards = _columns_of(operator, self._shards)
        if self._shards is not None and shards is not self._shards and shards.names != self._shards.names:
            self._kept.clear()
            self._last = self._before = None
        self._shards = shards
        return shards

    def _growth(self, now: _Look) -> tuple[_Growth, Floats]:
        """Growth since the window's first table, and its sums by executor."""
        base = self._kept[0]
        growth = _Growth(now.at_us, now.table, base.at_us, base.table)
        table = now.table
        same = table.writer is base.table.writer or bool(np.array_equal(table.writer, base.table.writer))
        if same and int(table.writer.min(initial=0)) > NO_WRITER:
            if now.layout is base.layout:
                # Nothing changed hands: sums of differences are differences of sums.
                sums: Floats = now.sums[:CUMULATIVE] - base.sums[:CUMULATIVE]
                sums *= US_PER_S / (now.at_us - base.at_us)
                return growth, sums
            return growth, now.layout.sums(growth.per_s())
        missing = np.flatnonzero((table.writer != base.table.writer) | (table.writer == NO_WRITER))
        self._fill(now, growth, missing)
        return growth, now.layout.sums(growth.per_s())

    def _fill(self, now: _Look, growth: _Growth, missing: Integers) -> None:
        """Growth of shards that the window's first table cannot tell of: from the oldest sample of the same
        writer, else what was known of them last."""
        writer = now.table.writer
        per_s = np.full((CUMULATIVE, len(missing)), np.nan)
        told_us = np.full(len(missing), now.at_us)
        # A shard that was not read at all is not told from memory: nobody knows whether it is still there.
        left = np.flatnonzero(writer[missing] != NO_WRITER)
        for older in list(self._kept)[1:]:
            columns = missing[left]
            same = writer[columns] == older.table.writer[columns]
            found = columns[same]
            if len(found) and older.at_us < now.at_us:
                grown = now.table.rows[:CUMULATIVE, found] - older.table.rows[:CUMULATIVE, found]
                per_s[:, left[same]] = grown * (US_PER_S / (now.at_us - older.at_us))
                left = left[~same]
        if self._last is not None and len(left):
            known_us = self._last.told_us(missing[left])
            fresh = now.at_us - known_us <= self._window_us
            left = left[fresh]
            per_s[:, left] = self._last.per_s()[:, missing[left]]
            told_us[left] = known_us[fresh]
        growth.fill(missing, per_s, told_us)


def _newest_per_s(before: _Look | None, now: _Look) -> Floats:
    """See `OperatorLook`."""
    unknown = np.zeros(now.sums.shape[1])
    if before is None or before.layout is not now.layout or before.at_us >= now.at_us:
        return unknown
    writer = now.table.writer
    if writer is not before.table.writer and not np.array_equal(writer, before.table.writer):
        return unknown
    rows = np.maximum(0.0, now.sums[ARRIVED] - before.sums[ARRIVED])
    newest: Floats = (rows - _DEVIATIONS * np.sqrt(rows)) * (US_PER_S / (now.at_us - before.at_us))
    return np.maximum(0.0, np.nan_to_num(newest))


def _columns_of(operator: OperatorSnapshot, known: Shards | None) -> Shards:
    """Arrays have columns of their own; else `known`, as long as every shard of the snapshot is among
    them."""
    samples = operator.samples
    if isinstance(samples, SampleTable):
        return samples.shards
    if isinstance(samples, SampleColumns):
        return known if known is not None and known.names == samples.shards else Shards(samples.shards)
    if known is not None:
        columns = known.column.keys()
        if columns >= samples.keys() and columns >= operator.assignment.keys():
            return known
    return Shards(sorted(operator.assignment.keys() | samples.keys()))


class _Layout:
    """Sums over executors of arrays over shards, for one assignment."""

    def __init__(self, owner: Integers, executors: int) -> None:
        self._owner = owner
        self._executors = executors
        owned = owner[owner != NOBODY] if (owner == NOBODY).any() else owner
        ascending = len(owned) == len(owner) and bool((np.diff(owner) >= 0).all())
        order = np.argsort(owner, kind="stable")
        self._order = None if ascending else order[len(owner) - len(owned) :]
        counts: Integers = np.bincount(owned, minlength=executors).astype(np.int64)
        self.counts = counts
        self._filled = np.flatnonzero(counts)
        self._starts = (np.cumsum(counts) - counts)[self._filled]

    def fits(self, owner: Integers, executors: int) -> bool:
        """Whether this is the layout for `owner`."""
        if executors != self._executors:
            return False
        return owner is self._owner or bool(np.array_equal(owner, self._owner))

    def sums(self, rows: Floats) -> Floats:
        """`rows` by shards to rows by executors; 0 for an executor without shards."""
        answer = np.zeros((len(rows), self._executors))
        if len(self._starts):
            ordered = rows if self._order is None else rows[:, self._order]
            answer[:, self._filled] = np.add.reduceat(ordered, self._starts, axis=1)
        return answer
