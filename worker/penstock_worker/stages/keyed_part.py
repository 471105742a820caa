"""What a keyed stage works on at once: rows by their keys, timers, keys that are tried again.

Neighbour: `keyed_stage` makes it of what was fetched, and a commit of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from penstock.store import fragments, letters
from penstock.store.port import Entry, StateWrite
from penstock_worker.stages.due import NOTHING_DUE, hashable
from penstock_worker.stages.letter_box import Ordered

Key = tuple[Any, ...]

_APART = frozenset((fragments.FIRST_BYTE, letters.FIRST_BYTE))
"""What entries begin with that are worked on by themselves: pieces of a row, orders about dead letters."""


def is_apart(payload: bytes) -> bool:
    return payload[0] in _APART


class Group:
    """Rows of one key in one batch, oldest source timestamp beside them."""

    __slots__ = ("oldest_us", "rows")

    def __init__(self, oldest_us: int, row: Any) -> None:
        self.oldest_us = oldest_us
        self.rows: list[Any] = [row]


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
        "due", "entries", "groups", "initial", "late", "late_us", "order", "retries", "rows_placed_us",
        "timestamps_us", "within", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = NOTHING_DUE
        self.initial: dict[Key, list[Any]] = {}
        """Rows of initial state, which come before all others."""
        self.groups: dict[Key, Group] = {}
        self.timestamps_us: list[int] = []
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

    def __len__(self) -> int:
        """Rows and timers, and keys that are tried again."""
        return len(self.timestamps_us) + len(self.late) + len(self.due) + len(self.retries)

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
