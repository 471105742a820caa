"""When a call of user code does not return: one piece of work that a task has been at for too long.

Pure: told what a task has noted. Before its executor has crashed a task notes shards alone, and the time is
that of a shard's whole batch; behind a crash it is that of one key. Neighbours: `resident_tasks` looks and
kills, `task.note` has the note.
"""

from __future__ import annotations

from penstock_worker.task.note import Noted

LOOK_US_MAX = 1_000_000
"""A longer time between two looks counts as this much: whoever looks may have stood still as well."""


class HangRule:
    """One task, looked at again and again."""

    def __init__(self) -> None:
        self._at: tuple[str, str, int] | None = None
        self._since_us = 0
        self._looked_us = 0

    def is_hanging(self, now_us: int, seen: Noted, timeout_us: int) -> bool:
        """Whether it has been at the same work for longer than `timeout_us` (0: that is never too long)."""
        passed_us = min(now_us - self._looked_us, LOOK_US_MAX)
        self._looked_us = now_us
        at = (seen.shard, seen.key, seen.works) if seen.shard else None
        if at is None or at != self._at:
            self._at, self._since_us = at, 0
            return False
        self._since_us += passed_us
        return 0 < timeout_us <= self._since_us
