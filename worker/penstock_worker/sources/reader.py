"""The port of a source: what a task reads a partition through.

A reader keeps nothing that matters: the position that is committed with the outputs is all, and a read
from the same position gives the same rows, in this process or another. What it holds between reads
are caches, open files, and the moment from which a paced partition counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable


class BadInput(NamedTuple):
    """A line or record that is no row: what it is, whatever its source makes of that again (`rows_again`),
    why it is none, and where it stands, in words."""

    raw: Any
    error: str
    place: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """`rows` are tuples in the order of the source's schema, `timestamps_us` theirs (as many): when a row
    was due, or when it was read if the source has no rate.

    `position` is where the next read begins; one that moved is committed also without rows. `finished`:
    nothing comes after it. `next_due_us` is when a paced partition has its next row, or when an idle one is
    to be asked again; None for one that is neither, and at the end.
    """

    rows: Sequence[Sequence[Any]]
    timestamps_us: Sequence[int]
    position: bytes
    finished: bool
    next_due_us: int | None
    lag: tuple[int, int] | None = None
    """Of a partition that can tell it: records that are there and were not read, and how many milliseconds
    ago what was read last was made, 0 where nothing is left."""
    bad: Sequence[BadInput] = ()
    """What came among the rows and is none, of a reader that was told to pass such over (`SparingReader`)."""


class SourceReader(Protocol):
    """Reads the partitions of one operator, by shard name. All times are of the node's steady clock, in
    microseconds (`process.clock`): a wall clock that is set neither hurries nor stops a pace."""

    @property
    def paced(self) -> bool:
        """Whether rows become due, or come, one after the other: those of a few milliseconds are gathered
        into one commit then, unless `next_due_us` says that there are more by now."""

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        """Begin with a shard at `position` (b"" is the start): a paced one counts from `now_us` on."""

    def release(self, shard: str) -> None:
        """Forget a shard; nothing happens to one that is not open."""

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        """Rows from `position` on, at most so many and about so many bytes (one row at the least).

        A row that is not due at `now_us` is not given. Raises PermanentError when the partition cannot be
        read any more.
        """

    def grew(self, shard: str, position: bytes) -> bool:
        """Whether an open partition that was read to its end at `position` may have more by now."""

    def close(self) -> None:
        """Forget all shards."""


@runtime_checkable
class SparingReader(Protocol):
    """A reader that can pass over what is no row."""

    def spare(self) -> None:
        """From now on `read` answers with such input (`SourceBatch.bad`), and does not raise for it."""

    def record_of(self, raw: Any) -> object:
        """What a bad input's `raw` is, for people and programs: an object that JSON can hold."""

    def rows_again(self, raw: Any) -> list[tuple[Any, ...]]:
        """The rows of what was no row. Raises PermanentError where it is none still."""


@runtime_checkable
class ColumnReader(Protocol):
    """A reader that has its rows as columns."""

    def give_columns(self, rows_min: Callable[[], int]) -> bool:
        """From now on `read` may answer with rows that are columns (`values.column_rows`), where they are
        `rows_min` at least, which is asked for anew each time. False where it cannot."""
