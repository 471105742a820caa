"""Runs a test's coroutine on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_TIMEOUT_S = 100.0


def run(story: Coroutine[Any, Any, T]) -> T:
    """The story's end; a story that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(_TIMEOUT_S):
            return await story

    return asyncio.run(bounded())
