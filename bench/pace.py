"""How fast the machine was while something was measured: a host gives a guest less at times.

Neighbours: `machine` says what it is, `loop_lag` how late a loop was, which may be its own fault. What is
told here is nobody's of the bench.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

_EVERY_S = 0.5
_ADDITIONS = 20_000
"""Half a millisecond or two."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STOLEN = 8
"""Its place in the first line of /proc/stat."""


class Pace:
    """Of the machine, since it was last told. `work_s` does a piece of work and answers the CPU seconds that
    it took; `stolen_s` is what the host has taken from all cores since the machine began."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        work_s: Callable[[], float] | None = None,
        stolen_s: Callable[[], float] | None = None,
    ) -> None:
        self._clock_s = clock_s
        self._work_s = work_s or additions_s
        self._stolen_s = stolen_s or machine_stolen_s
        self._took_s: list[float] = []
        self._since_s, self._stolen_before_s = self._clock_s(), self._stolen_s()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._took_s.append(self._work_s())
            await asyncio.sleep(_EVERY_S)

    def told(self) -> dict[str, float]:
        """CPU milliseconds of one piece of work, and how many cores the host took."""
        took_s, self._took_s = self._took_s or [self._work_s()], []
        since_s, before_s = self._since_s, self._stolen_before_s
        self._since_s, self._stolen_before_s = self._clock_s(), self._stolen_s()
        return {
            "piece_ms_p50": round(1e3 * median(took_s), 2),
            "piece_ms_max": round(1e3 * max(took_s), 2),
            "stolen_cores": round((self._stolen_before_s - before_s) / max(1e-9, self._since_s - since_s), 3),
        }


def additions_s() -> float:
    """CPU seconds of this thread for a piece of plain Python."""
    began_s, total = time.thread_time(), 0
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began_s


def machine_stolen_s() -> float:
    line = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(line[_STOLEN]) / _TICKS_PER_S
