"""The worker's clock as a port: loops take it, tests turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall clock, microseconds since 1970: comparable between processes of a node."""

    def monotonic_us(self) -> int:
        """For durations."""

    def sleep_us(self, microseconds: int) -> None: ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.perf_counter_ns() // 1000

    def sleep_us(self, microseconds: int) -> None:
        time.sleep(microseconds / 1e6)
