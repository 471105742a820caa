"""When rows of two sides meet, and until when one waits: pure arithmetic over an `IntervalJoin`.

Rows wait in buckets of time, so that few are looked at for one, and that few are written anew with one. Times
are in microseconds since 1970, what timers are set for in milliseconds; sides are LEFT and RIGHT, 0 and 1.
Neighbours: `join_buffers` (the rows that wait), `interval_join` (the processor).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataflow.interval_join import IntervalJoin

LEFT, RIGHT = 0, 1
_BUCKETS_EACH = 8
"""An interval has so many buckets."""
_BUCKET_MS_MIN = 1000


class JoinTimes:
    def __init__(self, join: IntervalJoin) -> None:
        self._bucket_ms = max(_BUCKET_MS_MIN, (join.upper_ms - join.lower_ms) // _BUCKETS_EACH)
        self._bucket_us = self._bucket_ms * 1000
        # From its own time to those of its first and last partner.
        self._first_us = (join.lower_ms * 1000, -join.upper_ms * 1000)
        self._last_us = (join.upper_ms * 1000, -join.lower_ms * 1000)

    def bucket_of(self, time_us: int) -> int:
        """The number of the bucket that a time is in."""
        return time_us // self._bucket_us

    def partners(self, side: int, time_us: int) -> tuple[int, int]:
        """The first and the last time at which a row of the other side meets one of `side`."""
        return time_us + self._first_us[side], time_us + self._last_us[side]

    def buckets(self, first_us: int, last_us: int) -> tuple[int, int]:
        """The first and the last bucket that hold these times."""
        return first_us // self._bucket_us, last_us // self._bucket_us

    def over_ms(self, side: int, bucket: int) -> int:
        """The watermark at which nobody can come any more whom a row in the bucket meets."""
        return (bucket + 1) * self._bucket_ms + self._last_us[side] // 1000

    def first_over_ms(self, held: Sequence[Sequence[int]]) -> int | None:
        """The least such watermark of the buckets of both sides; None where there are none."""
        return min(
            (self.over_ms(side, min(held[side])) for side in (LEFT, RIGHT) if held[side]), default=None
        )
