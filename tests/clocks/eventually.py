"""Waiting for what no event announces: processes and clusters tell nobody when they are somewhere.

Who can await an event awaits that. A test in which the time matters measures it, or says `seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 100.0
"""Ends a test that hangs, shortly before pytest does; a Spark session's start fits in."""
_STEP_S = 0.01
_CLUSTER_STEP_S = 0.2


def eventually(holds: Callable[[], object], what: str = "", seconds: float = DEADLINE_S) -> None:
    """Look until it holds; fails with `what` when it does not come true."""
    deadline_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline_s, f"did not come true within {seconds} s: {what}"
        time.sleep(_STEP_S)


async def eventually_awaited(holds: Callable[[], Awaitable[object]], what: str = "") -> None:
    """The same for what has to be asked of a cluster."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not await holds():
        assert time.monotonic() < deadline_s, f"did not come true within {DEADLINE_S} s: {what}"
        await asyncio.sleep(_CLUSTER_STEP_S)
