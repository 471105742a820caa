"""A worker's clock for tests: time goes on when it is told to."""

from __future__ import annotations


class StandingClock:
    """`us` is the time of both clocks, in microseconds."""

    def __init__(self) -> None:
        self.us = 1_000_000_000

    anchor = None

    def share(self, store: object) -> None:
        """There is no other process."""

    def now_us(self) -> int:
        return self.us

    def wall_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us

    def sleep_us(self, microseconds: int) -> None:
        self.us += microseconds
