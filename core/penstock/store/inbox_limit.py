"""How many bytes of its inbox a shard works off in a time.

An inbox is bounded in time through bytes, which its store can count: its owner measures its pace and says
what the inbox may hold (`Commit.inbox_limit_bytes`). No clock is compared with another's but to tell how
long something waited, so one that was set costs a limit that comes late or goes early, and no record.
"""

from __future__ import annotations

TARGET_US = 400_000
"""An inbox may hold what is worked off in so long, while its task works on its other shards too,"""
BATCH_US = 8_000
"""and what takes so long by itself, where that is more: so much a task fetches at once (`task.batch_size`).
With less its batches would be smaller, and each row dearer."""
SHORT_US = 25_000
"""What waits for no longer, and for nothing, needs no limit."""
WINDOW_US = 250_000
"""A pace is that of so long at the least."""
STEP = 1.25
"""Changes by less are not worth a write."""
SHRINKS_TO = 0.5
"""Of a limit, at once: what it costs is seen before it costs more."""


class InboxLimit:
    """The limit of one owned shard's inbox, told after each of its commits.

    It begins where what comes first in the inbox has waited for too long, and ends where nothing waits. In
    between it follows the pace, down by steps.
    """

    __slots__ = ("_batches_us", "_began_us", "_bytes", "_last_us", "_size_bytes", "_spent_us", "told_bytes")

    def __init__(self) -> None:
        self.told_bytes: int | None = None
        """What the next commit says (0: no limit); None before there was one."""
        self._last_us = 0
        self._size_bytes = 0
        self._spent_us = 0
        """Worked since the last commit was applied."""
        self._began_us = 0
        self._bytes = 0
        self._batches_us = 0

    def spent(self, busy_us: int) -> None:
        """So long was worked on the commit that was applied last, or on what it put out."""
        self._spent_us += busy_us

    def passed(self, size_bytes: int) -> None:
        """A commit is applied that tells no pace: of pieces of a row that has not come as a whole."""
        self._size_bytes += size_bytes

    def worked(self, now_us: int, placed_us: int, size_bytes: int) -> None:
        """A commit is applied that was begun at `now_us`; what comes first in it came at `placed_us`."""
        last_us, self._last_us = self._last_us, now_us
        done_bytes, self._size_bytes = self._size_bytes, size_bytes
        spent_us, self._spent_us = self._spent_us, 0
        waited_us = now_us - placed_us
        if now_us <= last_us or 2 * waited_us < now_us - last_us:
            # there may have been nothing to do
            self._began_us = 0
            if self.told_bytes and 0 <= waited_us < SHORT_US:
                self.told_bytes = 0
            return
        if not self._began_us:
            self._began_us, self._bytes, self._batches_us = last_us, 0, 0
        self._bytes += done_bytes
        self._batches_us += spent_us
        length_us = now_us - self._began_us
        if length_us < WINDOW_US:
            return
        self._began_us = 0
        # By the first a task's shards share its time; by the second each has it for itself.
        wanted_bytes = max(
            self._bytes * TARGET_US / length_us,
            self._bytes * BATCH_US / max(1, self._batches_us),
        )
        if self.told_bytes:
            self.told_bytes = _followed(self.told_bytes, wanted_bytes)
        elif waited_us > TARGET_US:
            waiting_bytes = self._bytes * waited_us // length_us
            self.told_bytes = _followed(max(1, size_bytes, waiting_bytes), wanted_bytes)


def _followed(limit_bytes: int, wanted_bytes: float) -> int:
    """The next limit."""
    if wanted_bytes > limit_bytes * STEP:
        return int(wanted_bytes)
    if wanted_bytes * STEP < limit_bytes:
        return max(1, int(wanted_bytes), int(limit_bytes * SHRINKS_TO))
    return limit_bytes
