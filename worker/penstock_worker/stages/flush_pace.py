"""How long a paced source gathers records before it flushes them.

Each flush is a commit that puts an entry into every shard that it has rows for: the store's work grows with
the flushes as much as with the records. A store that answers slowly is a busy one, so the source gathers for
longer then: fewer and larger entries. One that is behind its pace does not gather, it reads full batches.
"""

from __future__ import annotations

GATHER_US_MIN = 1_500
GATHER_US_MAX = 10_000
GATHER_ROUND_TRIPS = 4.0
"""Gathered for, in times from a flush to its answer: the flush takes a quarter of the time or less, up to the
most that is gathered for."""
SMOOTHING = 1 / 8
"""Weight of the newest round trip in their running mean."""


class FlushPace:
    """One shard's: told of each flush and of its answer, in microseconds of one clock."""

    __slots__ = ("_behind", "_flushed_us", "_round_trip_us")

    def __init__(self) -> None:
        self._flushed_us: int | None = None
        self._round_trip_us = 0.0
        self._behind = False

    @property
    def due_us(self) -> int:
        """When to flush next; 0 before the first flush and while the source is behind."""
        if self._flushed_us is None or self._behind:
            return 0
        gather_us = min(GATHER_US_MAX, GATHER_ROUND_TRIPS * self._round_trip_us)
        return self._flushed_us + max(GATHER_US_MIN, round(gather_us))

    def flushed(self, now_us: int, *, behind: bool) -> None:
        """A batch that was read at `now_us` is on its way; `behind` when more than it took was due."""
        self._flushed_us = now_us
        self._behind = behind

    def answered(self, now_us: int) -> None:
        """The store applied the last flush. One that took long counts as one slow answer."""
        if self._flushed_us is None:
            return
        took_us = min(GATHER_US_MAX, max(0, now_us - self._flushed_us))
        self._round_trip_us += SMOOTHING * (took_us - self._round_trip_us)
