"""When a task stands still: a process that does not beat, and is not merely busy. Pure: told what is seen.

A beat comes twice a second while the process gets any time at all (`task.note`). It stays away when the
process is stopped, when its memory is swapped out or its disk hangs, and when user code keeps the interpreter
to itself (a C extension that does not let go of it). The first two are waited for shortly. The last is legal:
whoever uses a processor meanwhile is given half a minute. Each time that one shard's work was taken for
standing the patience for it doubles, so that a long batch is not passed on from task to task for ever.
Neighbours: `resident_tasks` looks, `running_executor` gives the shards of who stands to others.
"""

from __future__ import annotations

from penstock.process_look import RUNNABLE, STOPPED, ProcessLook

STOPPED_US = 2_000_000
"""For a process that was stopped (SIGSTOP): it does not go on by itself."""
STILL_US = 3_000_000
"""For one that does nothing and says nothing."""
WORKING_US = 30_000_000
"""For one that uses a processor, or waits for one."""
UNBORN_US = 30_000_000
"""From a task's start to the first beat. It is a fork, or the first one's imports before."""
LOOK_US_MAX = 1_000_000
"""A longer time between two looks counts as this much: whoever looks may have stood still as well."""
DOUBLINGS_MAX = 6


class StandingRule:
    """One task's beats, looked at again and again."""

    def __init__(self) -> None:
        self._beats = -1
        self._worked_ticks = 0
        self._looked_us: int | None = None
        self._still_us = 0
        self._idle_us = 0
        self._stopped_us = 0

    def is_beating(self, now_us: int, beats: int) -> bool:
        """Whether the beat has gone on since the last look; where it has not `is_standing` tells more."""
        if beats != self._beats:
            self._beats = beats
            self._looked_us = now_us
            self._still_us = self._idle_us = self._stopped_us = 0
            return True
        return False

    def is_unborn(self, now_us: int) -> bool:
        """Whether a process that has never beaten should have by now."""
        self._still_us += self._passed_us(now_us)
        return self._still_us >= UNBORN_US

    def is_standing(self, now_us: int, look: ProcessLook, doublings: int) -> bool:
        """With how often its work was taken for standing before."""
        passed_us = self._passed_us(now_us)
        is_working = look.state == RUNNABLE or look.worked_ticks != self._worked_ticks
        self._worked_ticks = look.worked_ticks
        self._still_us += passed_us
        self._stopped_us = self._stopped_us + passed_us if look.state == STOPPED else 0
        self._idle_us = 0 if is_working else self._idle_us + passed_us
        patience = 1 << min(doublings, DOUBLINGS_MAX)
        return (
            self._stopped_us >= STOPPED_US
            or self._idle_us >= STILL_US * patience
            or self._still_us >= WORKING_US * patience
        )

    def _passed_us(self, now_us: int) -> int:
        before_us, self._looked_us = self._looked_us, now_us
        return 0 if before_us is None else min(now_us - before_us, LOOK_US_MAX)


class Patience:
    """How often work on each shard was taken for standing. A shard is forgotten after an hour without."""

    _KEPT_US = 3_600_000_000

    def __init__(self) -> None:
        self._taken: dict[str, tuple[int, int]] = {}

    def doublings(self, shard: str) -> int:
        return self._taken.get(shard, (0, 0))[0]

    def taken(self, shard: str, now_us: int) -> None:
        """The work on it was, now."""
        self._taken = {
            name: known for name, known in self._taken.items() if now_us - known[1] < self._KEPT_US
        }
        self._taken[shard] = (self.doublings(shard) + 1, now_us)
