"""Samples and assignment of one operator as arrays: what `OperatorSnapshot` asks for, at 8 192 shards an
operator.

Both classes are the mappings that a snapshot has (shard -> sample, shard -> executor), so that every policy
reads them; one that sums over all shards takes the arrays. `table_of` and `owners_of` make the arrays of any
other mapping. Neighbours: `shard_rates` takes differences of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from penstock.control.samples.sample_columns import SampleColumns
from penstock.control.snapshot import ShardSample

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ARRIVED, COMPLETED, BUSY_US, BYTES_IN, BYTES_OUT, WAITED_US, SERVED_US, STATE_BYTES = range(8)
"""Rows of `SampleTable.rows`. All but the last are cumulative."""
ROWS = 8
CUMULATIVE = 7
NO_WRITER = -1
NOBODY = -1


class Shards:
    """The names of an operator's shards in the order of the arrays' columns. Made once: shards never
    change."""

    __slots__ = ("column", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.column = {name: column for column, name in enumerate(self.names)}
        if len(self.column) < len(self.names):
            raise ValueError("a shard is there twice")


class SampleTable(Mapping[str, ShardSample | None]):
    """One sample a shard. `rows` is ROWS by shards, NaN where a number is not known; `writer` a number a
    shard, equal for samples that may be subtracted from each other, NO_WRITER where the shard was not
    read."""

    __slots__ = ("rows", "shards", "writer")

    def __init__(self, shards: Shards, rows: Floats, writer: Integers) -> None:
        """Takes the arrays as they are. ValueError if their shapes do not fit."""
        count = len(shards.names)
        if rows.shape != (ROWS, count) or writer.shape != (count,):
            raise ValueError(f"{count} shards have rows {rows.shape} and writers {writer.shape}")
        self.shards = shards
        self.rows = rows
        self.writer = writer

    def __getitem__(self, shard: str) -> ShardSample | None:
        column = self.shards.column[shard]
        writer = int(self.writer[column])
        if writer == NO_WRITER:
            return None
        values: list[float] = self.rows[:, column].tolist()
        return ShardSample(
            arrived=int(values[ARRIVED]),
            completed=int(values[COMPLETED]),
            waited_us=_known(values[WAITED_US]),
            served_us=_known(values[SERVED_US]),
            busy_us=_known(values[BUSY_US]),
            writer=writer,
            state_bytes=_whole(values[STATE_BYTES]),
            bytes_in=_whole(values[BYTES_IN]),
            bytes_out=_whole(values[BYTES_OUT]),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.shards.names)

    def __len__(self) -> int:
        return len(self.shards.names)

    def __contains__(self, shard: object) -> bool:
        return shard in self.shards.column


class AssignmentTable(Mapping[str, str]):
    """Which executor runs a shard: `owner` is an index into `executors` for each shard, NOBODY for none."""

    __slots__ = ("executors", "owner", "shards")

    def __init__(self, shards: Shards, executors: tuple[str, ...], owner: Integers) -> None:
        """Takes the array as it is. ValueError if its shape does not fit."""
        if owner.shape != (len(shards.names),):
            raise ValueError(f"{len(shards.names)} shards have {owner.shape} owners")
        self.shards = shards
        self.executors = executors
        self.owner = owner

    def __getitem__(self, shard: str) -> str:
        owner = int(self.owner[self.shards.column[shard]])
        if owner == NOBODY:
            raise KeyError(shard)
        return self.executors[owner]

    def __iter__(self) -> Iterator[str]:
        return (
            name
            for name, owner in zip(self.shards.names, self.owner.tolist(), strict=True)
            if owner != NOBODY
        )

    def __len__(self) -> int:
        return int(np.count_nonzero(self.owner != NOBODY))


class Writers:
    """Numbers for the writers of plain samples, the same for equal ones as long as this lives."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, writer: object) -> int:
        """TypeError for a writer that cannot be a key: it could not be told from others."""
        return self._numbers.setdefault(writer, len(self._numbers))


def table_of(samples: Mapping[str, ShardSample | None], shards: Shards, writers: Writers) -> SampleTable:
    """`samples` as a table with the columns of `shards`; itself if it is one of those shards."""
    if isinstance(samples, SampleTable) and _same(samples.shards, shards):
        return samples
    if isinstance(samples, SampleColumns) and samples.shards == shards.names:
        return _of_columns(samples, shards, writers)
    found = [samples.get(name) for name in shards.names]
    rows = [_MISSING if sample is None else _NUMBERS(sample) for sample in found]
    number = writers.number
    # None becomes NaN.
    table = np.array(rows, dtype=np.float64).reshape(len(rows), ROWS).T
    writer = [NO_WRITER if sample is None else number(sample.writer) for sample in found]
    return SampleTable(shards, np.ascontiguousarray(table), np.array(writer, dtype=np.int64))


def _of_columns(samples: SampleColumns, shards: Shards, writers: Writers) -> SampleTable:
    values = np.full((ROWS, len(shards.names)), np.nan)
    columns = (
        (ARRIVED, samples.arrived),
        (COMPLETED, samples.completed),
        (BUSY_US, samples.busy_us),
        (WAITED_US, samples.waited_us),
        (SERVED_US, samples.served_us),
    )
    for row, column in columns:
        if column is not None:
            values[row] = column
    read = ~(np.isnan(samples.arrived) | np.isnan(samples.completed))
    writer = np.where(read, writers.number(samples.writer), NO_WRITER)
    return SampleTable(shards, values, writer.astype(np.int64))


def owners_of(assignment: Mapping[str, str], shards: Shards, executors: tuple[str, ...]) -> Integers:
    """For each of `shards` the index of its executor in `executors`; NOBODY where it has none of these."""
    if (
        isinstance(assignment, AssignmentTable)
        and assignment.executors == executors
        and _same(assignment.shards, shards)
    ):
        return assignment.owner
    index = {name: number for number, name in enumerate(executors)}
    owners = (index.get(assignment.get(name, ""), NOBODY) for name in shards.names)
    return np.fromiter(owners, dtype=np.int64, count=len(shards.names))


def _same(one: Shards, other: Shards) -> bool:
    return one is other or one.names == other.names


_MISSING = (None,) * ROWS
_NUMBERS: Callable[[ShardSample], tuple[float | None, ...]] = attrgetter(
    "arrived",
    "completed",
    "busy_us",
    "bytes_in",
    "bytes_out",
    "waited_us",
    "served_us",
    "state_bytes",
)
"""In the order of the rows."""


def _known(value: float) -> float | None:
    return None if value != value else value


def _whole(value: float) -> int | None:
    return None if value != value else int(value)
