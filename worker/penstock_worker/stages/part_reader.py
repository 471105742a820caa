"""What was fetched of a keyed stage's shard -> the part of it that is worked on at once.

A part has the rows from the inbox's start on that are not done, timers that are due, keys that are to be
tried again: as many as `part_size` thinks fit a commit. Rows that take columns are read as such, of all
entries together. Neighbours: `keyed_part` is what is made here, `keyed_stage` works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.dataflow.plan import Processor
from penstock.store.codec import Batch, UnreadableEntry, decode_batch
from penstock.store.even_rows import rows_in
from penstock.store.ownership import OwnedShard
from penstock.store.port import DueTimer, Entry, FetchedShard
from penstock.store.stamps import Stamps
from penstock_worker.process.clock import Clock
from penstock_worker.stages import within
from penstock_worker.stages.due import due_of
from penstock_worker.stages.event_time import US_PER_MS
from penstock_worker.stages.failing_code import FailingCode
from penstock_worker.stages.keyed_part import (
    GROUPED_FROM,
    EvenRead,
    Part,
    are_sorted,
    is_apart,
    key_getter,
    keys_getter,
    read_columns,
    read_together,
)
from penstock_worker.stages.part_size import PartSize
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.group_rows import GroupRows

Given = tuple[Sequence[Entry], Sequence[DueTimer]]
"""What of a shard is worked on: rows and timers."""


class PartReader:
    """Of one keyed stage. `size` says how many rows a part has at most, and is the stage's; `failing` which
    keys wait."""

    def __init__(
        self,
        operator: str,
        head: Processor,
        runner: ProcessorRunner,
        failing: FailingCode,
        size: PartSize,
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._runner = runner
        self._failing = failing
        self._size = size
        self._clock = clock
        self._event_column = head.event_column
        self._key_columns = head.key_columns
        types = [column.type for column in head.input.columns]
        self._keys_of = keys_getter(head.key_columns, types)
        takes_columns = (
            runner.takes_columns
            and are_sorted(head.key_columns, types)
            and self._event_column is None
            and not failing.may_hold
        )
        self._takes_columns = takes_columns
        self._read: Callable[[bytes], Batch | EvenRead] = read_columns if takes_columns else decode_batch
        initial = head.initial
        self._initial_key_of = (
            key_getter(initial.key_columns, [column.type for column in initial.schema.columns])
            if initial
            else None
        )
        self._begun: set[str] | None = set() if initial and head.has_timers else None
        """Shards whose initial state is worked: no timer fires between two rows of it."""

    def release(self, shard: str) -> None:
        if self._begun is not None:
            self._begun.discard(shard)

    def given(self, owned: OwnedShard, fetched: FetchedShard) -> Given:
        """What of a shard is worked on: rows and timers, in turn where there is room for one alone."""
        entries, timers = fetched.entries, fetched.timers
        if timers and self._begun is not None and owned.shard not in self._begun:
            if entries:
                return entries, ()
            # Timers are asked for when all initial rows are in inboxes, and this one is empty.
            self._begun.add(owned.shard)
        if timers and entries and (self._size.rows < 2 or is_apart(entries[0].payload)):
            return ((), timers) if owned.number % 2 else (entries, ())
        return entries, timers

    def part(self, owned: OwnedShard, given: Given) -> Part:
        """The rows from the inbox's start on that are not done, as many as are worked on at once; and timers,
        where there are rows too, at most as many as these may be. Raises UnreadableEntry."""
        part = self._part(owned, given)
        if part.even and not part.group_columns(self._key_columns):
            self._add_even(part)
        return part

    def add(self, owned: OwnedShard, part: Part, entry: Entry, batch: Batch) -> None:
        """The rows of a batch that came with `entry`, all of them, to a part of nothing else."""
        self._add(owned, part, entry.placed_us, batch, batch.deltas_us, batch.rows)

    def _part(self, owned: OwnedShard, given: Given) -> Part:
        """As `part`; what came as columns is in no group."""
        entries, timers = given
        part = Part()
        left = self._size.rows
        if self._failing.waits(owned.shard):
            due = self._failing.due_keys(owned.shard, self._clock.now_us())
            part.retries = due[: max(1, left // 2)]
            left -= len(part.retries)
            if due and left < 1 and owned.number % 2 and (entries or timers):
                # Where there is room for one thing alone they take turns.
                part.retries, left = (), self._size.rows
        if timers:
            part.due = due_of(timers[: max(1, left // 2) if entries else left], self._runner.variables)
            left -= len(part.due)
        done = within.rows_done(owned.within, entries[0].number) if owned.within and entries else 0
        if self._takes_columns and self._add_together(owned, part, entries, done, left):
            return part
        for taken, (number, placed_us, payload) in enumerate(entries):
            if not left or is_apart(payload):
                part.entries = entries[:taken]
                return part
            batch = self._read(payload)
            rows: Sequence[Any] = batch.rows
            deltas_us: Sequence[int] = batch.deltas_us
            if done or len(rows) > left:
                end = min(len(rows), done + left)
                if end < len(rows):
                    part.within = within.encode(within.Rows(number, end))
                rows, deltas_us = rows[done:end], deltas_us[done:end]
                done = 0
            self._add(owned, part, placed_us, batch, deltas_us, rows)
            left -= len(rows)
            if part.within is not None:
                part.entries = entries[:taken]
                return part
        part.entries = entries
        return part

    def _add_together(
        self, owned: OwnedShard, part: Part, entries: Sequence[Entry], done: int, left: int
    ) -> bool:
        """As many rows as are `left`, of all their entries at once, behind the `done` ones of the first;
        False where these are not alike, or few: then nothing is done."""
        counts: list[int] = []
        last = done + left
        for _, _, payload in entries:
            if last <= 0 or is_apart(payload):
                break
            count = rows_in(payload)
            if count is None:
                return False
            counts.append(count)
            last -= count
        total = sum(counts)
        if len(counts) < 2 or total - done < GROUPED_FROM:
            return False
        read = read_together([entry.payload for entry in entries[: len(counts)]])
        if read is None:
            return False
        stamps, rows = read
        end = min(total, done + left)
        part.entries = entries[: len(counts)]
        worked = [counts[0] - done, *counts[1:-1], counts[-1] - (total - end)]
        part.rows_placed_us += sum(
            entry.placed_us * count for entry, count in zip(part.entries, worked, strict=True)
        )
        if end < total:
            part.entries = entries[: len(counts) - 1]
            part.within = within.encode(within.Rows(entries[len(counts) - 1].number, worked[-1]))
        if self._begun is not None:
            self._begun.add(owned.shard)
        part.even.append((stamps[done:end], rows[done:end]))
        return True

    def _add(
        self,
        owned: OwnedShard,
        part: Part,
        placed_us: int,
        batch: Batch | EvenRead,
        deltas_us: Sequence[int],
        rows: Sequence[Any],
    ) -> None:
        """These rows of a batch."""
        base_us = batch.base_us
        part.rows_placed_us += placed_us * len(rows)
        if batch.initial:
            self._add_initial(part, base_us, deltas_us, rows)
            return
        if self._begun is not None:
            # Sources begin behind the initial state.
            self._begun.add(owned.shard)
        if self._event_column is not None and owned.watermark.ms is not None:
            deltas_us, rows = self._in_time(part, owned.watermark.ms, base_us, deltas_us, rows)
        if type(rows) is GroupRows and type(deltas_us) is Stamps and not part.timestamps_us:
            part.even.append((deltas_us, rows))
            return
        if part.even:
            self._add_even(part)
        part.add([base_us + delta_us for delta_us in deltas_us], self._keys_of(rows), rows)

    def _add_even(self, part: Part) -> None:
        """Make rows of what came as columns."""
        even, part.even = part.even, []
        for stamps, columns in even:
            part.add(list(stamps), self._keys_of(columns), columns)

    def _add_initial(self, part: Part, base_us: int, deltas_us: Sequence[int], rows: Sequence[Any]) -> None:
        if (key_of := self._initial_key_of) is None:
            raise UnreadableEntry(f"rows of initial state, which operator {self._operator} has not")
        part.count([base_us + delta_us for delta_us in deltas_us])
        for row in rows:
            part.initial.setdefault(key_of(row), []).append(row)

    def _in_time(
        self, part: Part, watermark_ms: int, base_us: int, deltas_us: Sequence[int], rows: Sequence[Any]
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """The rows that do not come behind the watermark; the others are late."""
        column, since_us = self._event_column, watermark_ms * US_PER_MS
        late = [at for at, row in enumerate(rows) if row[column] is not None and row[column] < since_us]
        if not late:
            return deltas_us, rows
        part.late_us.extend([base_us + deltas_us[at] for at in late])
        part.late.extend([rows[at] for at in late])
        gone = set(late)
        in_time = [at for at in range(len(rows)) if at not in gone]
        return [deltas_us[at] for at in in_time], [rows[at] for at in in_time]
