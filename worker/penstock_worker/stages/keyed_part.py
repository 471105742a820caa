"""What a keyed stage works on at once: rows by their keys, timers, keys that are tried again.

Neighbours: `part_reader` makes it of what was fetched, `keyed_stage` a commit of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from penstock.store import fragments, letters
from penstock.store.codec import Batch, decode_batch
from penstock.store.even_rows import read_even, read_even_together
from penstock.store.port import Entry, StateWrite
from penstock.store.stamps import Stamps
from penstock_worker.stages.due import NOTHING_DUE, hashable
from penstock_worker.stages.letter_box import Ordered
from penstock_worker.values.group_rows import GroupRows, grouped, joined_columns

Key = tuple[Any, ...]

GROUPED_FROM = 64
"""Fewer rows are sooner grouped one by one."""
_SORTED = frozenset(
    {
        "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string",
        "binary",
    }
)  # fmt: skip
"""Types of keys that are grouped by a sort: two that differ are two keys, to Python as well."""
_APART = frozenset((fragments.FIRST_BYTE, letters.FIRST_BYTE))
"""What entries begin with that are worked on by themselves: pieces of a row, orders about dead letters."""


def are_sorted(columns: Sequence[int], types: Sequence[str]) -> bool:
    """Whether rows with these key columns may be grouped as columns."""
    return bool(columns) and all(types[column] in _SORTED for column in columns)


class EvenRead(NamedTuple):
    """As `codec.Batch`, of an entry that was read by columns."""

    base_us: int
    deltas_us: Stamps
    rows: GroupRows
    initial: bool = False


def read_columns(payload: bytes) -> Batch | EvenRead:
    """An entry, by columns where it is even. Raises UnreadableEntry."""
    even = read_even(payload)
    if even is None:
        return decode_batch(payload)
    return EvenRead(0, even.stamps, GroupRows(even.columns, 0, len(even.stamps)))


def read_together(payloads: Sequence[bytes]) -> tuple[Stamps, GroupRows] | None:
    """The rows of several entries by columns, as if they were those of one; None where they are not alike."""
    even = read_even_together(payloads)
    return None if even is None else (even.stamps, GroupRows(even.columns, 0, len(even.stamps)))


def is_apart(payload: bytes) -> bool:
    return payload[0] in _APART


class Group:
    """Rows of one key in one batch, oldest source timestamp beside them."""

    __slots__ = ("oldest_us", "rows")

    def __init__(self, oldest_us: int, rows: Any) -> None:
        self.oldest_us = oldest_us
        self.rows = rows


def key_getter(columns: Sequence[int], types: Sequence[str]) -> Callable[[Any], Key]:
    """Row -> key tuple. NaN becomes one object, so that rows with NaN in their key are handed over together;
    Spark calls once for each of them, on one state. A struct becomes a tuple."""
    if any(types[column].startswith("struct<") for column in columns):
        return lambda row: tuple(hashable(row[column]) for column in columns)
    if any(types[column] in ("double", "float") for column in columns):

        def floats(row: Any) -> Key:
            values = (row[column] for column in columns)
            return tuple(math.nan if value != value else value for value in values)

        return floats
    if len(columns) == 1:
        column = columns[0]
        return lambda row: (row[column],)
    return itemgetter(*columns)


def keys_getter(columns: Sequence[int], types: Sequence[str]) -> Callable[[Sequence[Any]], Iterable[Key]]:
    """Rows -> their keys, as `key_getter` has them."""
    key_of = key_getter(columns, types)
    (first, *others) = columns
    if others or types[first].startswith(("struct<", "double", "float")):
        return lambda rows: map(key_of, rows)
    value_of = itemgetter(first)
    return lambda rows: zip(map(value_of, rows))


class Part:
    """What is worked on at once: groups by key in order of first appearance, and all source timestamps.

    `rows_placed_us` is the sum over rows of when they were placed in the inbox. `entries` are done with it,
    `within` says what is to be noted of the one behind them (None: nothing new). `due` are timers, behind the
    rows.
    """

    __slots__ = (
        "due", "entries", "even", "groups", "initial", "late", "late_us", "order", "retries",
        "rows_placed_us", "timestamps_us", "within", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = NOTHING_DUE
        self.initial: dict[Key, list[Any]] = {}
        """Rows of initial state, which come before all others."""
        self.groups: dict[Key, Group] = {}
        self.timestamps_us: list[int] | Stamps = []
        self.even: list[tuple[Stamps, GroupRows]] = []
        """Rows that came as columns and are in no group yet; with them there are no others."""
        self.rows_placed_us = 0
        self.entries: Sequence[Entry] = ()
        self.within: bytes | None = None
        self.writes: tuple[StateWrite, ...] = ()
        """State changes that are not user code's."""
        self.late: list[Any] = []
        """Rows that came behind the watermark,"""
        self.late_us: list[int] = []
        """and their source timestamps."""
        self.retries: Sequence[Key] = ()
        """Keys that are to be tried again, before all else."""
        self.order: Ordered | None = None
        """What is to be done with a dead letter; there is nothing else then."""

    def count(self, timestamps_us: list[int]) -> None:
        """So many rows more, with these timestamps."""
        counted = self.timestamps_us
        if isinstance(counted, list):
            counted += timestamps_us
        else:
            self.timestamps_us = [*counted, *timestamps_us]

    def add(self, timestamps_us: list[int], keys: Iterable[Key], rows: Iterable[Any]) -> None:
        """Put rows into their groups."""
        groups = self.groups
        find = groups.get
        self.count(timestamps_us)
        for key, timestamp_us, row in zip(keys, timestamps_us, rows, strict=True):
            group = find(key)
            if group is None:
                groups[key] = Group(timestamp_us, [row])
            else:
                group.rows.append(row)
                if timestamp_us < group.oldest_us:
                    group.oldest_us = timestamp_us

    def group_columns(self, key_columns: Sequence[int]) -> bool:
        """Group what came as columns. False where the entries' are not alike, or few: then they are rows."""
        rows = sum(len(rows) for _, rows in self.even)
        if rows < GROUPED_FROM:
            return False
        pieces = [rows.cut() for _, rows in self.even]
        columns = pieces[0] if len(pieces) == 1 else joined_columns(pieces)
        if columns is None or any(columns[place] is None for place in key_columns):
            return False
        stamps = self.even[0][0]
        if len(self.even) > 1:
            stamps = Stamps(np.concatenate([stamps.array for stamps, _ in self.even]))
        found = grouped(columns, stamps.array, key_columns)
        self.groups = {
            key: Group(oldest_us, of_key)
            for key, of_key, oldest_us in zip(found.keys, found.rows, found.oldest_us, strict=True)
        }
        self.timestamps_us = stamps
        self.even = []
        return True

    def __len__(self) -> int:
        """Rows and timers, and keys that are tried again."""
        count = len(self.timestamps_us) + len(self.late) + len(self.retries)
        return count if self.due is NOTHING_DUE else count + len(self.due)

    @property
    def keys(self) -> Iterable[Key]:
        """The keys that it is about."""
        if self.due.done or self.initial or self.retries:
            return dict.fromkeys((*self.retries, *self.initial, *self.groups, *self.due.keys))
        return self.groups


def oldest_of(part: Part, now_us: int) -> Callable[[Key], int]:
    """How old the rows of a key in a part are."""

    def oldest_us(key: Key) -> int:
        group = part.groups.get(key)
        return now_us if group is None else group.oldest_us

    return oldest_us
