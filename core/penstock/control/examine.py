"""Examine: from successive snapshots of an operator to the metrics of its executors (StreamSwitch, section
4).

One `Examiner` an operator, shown every snapshot of it, also those during a treatment. It remembers the last
slots and a moving average of each executor's service rate. What the paper leaves open is decided in
docs/decisions/0012-streamswitch.md. Neighbours: `slot_history` keeps the counts, `examination` is what
comes out, `diagnose` what is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.control import sample_table
from penstock.control.examination import ROWS_MIN, Examination, Flags, Floats, Indices
from penstock.control.sample_columns import SampleColumns
from penstock.control.sample_table import SampleTable
from penstock.control.slot_history import (
    ARRIVED,
    COMPLETED,
    GONE,
    KNOWN,
    LATENCY,
    SlotHistory,
    renumbered,
    summed,
)
from penstock.control.snapshot import OperatorSnapshot
from penstock.control.target import LatencyTarget

ETA = 1 / 8
"""Decay factor of the moving average of service rates (4.2)."""

RATE_SAMPLE_ROWS = 16
"""Rows that one sample of a service rate is made of at least. The mean of C / busy time is C / (C - 1) mu
where service times are exponential, so ratios of few rows are too high."""

KNOWN_SHARE_MIN = 0.5
"""The share of a window over which a shard's counts must be known for its rate to stand for the whole."""

STALL_SLOTS = 2
"""Slots without a completion that mean nothing yet: tasks tell of their work about once a slot."""

STALL_SERVICES = 10
"""Mean service times without a completion that may still be chance (e^-10 for exponential ones)."""

_REACH_LATENCIES = 10
"""Arrivals are remembered over so many latency bounds: counted latencies end there."""

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
        self._rates = _ServiceRates()
        self._last: Floats
        self._last_at_us: Floats
        self._writers: list[object]
        self._were_read: bool
        self._backlog: Floats
        self._waits_since_us: Floats
        self._begin(())

    def retarget(self, target: LatencyTarget) -> None:
        """Another target with the same window and interval; what was seen stays."""
        self._target = target

    def observe(self, at_us: int, seen: OperatorSnapshot) -> Examination:
        """Take one snapshot in and answer what is known now. ValueError when `at_us` does not grow."""
        moved = self._place(at_us, seen)
        table, same_writer, missing = self._read(seen)
        previous_us = self._history.last_at_us
        slot_us = at_us - self._last_at_us
        delta = table - self._last
        # Comparisons are False where a count is missing. One that fell is of another writer, said or not.
        known = same_writer & (slot_us <= self._target.window_us) & (delta[:2] >= -ROWS_MIN).all(axis=0)
        is_whole = bool(known.all())
        rows = np.where(known, np.maximum(delta[:2], 0.0), 0.0)
        backlog = table[0] - table[1]
        self._history.append(
            at_us,
            np.stack(
                (
                    rows[0],
                    rows[1],
                    self._latency_us(at_us, delta[2], rows, backlog, known),
                    np.where(known, slot_us, 0.0),
                )
            ),
            self._holder,
            moved=moved.any().item(),
        )
        if is_whole and self._were_read:
            self._last_at_us.fill(at_us)
        else:
            self._mend(at_us, previous_us, table, known)
        self._last = np.where(np.isnan(table[:2]).any(axis=0), self._last, table)
        self._were_read = not missing
        self._rates.learn(self._holder, rows[1], delta[3], known & ~moved)
        self._watch(at_us, rows[1], backlog, known, seen.treatment)
        return self._examination(at_us, seen, missing)

    # --- taking in ------------------------------------------------------------------------------------

    def _begin(self, shards: tuple[str, ...]) -> None:
        """Shards are other ones: nothing that was seen can be compared."""
        count = len(shards)
        target = self._target
        self._shards = shards
        self._history = SlotHistory(
            count, target.window_us, target.interval_us, int(_REACH_LATENCIES * target.latency_us)
        )
        self._last = np.full((4, count), np.nan)
        self._last_at_us = np.full(count, -np.inf)
        self._writers = [None] * count
        self._were_read = False
        self._backlog = np.zeros(count)
        self._waits_since_us = np.full(count, np.inf)

    def _place(self, at_us: int, seen: OperatorSnapshot) -> Flags:
        """Who holds which shard now; answers which shards changed hands (none at the first look)."""
        names = tuple(executor.name for executor in seen.executors)
        tasks = tuple(executor.tasks for executor in seen.executors)
        is_same = self._is_same(seen.assignment)
        if not is_same and set(seen.assignment) != set(self._shards):
            self._begin(_shards_of(seen))
            self._assignment = {}
        if names != self._rates.executors:
            table = self._rates.renumber(names, at_us)
            self._history.renumber(table)
            self._holder = renumbered(table, self._holder)
        elif is_same:
            self._rates.tasks = tasks
            return np.zeros(len(self._shards), np.bool_)
        self._rates.tasks = tasks
        index = {name: order for order, name in enumerate(names)}
        holder = np.array([index.get(seen.assignment[shard], GONE) for shard in self._shards], np.intp)
        self._unplaced = next((self._shards[i] for i in np.flatnonzero(holder == GONE)), "")
        is_first = not self._assignment
        moved = np.zeros(len(holder), np.bool_)
        if not is_first:
            moved = np.array([self._assignment[s] != seen.assignment[s] for s in self._shards], np.bool_)
            self._rates.inherit(
                {
                    (self._assignment[self._shards[i]], seen.assignment[self._shards[i]])
                    for i in np.flatnonzero(moved)
                }
            )
        self._assignment = dict(seen.assignment)
        self._seen_assignment = seen.assignment
        self._holder = holder
        return moved

    def _is_same(self, assignment: Mapping[str, str]) -> bool:
        """A dict may have been changed since it was seen last; other mappings are taken for values."""
        if isinstance(assignment, dict):
            return self._assignment == assignment
        return assignment is self._seen_assignment or self._assignment == assignment

    def _read(self, seen: OperatorSnapshot) -> tuple[Floats, Flags, str]:
        """((4, shards) of arrived, completed, waited + served, busy, NaN for what is not known; by shard
        whether its writer is the one of its last sample; what was not read)."""
        samples = seen.samples
        writers: list[object]
        if isinstance(samples, SampleTable) and samples.shards.names == self._shards:
            arrived, completed, busy_us, waited_us, served_us = samples.rows[
                [
                    sample_table.ARRIVED,
                    sample_table.COMPLETED,
                    sample_table.BUSY_US,
                    sample_table.WAITED_US,
                    sample_table.SERVED_US,
                ]
            ]
            table = np.stack((arrived, completed, waited_us + served_us, busy_us))
            table[:, samples.writer == sample_table.NO_WRITER] = np.nan
            writers = [
                old if new == sample_table.NO_WRITER else new
                for new, old in zip(samples.writer.tolist(), self._writers, strict=True)
            ]
        elif isinstance(samples, SampleColumns) and samples.shards == self._shards:
            table = samples.table()
            writers = [samples.writer] * len(self._shards)
        else:
            read = [samples.get(shard) for shard in self._shards]
            columns = np.array(
                [
                    _NOT_READ if s is None else (s.arrived, s.completed, s.waited_us, s.served_us, s.busy_us)
                    for s in read
                ],
                dtype=np.float64,
            ).reshape(len(read), 5)
            table = np.stack(
                (columns[:, 0], columns[:, 1], columns[:, 2] + columns[:, 3], columns[:, 4]), axis=0
            )
            # A shard that was not read keeps its writer.
            writers = [old if s is None else s.writer for s, old in zip(read, self._writers, strict=True)]
        same = np.ones(len(self._shards), np.bool_)
        if writers != self._writers:
            same = np.array([a == b for a, b in zip(writers, self._writers, strict=True)], np.bool_)
            self._writers = writers
        unread = np.flatnonzero(np.isnan(table[0]) | np.isnan(table[1]))
        missing = ""
        if unread.size:
            missing = (
                f"{unread.size} of {len(self._shards)} shards were not read, {self._shards[unread[0]]} first"
            )
        return table, same, missing

    def _latency_us(
        self, at_us: int, measured: Floats, rows: Floats, backlog: Floats, known: Flags
    ) -> Floats:
        """By shard: summed latency of the rows completed in this slot, as measured, else by counting
        slots."""
        counted = known & ~(measured >= -1.0)
        if not counted.any():
            return np.where(known, measured, 0.0)
        completed = self._history.arrived() + rows[0] - np.where(known, backlog, 0.0)
        by_slots = self._history.counted_latency_us(at_us, completed - rows[1], completed)
        return np.where(counted, by_slots, np.where(known, measured, 0.0))

    def _mend(self, at_us: int, previous_us: int | None, table: Floats, known: Flags) -> None:
        """Interpolate what was missing and is known from both ends now (4.3), and note who was read."""
        if previous_us is not None:
            for shard in np.flatnonzero(known & (self._last_at_us < previous_us)):
                self._history.spread(int(shard), int(self._last_at_us[shard]))
        read = ~np.isnan(table[:2]).any(axis=0)
        self._last_at_us[read] = at_us

    def _watch(self, at_us: int, completed: Floats, backlog: Floats, known: Flags, is_treated: bool) -> None:
        """Keep since when, at least, each shard's oldest row waits, and when each executor last completed
        one.

        Rows of a shard are taken in order: while none is completed, what waited once waits still.
        """
        waiting = backlog > ROWS_MIN
        goes_on = waiting & (self._backlog > ROWS_MIN) & (completed <= ROWS_MIN) & known
        waits = np.where(goes_on, self._waits_since_us, np.where(waiting, float(at_us), np.inf))
        # What was not read waits as it did.
        unread = np.isnan(backlog)
        self._waits_since_us = np.where(unread, self._waits_since_us, waits)
        self._backlog = np.where(unread, self._backlog, backlog)
        if is_treated or self._unplaced:
            # Shards stand still while they move: the clock of a stall starts afterwards.
            self._rates.last_completed_us.fill(at_us)
        else:
            # Rows of an unknown number may be some.
            worked = np.bincount(
                self._holder, weights=np.where(known, completed, 1.0), minlength=len(self._rates.executors)
            )
            self._rates.last_completed_us[worked > ROWS_MIN] = at_us

    # --- answering ------------------------------------------------------------------------------------

    def _examination(self, at_us: int, seen: OperatorSnapshot, missing: str) -> Examination:
        target = self._target
        count = len(self._rates.executors)
        sums = self._history.window_sums()
        missing = missing or self._incomplete(seen, sums[KNOWN])
        waiting_us = np.maximum(at_us - self._waits_since_us, 0.0)
        if missing:
            nothing = np.full(count, np.nan)
            return Examination(
                at_us=at_us,
                executors=self._rates.executors,
                tasks=self._rates.tasks,
                shards=self._shards,
                holder=self._holder,
                arrival_per_s=nothing,
                service_per_s=nothing,
                instantaneous_us=nothing,
                stalled=np.zeros(count, np.bool_),
                shard_arrival_per_s=np.full(len(self._shards), np.nan),
                shard_completed=sums[COMPLETED],
                shard_latency_sum_us=sums[LATENCY],
                shard_waiting_us=waiting_us,
                missing=missing,
            )
        shard_arrival_per_s = sums[ARRIVED] * 1e6 / sums[KNOWN]
        service_per_s = self._rates.per_executor()
        completed, latency_us = self._history.window_by_executor(count, sums)
        some = completed > ROWS_MIN
        instantaneous_us = np.where(some, latency_us / np.where(some, completed, 1.0), 0.0)
        stalled = np.zeros(count, np.bool_)
        quiet_us = at_us - self._rates.last_completed_us
        if quiet_us.max(initial=0.0) > 0:
            # The age of rows that wait while nothing is completed bounds the latency that they will have.
            longest_us = np.zeros(count)
            np.maximum.at(longest_us, self._holder, waiting_us)
            stall_us = np.minimum(longest_us, quiet_us)
            by_chance_us = np.maximum(
                STALL_SLOTS * target.interval_us,
                STALL_SERVICES * 1e6 / np.nan_to_num(service_per_s, nan=np.inf),
            )
            is_long = stall_us > by_chance_us
            stalled = is_long & (stall_us > target.alert_us)
            counts = is_long | ~some
            instantaneous_us = np.where(counts, np.maximum(instantaneous_us, stall_us), instantaneous_us)
        return Examination(
            at_us=at_us,
            executors=self._rates.executors,
            tasks=self._rates.tasks,
            shards=self._shards,
            holder=self._holder,
            arrival_per_s=summed(self._holder, shard_arrival_per_s, count),
            service_per_s=service_per_s,
            instantaneous_us=instantaneous_us,
            stalled=stalled,
            shard_arrival_per_s=shard_arrival_per_s,
            shard_completed=sums[COMPLETED],
            shard_latency_sum_us=sums[LATENCY],
            shard_waiting_us=waiting_us,
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
        least = int(known_us.argmin())
        if known_us[least] < KNOWN_SHARE_MIN * target.window_us:
            return (
                f"of shard {self._shards[least]} only {known_us[least] / 1000:.0f} ms of a window of "
                f"{target.window_us / 1000:.0f} ms are known"
            )
        return ""


def _shards_of(seen: OperatorSnapshot) -> tuple[str, ...]:
    """The shards in the order of the samples, if those are arrays of them: so that they are taken as they
    are."""
    samples = seen.samples
    if isinstance(samples, SampleColumns | SampleTable):
        names = samples.shards if isinstance(samples, SampleColumns) else samples.shards.names
        if len(names) == len(seen.assignment) and all(name in seen.assignment for name in names):
            return names
    return tuple(seen.assignment)


class _ServiceRates:
    """mu of each executor, per busy second of one task, as a moving average of completed / busy (4.2).

    The average begins with the mean of its first samples. Slots without work change nothing: an idle executor
    keeps the rate that it had. One that has none yet has that of the executor its shards came from.
    """

    def __init__(self) -> None:
        self.executors: tuple[str, ...] = ()
        self.tasks: tuple[int, ...] = ()
        self.last_completed_us: Floats = np.zeros(0)
        self._per_busy_s: Floats = np.zeros(0)
        self._samples: Floats = np.zeros(0)
        self._rows: Floats = np.zeros(0)
        self._busy_us: Floats = np.zeros(0)

    def renumber(self, executors: tuple[str, ...], at_us: int) -> Indices:
        """Other executors from `at_us` on, or in another order. Answers old index -> new one; GONE for those
        that left."""
        new = {name: order for order, name in enumerate(executors)}
        table = np.array([new.get(name, GONE) for name in self.executors], np.intp)
        stays = table >= 0
        for field, empty in (
            ("_per_busy_s", np.nan),
            ("_samples", 0.0),
            ("_rows", 0.0),
            ("_busy_us", 0.0),
            ("last_completed_us", float(at_us)),
        ):
            values = np.full(len(executors), empty)
            values[table[stays]] = getattr(self, field)[stays]
            setattr(self, field, values)
        self.executors = executors
        return table

    def inherit(self, moves: set[tuple[str, str]]) -> None:
        """Shards went from one executor to another, by name: mu_d = mu_s while mu_d is not known (3.4)."""
        index = {name: order for order, name in enumerate(self.executors)}
        for source, destination in sorted(moves):
            s, d = index.get(source), index.get(destination)
            if s is not None and d is not None and np.isnan(self._per_busy_s[d]):
                self._per_busy_s[d] = self._per_busy_s[s]
                self._samples[d] = 0.0 if np.isnan(self._per_busy_s[s]) else 1.0

    def learn(self, holder: Indices, completed: Floats, busy_us: Floats, usable: Flags) -> None:
        """One slot's rows and useful time, by shard; of those `usable` whose busy time is known."""
        if not self.executors:
            return
        usable = usable & (busy_us >= 0) & (holder != GONE)
        count = len(self.executors)
        bins = np.maximum(holder, 0)
        self._rows += summed(bins, np.where(usable, completed, 0.0), count)
        self._busy_us += summed(bins, np.where(usable, busy_us, 0.0), count)
        full = (self._rows >= RATE_SAMPLE_ROWS) & (self._busy_us > 0)
        if not full.any():
            return
        sample = self._rows[full] * 1e6 / self._busy_us[full]
        weight = np.maximum(ETA, 1.0 / (self._samples[full] + 1.0))
        before = np.where(np.isnan(self._per_busy_s[full]), sample, self._per_busy_s[full])
        self._per_busy_s[full] = before + weight * (sample - before)
        self._samples[full] += 1
        self._rows[full] = 0.0
        self._busy_us[full] = 0.0

    def per_executor(self) -> Floats:
        """mu_i: rate per busy second times tasks. Who has no sample has the ratio so far, else the others'
        mean; NaN when nobody's is known."""
        rate = self._per_busy_s
        unknown = np.isnan(rate)
        if unknown.any():
            begun = unknown & (self._rows > 0) & (self._busy_us > 0)
            rate = np.where(begun, self._rows * 1e6 / np.where(begun, self._busy_us, 1.0), rate)
            unknown = np.isnan(rate)
            if not unknown.all():
                rate = np.where(unknown, rate[~unknown].mean() if unknown.any() else 0.0, rate)
        per_executor: Floats = rate * np.maximum(np.array(self.tasks, dtype=np.float64), 1.0)
        return per_executor
