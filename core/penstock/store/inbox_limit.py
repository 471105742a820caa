"""How many bytes of its inbox a shard works off in a time.

An inbox is bounded in time through bytes, which its store can count: its owner measures its pace and says
what the inbox may hold (`Commit.inbox_limit_bytes`). No clock is compared with another's but to tell how
long something waited, so one that was set costs a limit that comes late or goes early, and no record.
"""

from __future__ import annotations

from typing import NamedTuple

TARGET_US = 250_000
"""An inbox may hold what is worked off in so long."""
SHORT_US = 25_000
"""What waits for no longer, and for nothing, needs no limit."""
WINDOW_US = 250_000
"""A pace is that of so long at the least."""
STEP = 1.25
"""Changes by less are not worth a write."""
SHRINKS_TO = 0.5
"""Of a limit, at once: what it costs is seen before it costs more."""
LOSES = 0.7
"""Smaller batches cost too much where the pace is below this part of that of larger ones,"""
LONG_US = 60_000
"""and a batch takes so long all the same."""
TRIED_US, TRIED_US_MAX = 20_000_000, 1_280_000_000
"""A pace is remembered for so long: for longer each time that smaller batches have cost too much again."""
RARE = 20
"""Of so many batches one is given more room."""
_SIZES = 32


class _Pace(NamedTuple):
    bytes_per_us: float
    batch_us: float
    when_us: int
    is_bound: bool
    """The batches were as small as they were because of a limit."""


class InboxLimit:
    """The limit of one owned shard's inbox, told after each of its commits.

    It begins where what comes first in the inbox has waited for longer than the target, and ends where
    nothing waits. In between it follows the pace, down by steps. Where a batch takes long whatever is in it
    (a processor asks a service once for each key; a task has very many shards), less in the inbox means
    smaller batches and a slower shard: then there is no limit, and the inbox has its bound in bytes alone,
    until that is forgotten and tried again. To see that, a shard whose batches take long is given twice as
    much now and then.
    """

    __slots__ = ("_batches", "_began_us", "_bytes", "_last_us", "_paces", "_size_bytes", "_tried_us",
                 "_widened_us", "told_bytes")  # fmt: skip

    def __init__(self) -> None:
        self.told_bytes: int | None = None
        """What the next commit says (0: no limit); None before there was one."""
        self._last_us = 0
        self._size_bytes = 0
        self._began_us = 0
        self._bytes = 0
        self._batches = 0
        self._paces: dict[int, _Pace] = {}
        """By the power of two over the batches' size."""
        self._tried_us = TRIED_US
        self._widened_us = 0

    def passed(self, size_bytes: int) -> None:
        """A commit is applied that tells no pace: of pieces of a row that has not come as a whole."""
        self._size_bytes += size_bytes

    def worked(self, now_us: int, placed_us: int, size_bytes: int) -> None:
        """A commit is applied that was begun at `now_us`; what comes first in it came at `placed_us`."""
        last_us, self._last_us = self._last_us, now_us
        done_bytes, self._size_bytes = self._size_bytes, size_bytes
        waited_us = now_us - placed_us
        if now_us <= last_us or 2 * waited_us < now_us - last_us:
            # there may have been nothing to do
            self._began_us = 0
            if self.told_bytes and 0 <= waited_us < SHORT_US:
                self.told_bytes = 0
            return
        if not self._began_us:
            self._began_us, self._bytes, self._batches = last_us, 0, 0
        self._bytes += done_bytes
        self._batches += 1
        length_us = now_us - self._began_us
        if length_us < WINDOW_US:
            return
        self._began_us = 0
        batch_bytes = self._bytes // self._batches
        is_bound = self.told_bytes is not None and 0 < self.told_bytes <= 2 * batch_bytes
        pace = _Pace(self._bytes / length_us, length_us / self._batches, now_us, is_bound)
        self._paces[min(batch_bytes.bit_length(), _SIZES)] = pace
        costs = self._costs(now_us)
        if self.told_bytes:
            if costs:
                self.told_bytes = 0
                self._tried_us = min(2 * self._tried_us, TRIED_US_MAX)
            else:
                self.told_bytes = self._followed(pace, self.told_bytes)
        elif waited_us > TARGET_US and not costs:
            self._widened_us = now_us
            self.told_bytes = self._followed(pace, max(1, size_bytes, int(pace.bytes_per_us * waited_us)))

    def _costs(self, now_us: int) -> bool:
        """Whether batches that take long are the slower the smaller they are."""
        faster = 0.0
        for size in range(_SIZES, -1, -1):
            found = self._paces.get(size)
            if found is None:
                continue
            if not 0 <= now_us - found.when_us < self._tried_us:
                del self._paces[size]
            elif found.is_bound and found.batch_us > LONG_US and found.bytes_per_us < LOSES * faster:
                return True
            else:
                faster = max(faster, found.bytes_per_us)
        return False

    def _followed(self, pace: _Pace, limit_bytes: int) -> int:
        """The limit after one of `limit_bytes`."""
        wanted_bytes = pace.bytes_per_us * TARGET_US
        if wanted_bytes > limit_bytes * STEP:
            return int(wanted_bytes)
        rare_us = max(TRIED_US, RARE * pace.batch_us)
        if pace.batch_us > LONG_US and not 0 <= pace.when_us - self._widened_us < rare_us:
            self._widened_us = pace.when_us
            return 2 * limit_bytes
        if wanted_bytes * STEP < limit_bytes:
            return max(1, int(wanted_bytes), int(limit_bytes * SHRINKS_TO))
        return limit_bytes
