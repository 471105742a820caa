"""Virtual time: it stands still until somebody lets it pass.

What user code sees (`now_us`) and what only paces a task (`monotonic_us`) go apart: a task looks again after
so many milliseconds, and the test's time has not moved. Neighbour: `one_node` lets both pass.
"""

from __future__ import annotations

import datetime

from penstock.store.node_clock import ClockAnchor
from penstock.store.port import NodeStore

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class VirtualClock:
    """The test's."""

    def __init__(self, start: datetime.datetime) -> None:
        self._now_us = instant_us(start)
        self._monotonic_us = 0

    def now_us(self) -> int:
        return self._now_us

    def monotonic_us(self) -> int:
        return self._monotonic_us

    def look_later(self, microseconds: int) -> None:
        """Tasks may look again at what they looked at; the test's time does not pass."""
        self._monotonic_us += microseconds

    def pass_to(self, now_us: int) -> None:
        """Time never goes back: an earlier instant changes nothing."""
        passed_us = max(0, now_us - self._now_us)
        self._now_us += passed_us
        self._monotonic_us += passed_us


class TaskClock:
    """One task's view of it, a microsecond on with each of its turns: what rests until now is looked at with
    the next turn, and not without end in this one. Keeps the port `Clock`."""

    anchor: ClockAnchor | None = None

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._turns_us = 0

    def begin_turn(self) -> None:
        self._turns_us += 1

    def share(self, store: NodeStore) -> None:
        """There is no other process."""

    def now_us(self) -> int:
        return self._clock.now_us() + self._turns_us

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def wall_us(self) -> int:
        return self.now_us()

    def sleep_us(self, microseconds: int) -> None:
        """A task that rests finds its store as it was: nobody else is there."""
        self._clock.look_later(microseconds)


def instant_us(instant: datetime.datetime) -> int:
    """Microseconds since 1970; an instant without a zone is UTC's, as in Penstock's rows."""
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=datetime.UTC)
    return int((aware - _EPOCH) // _MICROSECOND)


def instant(microseconds: int) -> datetime.datetime:
    """The other way, in UTC."""
    return _EPOCH + microseconds * _MICROSECOND
