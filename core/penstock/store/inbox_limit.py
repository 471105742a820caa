"""How many bytes of its inbox a shard works off in a time.

An inbox is bounded in time through bytes, which its store can count: its owner measures its pace and says
what the inbox may hold (`Commit.inbox_limit_bytes`). No clock is compared with another's but to tell how
long something waited, so one that was set costs a limit that comes late or goes early, and no record.
"""

from __future__ import annotations

from penstock.store.batch_cost import BatchCost

TARGET_US = 400_000
"""An inbox may hold what is worked off in so long,"""
ROUNDS = 10
"""or in so many times what its task's round over all its shards takes whatever is in their batches: limits
cost a task a tenth at the most."""
SHORT_US = 25_000
"""What waits for no longer, and for nothing, needs no limit."""
WINDOW_US = 250_000
"""A pace is that of so long at the least."""
STEP = 1.25
"""Changes by less are not worth a write."""
SHRINKS_TO = 0.5
"""Of a limit, at once: what it costs is seen before it costs more."""


class TaskCosts:
    """What the batches of all shards of a task have cost whatever was in them."""

    __slots__ = ("fixed_us",)

    def __init__(self) -> None:
        self.fixed_us = 0.0
        """So far."""


class InboxLimit:
    """The limit of one owned shard's inbox, told after each of its commits.

    It begins where what comes first in the inbox has waited for longer than that, and ends where nothing
    waits. In between it follows the pace, down by steps. Where batches take long whatever is in them (a
    processor asks a service once for each key; a task has very many shards), less in the inboxes means
    smaller batches and a slower task: they hold more then. `costs` are its task's.
    """

    __slots__ = ("_batch", "_batches", "_began_us", "_bytes", "_costs", "_last_us", "_of_task_us", "_seen_us",
                 "_size_bytes", "_spent_us", "_took_bytes", "told_bytes")  # fmt: skip

    def __init__(self, costs: TaskCosts) -> None:
        self._costs = costs
        self._batch = BatchCost()
        self.told_bytes: int | None = None
        """What the next commit says (0: no limit); None before there was one."""
        self._last_us = 0
        self._size_bytes = 0
        self._took_bytes = False
        """Whether the last commit took anything off the inbox."""
        self._spent_us = 0
        """Worked on those that did, since that of `_size_bytes`."""
        self._began_us = 0
        self._bytes = 0
        self._batches = 0
        self._seen_us = self._of_task_us = 0.0
        """What `costs` said when the last commit was applied, and when the window began."""

    def spent(self, busy_us: int) -> None:
        """So long was worked on the commit that was applied last, or on what it put out."""
        if self._took_bytes:
            self._spent_us += busy_us

    def took_nothing(self) -> None:
        """A commit is applied that takes nothing off the inbox: of timers, or of a control entry in parts."""
        self._took_bytes = False

    def passed(self, size_bytes: int) -> None:
        """A commit is applied that tells no pace: of pieces of a row that has not come as a whole."""
        self._took_bytes = True
        self._size_bytes += size_bytes

    def worked(self, now_us: int, placed_us: int, size_bytes: int) -> None:
        """A commit is applied that was begun at `now_us`; what comes first in it came at `placed_us`."""
        self._took_bytes = True
        last_us, self._last_us = self._last_us, now_us
        done_bytes, self._size_bytes = self._size_bytes, size_bytes
        if last_us:
            self._costs.fixed_us += self._batch.fixed_us(done_bytes, self._spent_us)
        self._spent_us = 0
        seen_us, self._seen_us = self._seen_us, self._costs.fixed_us
        waited_us = now_us - placed_us
        if now_us <= last_us or 2 * waited_us < now_us - last_us:
            # there may have been nothing to do
            self._began_us = 0
            if self.told_bytes and 0 <= waited_us < SHORT_US:
                self.told_bytes = 0
            return
        if not self._began_us:
            self._began_us, self._bytes, self._batches = last_us, 0, 0
            self._of_task_us = seen_us
        self._bytes += done_bytes
        self._batches += 1
        length_us = now_us - self._began_us
        if length_us < WINDOW_US:
            return
        self._began_us = 0
        round_us = (self._costs.fixed_us - self._of_task_us) / self._batches
        target_us = max(TARGET_US, ROUNDS * round_us)
        wanted_bytes = self._bytes / length_us * target_us
        if self.told_bytes:
            self.told_bytes = _followed(self.told_bytes, wanted_bytes)
        elif waited_us > target_us:
            self.told_bytes = _followed(
                max(1, size_bytes, self._bytes * waited_us // length_us), wanted_bytes
            )


def _followed(limit_bytes: int, wanted_bytes: float) -> int:
    """The next limit."""
    if wanted_bytes > limit_bytes * STEP:
        return int(wanted_bytes)
    if wanted_bytes * STEP < limit_bytes:
        return max(1, int(wanted_bytes), int(limit_bytes * SHRINKS_TO))
    return limit_bytes
