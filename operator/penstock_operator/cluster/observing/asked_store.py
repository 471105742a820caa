"""One question to a store by a connection of its own, in a thread, for no longer than it is waited for.

Neighbours: `kept_schedules` asks so, and `stores.telling_stores` tells so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

from penstock.store.redis.connection import Command

Answer = TypeVar("Answer")


class Wire(Protocol):
    """What is asked of a connection to a store: `redis.connection.Wire` is one."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """A reply for each. Raises StoreUnreachable."""

    def close(self) -> None: ...


OpenWire = Callable[[str], Wire]
"""Address -> a connection; it connects at its first exchange."""


async def asked_within(wait_s: float, threads: Executor, ask: Callable[[], Answer]) -> Answer:
    """What `ask` answers in one of `threads`. Raises what it raises, and TimeoutError; what comes of it later
    is nobody's."""
    asked = asyncio.get_running_loop().run_in_executor(threads, ask)
    try:
        async with asyncio.timeout(wait_s):
            return await asyncio.shield(asked)
    except TimeoutError:
        asked.add_done_callback(pass_over)
        raise


def pass_over(late: asyncio.Future[Any]) -> None:
    """Called when something is done that nobody waits for any more: its fault would be told as a bug else."""
    if not late.cancelled():
        late.exception()
