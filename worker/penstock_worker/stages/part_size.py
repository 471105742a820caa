"""How many rows of what waits are worked on at once: as many as fit a commit.

What rows come to is known only once user code has run on them. A part that came out too large for one commit
is committed in several (`large_commit`), and the next parts have fewer rows; one that grows beyond what a
task should hold (`values.held`) is given up in the middle, and worked on anew with fewer rows. Neighbours:
`keyed_stage` and `source_stage` ask here.
"""

from __future__ import annotations

from penstock.store.port import Bounds

WRITES_MAX = 4096
"""Changes of state in one commit: a few milliseconds of the store's time."""
QUICK_US = 8_000
PART_ROWS_MAX = 1 << 20
_PATIENCE_PARTS = 32
"""After a part was given up, so many are worked on before one is larger again."""


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


class QuickRows:
    """How many rows a source that gives columns reads at once: `rows_min`, as all do, and up to `rows_max` as
    long as what is done with them takes a few milliseconds.

    A size is up to four times the one below it: where there are many shards, a size in between has the cost
    of columns and of rows. One slow part is most often one that had to wait for a core; two in succession
    are slow themselves, whatever was quick and small between them.
    """

    __slots__ = ("_at", "_sizes", "_slow_rows")

    def __init__(self, rows_min: int, rows_max: int) -> None:
        self._sizes = [rows_min]
        while self._sizes[-1] < rows_max:
            self._sizes.append(min(rows_max, 4 * self._sizes[-1]))
        self._at = 0
        self._slow_rows = 0
        """Of a slow part, if none of its size has been quick since."""

    @property
    def rows(self) -> int:
        """How many are read at most."""
        return self._sizes[self._at]

    def took(self, rows: int, took_us: int) -> None:
        """So many rows took so long."""
        if took_us > QUICK_US:
            if self._slow_rows:
                self._at = max(0, self._at - 1)
            self._slow_rows = 0 if self._slow_rows else rows
            return
        if 2 * rows >= self._slow_rows:
            self._slow_rows = 0
        above = min(self._at + 1, len(self._sizes) - 1)
        if rows >= self.rows and took_us * self._sizes[above] < QUICK_US * rows:
            self._at = above
