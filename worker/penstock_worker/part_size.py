"""How much of what waits is worked on at once: as much as fits a commit, and no more than memory should hold.

What rows come to is known only once user code has run on them. A part that came out too large for one commit
is committed in several (`large_commit`), and the next parts have fewer rows; one that grows beyond what a
task should hold is given up in the middle, and worked on anew with fewer rows. Neighbours: `keyed_stage` and
`source_stage` ask here, `user_code.running`, `steps` and `state.cache` count what is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from penstock.store.port import Bounds

WRITES_MAX = 4096
"""Changes of state in one commit: a few milliseconds of the store's time."""
HELD_ROWS_MAX = 1 << 16
HELD_BYTES_MAX = 16 << 20
READ_BYTES_MAX = 64 << 20
"""What a part of several rows may put out and change, by samples, and read of state, or it is given up."""
ROWS_OUT_MAX = 1 << 22
"""Rows that one row may put out; they are held in memory."""
PART_ROWS_MAX = 1 << 20
LOOK_ROWS = 8
"""What one call of user code puts out is looked at when it is more."""
_PATIENCE_PARTS = 32
"""After a part was given up, so many are worked on before one is larger again."""


class TooMuch(Exception):
    """A part was given up: what it came to should not be held at once. The text says so of a single row."""


def fill_of(bounds: Bounds, outputs: int, size_bytes: int, writes: int = 0) -> float:
    """What part of a commit's room something takes; over 1 it needs several commits.

    Half of the bytes that a commit may have: others wait while the store takes them.
    """
    return max(
        outputs / bounds.outputs_per_commit_max, 2 * size_bytes / bounds.commit_bytes_max, writes / WRITES_MAX
    )


class PartSize:
    """`rows` is how many the next part has at most."""

    __slots__ = ("_patience", "rows", "rows_max")

    def __init__(self, rows_max: int = PART_ROWS_MAX) -> None:
        self.rows = self.rows_max = rows_max
        self._patience = 0

    @property
    def is_limited(self) -> bool:
        """Parts have fewer rows than they may."""
        return self.rows < self.rows_max

    def worked(self, rows: int, fill: float) -> None:
        """A part of `rows` rows took `fill` of a commit's room."""
        if fill > 1:
            self.rows = max(1, min(self.rows_max, int(rows / (2 * fill))))
        elif rows >= self.rows and self.rows < self.rows_max:
            if self._patience:
                self._patience -= 1
            elif fill < 0.25:
                self.rows = min(self.rows_max, 2 * rows)

    def given_up(self, rows: int) -> None:
        """A part of so many rows was too much."""
        self.rows = max(1, rows // 8)
        self._patience = _PATIENCE_PARTS


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
        count = len(rows)
        if count > self.rows_max:
            raise TooMuch(f"puts out more than {self.rows_max} rows; yield fewer for one row")
        if count:
            self.check_bytes(_bytes_of(rows[-1]) * count, "puts out")

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
