"""When a worker keeps a process standing by for its next task. Pure: told what happens, asked what is wanted.

A standby takes 42 MiB, so a worker whose tasks stay and have time to spare pays for none. Neighbours:
`resident_tasks` starts standbys and sends them away, `standby` is what they do.
"""

from __future__ import annotations

WARM_AFTER_S = 2.0
"""A worker that has no task after this time is a warm one."""
FIRST_TASKS_S = 10.0
"""The tasks that a worker begins with come within this time of its first one. One that comes later shows that
tasks come and go here."""
BUSY_SHARE = 0.5
"""Tasks that work for this share of their time are those that another one will be wanted beside: the step
from here to a load that one task cannot serve is at most a factor of two."""
CALM_S = 30.0
"""So long after tasks were that busy another one may still be wanted."""
REFILL_S = 1.0
"""After a task has started, so long nothing else is: it has records waiting."""


class StandbyRule:
    """`now_s` is monotonic; the worker began at the first one."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._first_s: float | None = None
        self._last_s = now_s
        self._busy_s: float | None = None

    def started(self, now_s: float) -> None:
        """A task was."""
        if self._first_s is None:
            self._first_s = now_s
        self._last_s = now_s

    def worked(self, now_s: float, busy_share: float) -> None:
        """Tasks that others may come beside were busy for this share of the last second."""
        if busy_share >= BUSY_SHARE:
            self._busy_s = now_s

    def is_wanted(self, now_s: float) -> bool:
        """Whether a process is to stand by."""
        if self._first_s is None:
            return now_s - self._began_s >= WARM_AFTER_S
        if self._last_s - self._first_s >= FIRST_TASKS_S:
            return True
        return self._busy_s is not None and now_s - self._busy_s < CALM_S

    def is_time(self, now_s: float) -> bool:
        """Whether one may be started at this moment."""
        return self._first_s is None or now_s - self._last_s >= REFILL_S
