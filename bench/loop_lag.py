"""How late an event loop comes to what is due: who was too busy, of those that wait for each other.

Neighbours: `operator` measures the twin's loop by it, `operator_process` the operator's loop and the Lease's.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

_EVERY_S = 0.02


class LoopLag:
    """The longest lag of the loop that `run` runs in, since it was last told. Any thread may ask."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._longest_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due_s = self._clock_s() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._longest_s = max(self._longest_s, self._clock_s() - due_s)

    def told_ms(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return round(1e3 * longest_s, 1)


class CollectorPauses:
    """The longest pause by Python's cycle collector since it was last told: no thread runs during one."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = 0.0
        self._longest_s = 0.0
        gc.callbacks.append(self._called)

    def _called(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = self._clock_s()
        else:
            self._longest_s = max(self._longest_s, self._clock_s() - self._began_s)

    def told_ms(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return round(1e3 * longest_s, 1)
