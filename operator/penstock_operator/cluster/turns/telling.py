"""The writing of what a turn decided into status, which the next turn need not wait for.

What people read is written behind what was done, one turn's after the other's. A turn that is followed at
once by another one ends before its status stands: what was done is in the mirror, and the next tells more.
Neighbour: `topology_turn` begins it, `reconcile` ends it with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock_operator.cluster.observing.asked_store import pass_over


class Telling:
    """At most one writing is under way. Belongs to one event loop, and to one loop of the operator."""

    def __init__(self) -> None:
        self._under_way: asyncio.Task[bool] | None = None

    async def ended(self) -> None:
        """Once nothing is under way. Raises what ended the writing."""
        writing, self._under_way = self._under_way, None
        if writing is not None:
            await writing

    async def begin(self, writing: Coroutine[Any, Any, bool], woken: asyncio.Event) -> bool:
        """What the writing answers, or raises; False, with the writing under way, once `woken` is set before
        it has ended. Nothing else may be under way."""
        task = asyncio.ensure_future(writing)
        waking = asyncio.ensure_future(woken.wait())
        self._under_way = task
        try:
            await asyncio.wait({task, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
        if not task.done():
            return False
        self._under_way = None
        return task.result()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way.add_done_callback(pass_over)
            self._under_way = None
