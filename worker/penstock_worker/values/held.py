"""What one part of the work may hold in memory: rows that user code puts out, changes, state that is read.

What grows beyond it is given up in the middle (`TooMuch`) and worked on anew with fewer rows; a single row
may have more. Neighbours: `user_code.running`, `steps` and `state.cache` count what is held, `part_size` says
how many rows the next part has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from penstock.store.port import Bounds

HELD_ROWS_MAX = 1 << 16
HELD_BYTES_MAX = 16 << 20
READ_BYTES_MAX = 64 << 20
"""What a part of several rows may put out and change, by samples, and read of state, or it is given up."""
ROWS_OUT_MAX = 1 << 22
"""Rows that one row may put out; they are held in memory."""
LOOK_ROWS = 8
"""What one call of user code puts out is looked at when it is more."""


class TooMuch(Exception):
    """A part was given up: what it came to should not be held at once. The text says so of a single row."""


class Held:
    """What one part may hold in memory. `alone`: a single row, which cannot be split further."""

    __slots__ = ("alone", "bytes_max", "rows_max", "total_bytes_max")

    def __init__(self, bounds: Bounds, *, alone: bool) -> None:
        self.alone = alone
        self.rows_max = ROWS_OUT_MAX if alone else HELD_ROWS_MAX
        self.total_bytes_max = bounds.large_bytes_max
        self.bytes_max = bounds.large_bytes_max if alone else HELD_BYTES_MAX

    def check(self, rows: Sequence[Any]) -> None:
        """Look at rows that were put out; their size is taken from the last one. Raises TooMuch."""
        if len(rows):
            self.check_count(len(rows), rows[-1])

    def check_count(self, count: int, last: Any) -> None:
        """The same of so many rows, by the last one."""
        if count > self.rows_max:
            raise TooMuch(f"puts out more than {self.rows_max} rows; yield fewer for one row")
        self.check_bytes(_bytes_of(last) * count, "puts out")

    def check_bytes(self, size_bytes: int, what: str) -> None:
        """Raises TooMuch."""
        if size_bytes > self.bytes_max:
            raise TooMuch(
                f"{what} about {size_bytes} bytes; {self.bytes_max} are the most for one row. "
                "Put out or change less at a time"
            )

    def check_total(self, size_bytes: int) -> None:
        """Look at what a part came to in the end. Raises TooMuch."""
        if size_bytes > self.total_bytes_max:
            raise TooMuch(
                f"puts out and changes {size_bytes} bytes; {self.total_bytes_max} are the most for one row. "
                "Put out or change less at a time"
            )

    def listed(self, made: Iterator[Any], rows: list[Any]) -> list[Any]:
        """`rows` and all that an iterator yields behind them. Raises TooMuch, early."""
        wanted = len(rows)
        while len(rows) == wanted:
            self.check(rows)
            more = max(LOOK_ROWS, wanted)
            rows.extend(islice(made, more))
            wanted += more
        self.check(rows)
        return rows


ONE_ROW = Held(Bounds(), alone=True)


def _bytes_of(row: Any) -> int:
    """About what a row takes: its texts and bytes."""
    values = row.values() if isinstance(row, dict) else row if isinstance(row, list | tuple) else (row,)
    return sum(len(value) for value in values if isinstance(value, str | bytes | bytearray))
