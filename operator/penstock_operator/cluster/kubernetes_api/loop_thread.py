"""A thread with an event loop of its own, for what must not wait until another loop is free: the Lease.

And for those who have no loop. Neighbours: `main` keeps the Lease in one, `asked` commands ask by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Runs(Protocol):
    """Where coroutines run. What they use belongs to that loop and no other."""

    async def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Its answer, or its error. Who is cancelled while it waits cancels the story."""


class LoopThread:
    """It runs from when it is made until `stop`, and holds up no process that ends."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, story: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(story, self._loop))

    def wait(self, story: Coroutine[Any, Any, T]) -> T:
        """The same for who has no loop. Who is interrupted while it waits cancels the story."""
        future = asyncio.run_coroutine_threadsafe(story, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """What runs there still is left as it is."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ThisLoop:
    """The loop that asks: for what may wait for it."""

    async def run(self, story: Coroutine[Any, Any, T]) -> T:
        return await story
