"""The worker's clock as a port: loops take it, tests turn it."""

from __future__ import annotations

import time
from typing import Protocol

from penstock.store.node_clock import ClockAnchor, SteadyClock
from penstock.store.port import NodeStore


class Clock(Protocol):
    @property
    def anchor(self) -> ClockAnchor | None:
        """What `now_us` goes by; for the tasks that a worker starts."""

    def share(self, store: NodeStore) -> None:
        """Go by what the other processes of the store's node go by."""

    def now_us(self) -> int:
        """Steady, microseconds since 1970: comparable between processes of a node, and never set
        (`penstock.store.node_clock`)."""

    def monotonic_us(self) -> int:
        """For durations."""

    def wall_us(self) -> int:
        """As a user's watch says; it may go back. Nothing is decided by it."""

    def sleep_us(self, microseconds: int) -> None: ...


class SystemClock(SteadyClock):
    def sleep_us(self, microseconds: int) -> None:
        time.sleep(microseconds / 1e6)
