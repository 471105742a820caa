"""Partitions as their owners read them: what is committed is a position for each, and a list of rows.

Neighbour: `source_suite` decides who dies when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.dataflow.partitions import shard_name
from penstock.dataflow.schema import Schema
from penstock.dataflow.source import Source
from penstock_worker.kinds.sources import open_reader
from penstock_worker.process.clock import SystemClock
from penstock_worker.sources.reader import SourceBatch, SourceReader
from penstock_worker.values.rows import OutputShape, RowReader

OPERATOR = "in"
ROWS_MAX = 1024
BYTES_MAX = 256 << 10
READ_S_MAX = 5.0
"""A read that takes longer has waited for something. One takes milliseconds; the first also imports."""

IDLE_LOOKS = 3
"""So often nothing comes at the end, before it is taken for the end."""

Row = tuple[Any, ...]
OpenReader = Callable[[str, Source, Path], SourceReader]


class Partition:
    """What a store holds of one: `position`, and the rows that were committed with it."""

    def __init__(self, shard: str, position: bytes = b"") -> None:
        self.shard = shard
        self.position = position
        self.rows: list[Row] = []
        self.finished = False
        self.history: list[tuple[bytes, int]] = [(position, 0)]
        """Each position that was committed, with the number of rows before it."""

    def commit(self, batch: SourceBatch, rows: Iterable[Row]) -> None:
        self.rows += rows
        if batch.position != self.position:
            self.history.append((batch.position, len(self.rows)))
        self.position = batch.position
        self.finished = batch.finished


class Readers:
    """Makes owners of one source, and closes them all at the end: one that is killed just stops reading."""

    def __init__(
        self,
        source: Source,
        schema: Schema,
        folder: Path,
        within_s: float,
        open_one: OpenReader = open_reader,
    ) -> None:
        self._source = source
        self._folder = folder
        self._open_one = open_one
        self._within_s = within_s
        self._opened: list[SourceReader] = []
        self._clock = SystemClock()
        self._python = RowReader(schema, collected=True)
        self._wire = OutputShape(schema)

    def shards(self) -> list[str]:
        return [shard_name(OPERATOR, part) for part in self._source.parts(self._folder)]

    def owner(self, *partitions: Partition) -> Owner:
        """A new one, in a process of its own as far as it can tell."""
        reader = self._open_one(OPERATOR, self._source, self._folder)
        self._opened.append(reader)
        owner = Owner(reader, self._clock, self._as_python, self._within_s)
        for partition in partitions:
            owner.open(partition)
        return owner

    def _as_python(self, rows: list[Row]) -> list[Row]:
        return [tuple(row) for row in self._python.rows(rows)]

    def shaped(self, rows: Iterable[Any]) -> list[Row]:
        """Rows as an author gives them, in the form of those that are read."""
        return self._as_python(self._wire.wire_rows(list(rows)))

    def close(self) -> None:
        for reader in self._opened:
            reader.close()


class Owner:
    """One reader and the partitions that it was given."""

    def __init__(
        self,
        reader: SourceReader,
        clock: SystemClock,
        as_python: Callable[[list[Row]], list[Row]],
        within_s: float,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._as_python = as_python
        self._within_s = within_s

    def open(self, partition: Partition) -> None:
        self._reader.open(partition.shard, partition.position, self._clock.now_us())

    def release(self, partition: Partition) -> None:
        self._reader.release(partition.shard)

    def grew(self, partition: Partition) -> bool:
        return self._reader.grew(partition.shard, partition.position)

    def look(
        self, partition: Partition, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
    ) -> tuple[SourceBatch, list[Row]]:
        """One read, of which nothing is committed yet; the port's rules are held."""
        now_us = self._clock.now_us()
        began_s = time.monotonic()
        batch = self._reader.read(partition.shard, partition.position, rows_max, bytes_max, now_us)
        took_s = time.monotonic() - began_s
        shard = partition.shard
        assert took_s < READ_S_MAX, f"{shard}: a read took {took_s:.1f} s; it must not wait"
        assert len(batch.rows) <= rows_max, f"{shard}: {len(batch.rows)} rows where {rows_max} were wanted"
        assert len(batch.timestamps_us) == len(batch.rows), f"{shard}: each row has a timestamp"
        if batch.rows:
            moved = batch.position != partition.position
            assert moved, f"{shard}: rows were given, and the position stays where it was: they come twice"
        return batch, self._as_python([tuple(row) for row in batch.rows])

    def step(self, partition: Partition, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> bool:
        """One read, committed. False: nothing is there now; then it is rested until the next look."""
        batch, rows = self.look(partition, rows_max, bytes_max)
        came = bool(rows) or batch.position != partition.position
        partition.commit(batch, rows)
        if not came and not batch.finished:
            self.rest(batch)
        return came

    def rest(self, batch: SourceBatch) -> None:
        until_us = batch.next_due_us or 0
        time.sleep(min(0.2, max(0.001, (until_us - self._clock.now_us()) / 1e6)))

    def finish(self, partition: Partition, rows: int, rows_max: int = ROWS_MAX) -> None:
        """Read until there are so many rows, and on until nothing is left."""
        patience = Patience(partition, rows, self._within_s)
        while patience.has_more():
            patience.looked(self.step(partition, rows_max))


class Patience:
    """When a partition is read to its end: it says so, or it has `rows` rows and some looks found nothing."""

    def __init__(self, partition: Partition, rows: int, within_s: float) -> None:
        self._partition = partition
        self._rows = rows
        self._within_s = within_s
        self._came_s = time.monotonic()
        self._idle = 0

    def looked(self, came: bool) -> None:
        self._idle = 0 if came else self._idle + 1
        if came:
            self._came_s = time.monotonic()

    def has_more(self) -> bool:
        """Raises AssertionError where there are more rows, or some are missing and none come."""
        partition, there = self._partition, len(self._partition.rows)
        assert there <= self._rows, (
            f"{partition.shard}: {there} rows came where there are {self._rows}; the last are "
            f"{partition.rows[-3:]}"
        )
        if partition.finished or (self._idle >= IDLE_LOOKS and there >= self._rows):
            return False
        assert time.monotonic() < self._came_s + self._within_s, (
            f"{partition.shard}: {there} of {self._rows} rows came, and then none for {self._within_s} s"
        )
        return True
