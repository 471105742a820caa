"""Examine: from successive snapshots of an operator to the metrics of its executors (StreamSwitch, 4).

One `Examiner` an operator, shown every snapshot of it, also those during a treatment. What the paper leaves
open is decided in docs/decisions/0012-streamswitch.md. Neighbours: `slot_history` keeps the counts,
`service_rates` the moving averages; `examination` is what comes out, `diagnose` what is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.control.samples import sample_table
from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.samples.sample_table import SampleTable
from penstock.control.snapshot import OperatorSnapshot
from penstock.control.streamswitch.examination import Examination
from penstock.control.streamswitch.service_rates import ServiceRates
from penstock.control.streamswitch.slot_history import (
    ARRIVED,
    COMPLETED,
    GONE,
    KNOWN,
    LATENCY,
    ROWS_MIN,
    Flags,
    Floats,
    Indices,
    SlotHistory,
    renumbered,
    summed,
)
from penstock.control.target import LatencyTarget

KNOWN_SHARE_MIN = 0.5
"""The share of a window over which a shard's counts must be known for its rate to stand for the whole."""

STALL_SLOTS = 2
"""Slots without a completion that mean nothing yet: tasks tell of their work about once a slot."""

STALL_SERVICES = 10
"""Mean service times without a completion that may still be chance (e^-10 for exponential ones)."""

_REACH_LATENCIES = 10
"""Counts are remembered over so many latency bounds: counted latencies and stalls end there."""

_BUSY = 3
"""Row of useful time in what is read, where an increment has the time that it covers."""

_FALL_MAX = 0.5
"""What rounding may take from a sum; a count that falls does so by a row at least."""

_NOT_READ = (np.nan,) * 5


class Examiner:
    """Shown an operator's snapshots in the order of time; holds T / delta slots of them."""

    def __init__(self, target: LatencyTarget) -> None:
        self._target = target
        self._shards: tuple[str, ...] = ()
        self._assignment: dict[str, str] = {}
        self._seen_assignment: Mapping[str, str] = self._assignment
        self._holder: Indices = np.zeros(0, np.intp)
        self._unplaced = ""
        self._rates = ServiceRates()
        self._history: SlotHistory
        self._writers: list[object]
        self._last: Floats
        """(4, shards): each shard's last sample that was read."""
        self._last_at_us: Floats
        """When that was, up to date as long as not `_was_whole`."""
        self._was_whole: bool
        """Every shard was read at the last look."""
        self._begin(())

    def retarget(self, target: LatencyTarget) -> None:
        """Another target with the same window and interval; what was seen stays."""
        self._target = target

    def observe(self, at_us: int, seen: OperatorSnapshot) -> Examination:
        """Take one snapshot in and answer what is known now. ValueError when `at_us` does not grow."""
        moved = self._place(at_us, seen)
        table, same_writer = self._read(seen)
        delta = table - self._last
        backlog = table[ARRIVED] - table[COMPLETED]
        previous_us = self._history.last_at_us
        if (
            moved is None
            and same_writer is None
            and self._was_whole
            and previous_us is not None
            and at_us - previous_us <= self._target.window_us
            and not self._unplaced
            and delta.min(initial=0.0) >= -_FALL_MAX
        ):
            # Nothing is missing, as nearly always: the same as below, without asking of each shard.
            missing = ""
            self._take_whole(at_us, at_us - previous_us, delta, backlog)
            self._last = table
        else:
            missing = self._take_parts(at_us, previous_us, table, delta, backlog, moved, same_writer)
        if seen.treatment:
            # Shards stand still while they move: the clock of a stall starts afterwards.
            self._rates.last_completed_us.fill(at_us)
        return self._examination(at_us, seen, backlog, missing)

    # --- taking in ------------------------------------------------------------------------------------

    def _begin(self, shards: tuple[str, ...]) -> None:
        """Shards are other ones: nothing that was seen can be compared."""
        count = len(shards)
        target = self._target
        self._shards = shards
        reach_us = int(_REACH_LATENCIES * target.latency_us)
        self._history = SlotHistory(count, target.window_us, target.interval_us, reach_us)
        self._last = np.full((4, count), np.nan)
        self._last_at_us = np.full(count, -np.inf)
        self._writers = [None] * count
        self._was_whole = False

    def _place(self, at_us: int, seen: OperatorSnapshot) -> Flags | None:
        """Who holds which shard now; answers which shards changed hands since the last look, None for
        none."""
        names = tuple([executor.name for executor in seen.executors])
        tasks = tuple([executor.tasks for executor in seen.executors])
        is_same = self._is_same(seen.assignment)
        if not is_same and set(seen.assignment) != set(self._shards):
            self._begin(_shards_of(seen))
            self._assignment = {}
        has_others = names != self._rates.executors
        if has_others:
            table = self._rates.renumber(names, at_us)
            self._history.renumber(table)
            self._holder = renumbered(table, self._holder)
        self._rates.set_tasks(tasks)
        if is_same and not has_others:
            return None
        index = {name: order for order, name in enumerate(names)}
        self._holder = np.array([index.get(seen.assignment[shard], GONE) for shard in self._shards], np.intp)
        self._unplaced = next((self._shards[i] for i in np.flatnonzero(self._holder == GONE)), "")
        before, self._assignment = self._assignment, dict(seen.assignment)
        self._seen_assignment = seen.assignment
        if is_same or not before:
            return None
        moved = np.array([before[shard] != self._assignment[shard] for shard in self._shards], np.bool_)
        self._rates.inherit(
            {
                (before[self._shards[i]], self._assignment[self._shards[i]])
                for i in np.flatnonzero(moved).tolist()
            }
        )
        return moved

    def _is_same(self, assignment: Mapping[str, str]) -> bool:
        """A dict may have been changed since it was seen last; other mappings are taken for values."""
        if isinstance(assignment, dict):
            return self._assignment == assignment
        return assignment is self._seen_assignment or self._assignment == assignment

    def _read(self, seen: OperatorSnapshot) -> tuple[Floats, Flags | None]:
        """(4, shards): arrived, completed, waited + served, busy, NaN for what is not known; and by shard
        whether its writer is the one of its last sample, None when all are."""
        samples = seen.samples
        writers: list[object]
        if isinstance(samples, SampleColumns) and samples.shards == self._shards:
            table = samples.table()
            writers = [samples.writer] * len(self._shards)
        elif isinstance(samples, SampleTable) and samples.shards.names == self._shards:
            table, writers = _rows_of(samples, self._writers)
        else:
            read = [samples.get(shard) for shard in self._shards]
            columns = np.array(
                [
                    _NOT_READ if s is None else (s.arrived, s.completed, s.waited_us, s.served_us, s.busy_us)
                    for s in read
                ],
                dtype=np.float64,
            ).reshape(len(read), 5)
            table = np.empty((4, len(read)))
            table[:2] = columns[:, :2].T
            table[LATENCY] = columns[:, 2] + columns[:, 3]
            table[_BUSY] = columns[:, 4]
            # A shard that was not read keeps its writer.
            writers = [old if s is None else s.writer for s, old in zip(read, self._writers, strict=True)]
        if writers == self._writers:
            return table, None
        same = np.array([a == b for a, b in zip(writers, self._writers, strict=True)], np.bool_)
        self._writers = writers
        return table, same

    def _take_whole(self, at_us: int, slot_us: int, delta: Floats, backlog: Floats) -> None:
        busy_us = delta[_BUSY].copy()
        delta[KNOWN] = slot_us
        self._history.append(at_us, delta, backlog, self._holder, moved=False)
        self._rates.worked(at_us, self._rates.learn(self._holder, delta[COMPLETED], busy_us))

    def _take_parts(
        self,
        at_us: int,
        previous_us: int | None,
        table: Floats,
        delta: Floats,
        backlog: Floats,
        moved: Flags | None,
        same_writer: Flags | None,
    ) -> str:
        """Shard by shard what is known of this slot. Answers what was not read."""
        if self._was_whole and previous_us is not None:
            self._last_at_us.fill(previous_us)
        slot_us = at_us - self._last_at_us
        # Comparisons are False where a count is missing. One that fell is of another writer, said or not.
        known = (slot_us <= self._target.window_us) & (delta[:2] >= -_FALL_MAX).all(axis=0)
        if same_writer is not None:
            known &= same_writer
        rows = np.where(known, np.maximum(delta[:2], 0.0), 0.0)
        latency_us = self._latency_us(at_us, delta[LATENCY], rows, backlog, known)
        self._history.append(
            at_us,
            np.stack((rows[ARRIVED], rows[COMPLETED], latency_us, np.where(known, slot_us, 0.0))),
            backlog,
            self._holder,
            moved=moved is not None,
        )
        if previous_us is not None:
            # Missing before, and known from both ends now (4.3).
            for shard in np.flatnonzero(known & (self._last_at_us < previous_us)).tolist():
                self._history.spread(shard, int(self._last_at_us[shard]))
        is_read = ~np.isnan(backlog)
        self._last_at_us[is_read] = at_us
        self._last = np.where(is_read, table, self._last)
        self._was_whole = bool(is_read.all())
        usable = known if moved is None else known & ~moved
        self._rates.learn_parts(self._holder, rows[COMPLETED], delta[_BUSY], usable)
        if self._unplaced:
            self._rates.last_completed_us.fill(at_us)
        elif self._rates.executors:
            # Rows of an unknown number may be some.
            done = summed(self._holder, np.where(known, rows[COMPLETED], 1.0), len(self._rates.executors))
            self._rates.worked(at_us, done)
        unread = np.flatnonzero(~is_read)
        if not unread.size:
            return ""
        return f"{unread.size} of {len(self._shards)} shards were not read, {self._shards[unread[0]]} first"

    def _latency_us(
        self, at_us: int, measured: Floats, rows: Floats, backlog: Floats, known: Flags
    ) -> Floats:
        """By shard: summed latency of the rows completed in this slot, as measured, else by counting
        slots."""
        counted = known & ~(measured >= -_FALL_MAX)
        if not counted.any():
            return np.where(known, measured, 0.0)
        completed = self._history.arrived() + rows[ARRIVED] - np.where(known, backlog, 0.0)
        by_slots = self._history.counted_latency_us(at_us, completed - rows[COMPLETED], completed)
        return np.where(counted, by_slots, np.where(known, measured, 0.0))

    # --- answering ------------------------------------------------------------------------------------

    def _examination(self, at_us: int, seen: OperatorSnapshot, backlog: Floats, missing: str) -> Examination:
        rates = self._rates
        count = len(rates.executors)
        sums = self._history.window_sums()
        missing = missing or self._incomplete(seen, sums[KNOWN])
        if missing:
            shard_arrival_per_s = np.full(len(self._shards), np.nan)
            arrival_per_s = service_per_s = instantaneous_us = np.full(count, np.nan)
            stalled = np.zeros(count, np.bool_)
        else:
            shard_arrival_per_s = sums[ARRIVED] * 1e6 / sums[KNOWN]
            arrival_per_s = summed(self._holder, shard_arrival_per_s, count)
            service_per_s = rates.per_executor()
            completed, latency_us = self._history.window_by_executor(count, sums)
            instantaneous_us = latency_us / np.maximum(completed, ROWS_MIN)
            stalled = np.zeros(count, np.bool_)
            if at_us - rates.last_completed_us.min() > STALL_SLOTS * self._target.interval_us:
                instantaneous_us, stalled = self._stalls(at_us, completed, service_per_s, instantaneous_us)
        return Examination(
            at_us=at_us,
            executors=rates.executors,
            tasks=rates.tasks,
            shards=self._shards,
            holder=self._holder,
            arrival_per_s=arrival_per_s,
            service_per_s=service_per_s,
            instantaneous_us=instantaneous_us,
            stalled=stalled,
            shard_arrival_per_s=shard_arrival_per_s,
            shard_completed=sums[COMPLETED],
            shard_latency_sum_us=sums[LATENCY],
            shard_backlog=backlog,
            missing=missing,
        )

    def _stalls(
        self, at_us: int, completed: Floats, service_per_s: Floats, instantaneous_us: Floats
    ) -> tuple[Floats, Flags]:
        """(l_i, stalled) by executor: the age of rows that wait while nothing is completed bounds the latency
        that they will have, from below. Arrays are by executor."""
        waiting_us = np.zeros(len(completed))
        np.maximum.at(waiting_us, self._holder, self._history.waiting_us())
        stall_us = np.minimum(waiting_us, at_us - self._rates.last_completed_us)
        by_chance_us = np.maximum(
            STALL_SLOTS * self._target.interval_us,
            STALL_SERVICES * 1e6 / np.nan_to_num(service_per_s, nan=np.inf),
        )
        is_long = stall_us > by_chance_us
        counts = is_long | (completed <= ROWS_MIN)
        return (
            np.where(counts, np.maximum(instantaneous_us, stall_us), instantaneous_us),
            is_long & (stall_us > self._target.alert_us),
        )

    def _incomplete(self, seen: OperatorSnapshot, known_us: Floats) -> str:
        """Why the slots that are there do not make a window; "" when they do."""
        if not seen.executors:
            return "no executor is there"
        if not self._shards:
            return "no shard is there"
        if self._unplaced:
            return f"shard {self._unplaced} is on no executor"
        target = self._target
        span_us = self._history.span_us
        if span_us < target.window_us - target.interval_us // 2:
            return f"{span_us / 1000:.0f} ms of a window of {target.window_us / 1000:.0f} ms were seen"
        least_us = float(known_us.min())
        if least_us >= KNOWN_SHARE_MIN * target.window_us:
            return ""
        return (
            f"of shard {self._shards[int(known_us.argmin())]} only {least_us / 1000:.0f} ms "
            f"of a window of {target.window_us / 1000:.0f} ms are known"
        )


def _rows_of(samples: SampleTable, before: list[object]) -> tuple[Floats, list[object]]:
    """The table and the writers of `_read`; `before` are the writers that unread shards keep."""
    rows = samples.rows
    table = np.empty((4, len(before)))
    table[ARRIVED] = rows[sample_table.ARRIVED]
    table[COMPLETED] = rows[sample_table.COMPLETED]
    table[LATENCY] = rows[sample_table.WAITED_US] + rows[sample_table.SERVED_US]
    table[_BUSY] = rows[sample_table.BUSY_US]
    unread = samples.writer == sample_table.NO_WRITER
    writers: list[object] = samples.writer.tolist()
    if unread.any():
        table[:, unread] = np.nan
        writers = [
            old if new == sample_table.NO_WRITER else new for new, old in zip(writers, before, strict=True)
        ]
    return table, writers


def _shards_of(seen: OperatorSnapshot) -> tuple[str, ...]:
    """The shards in the order of the samples, if those are arrays: so that they are taken as they are."""
    samples = seen.samples
    if isinstance(samples, SampleColumns | SampleTable):
        names = samples.shards if isinstance(samples, SampleColumns) else samples.shards.names
        if len(names) == len(seen.assignment) and all(name in seen.assignment for name in names):
            return names
    return tuple(seen.assignment)
