"""How many turns are under way at once, so that one that has begun is soon at its end.

A thousand turns begun together would each take as long as all of them: every store's answer would wait for
all the others' decisions, and what was read would be old by when it is decided on. A slot is for work: a turn
that waits long, for a store or the API server, gives its own back and goes on without, so one that hangs
holds up no other. Who is urgent goes first, in the order in which they asked, but for some slots: those go to
who has waited longest. So where there is more work than time, what can wait is done less often, and nobody
waits for ever. Neighbour: `reconcile` runs the topologies' loops through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

STANDS_ASIDE_S = 0.5
"""A turn that takes longer gives its slot back."""
_URGENT_OF = 4
"""Of so many slots, all but one go to who is urgent, where anybody is."""
_BUSY_S = 0.1
"""A loop that comes to something so much too late is busy."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    is_urgent: Callable[[], bool]
    turn: asyncio.Future[None]


class TurnSlots:
    """`count` of them. Belongs to one event loop."""

    def __init__(self, count: int, stands_aside_s: float = STANDS_ASIDE_S) -> None:
        self._free = count
        self._stands_aside_s = stands_aside_s
        self._waiting: list[_Waiting] = []
        self._given = 0

    @asynccontextmanager
    async def one(self, is_urgent: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait for a slot and keep it, but no longer than `stands_aside_s`. `is_urgent` is asked while it
        waits: it may become so."""
        await self._take(is_urgent)
        held = _Held(self._give_back, self._stands_aside_s)
        try:
            yield
        finally:
            held.end()

    async def _take(self, is_urgent: Callable[[], bool]) -> None:
        if self._free:
            self._free -= 1
            return
        waiting = _Waiting(is_urgent, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if not waiting.turn.cancelled():
                self._give_back()  # it had just been given one
            raise

    def _give_back(self) -> None:
        """To who is next; nobody overtakes who waits."""
        self._waiting = [one for one in self._waiting if not one.turn.done()]  # without who was cancelled
        if not self._waiting:
            self._free += 1
            return
        next_ = self._waiting[0]
        self._given += 1
        if self._given % _URGENT_OF:
            next_ = next((one for one in self._waiting if one.is_urgent()), next_)
        self._waiting.remove(next_)
        next_.turn.set_result(None)


class _Held:
    """A slot that somebody has: given back once, at the end or when it was kept for too long. While this loop
    is busy that says nothing: the turn may have waited for nobody else."""

    def __init__(self, give_back: Callable[[], None], for_s: float) -> None:
        self._give_back = give_back
        self._for_s = for_s
        self._loop = asyncio.get_running_loop()
        self._aside: asyncio.TimerHandle | None = None
        self._begin()

    def end(self) -> None:
        if self._aside is not None:
            self._aside.cancel()
            self._aside = None
            self._give_back()

    def _begin(self) -> None:
        due_s = self._loop.time() + self._for_s
        self._aside = self._loop.call_at(due_s, self._is_due, due_s)

    def _is_due(self, due_s: float) -> None:
        if self._loop.time() - due_s > _BUSY_S:
            self._begin()
        else:
            self.end()
