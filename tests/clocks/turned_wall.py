"""A node's steady clock whose wall clock a test can set."""

from __future__ import annotations

from penstock.store.node_clock import ClockAnchor, SteadyClock

HOUR_US = 3600 * 1_000_000


class TurnedWall(SteadyClock):
    """Time stands still but for `sleep_us`; `ahead_us` is by how much somebody has set the wall clock."""

    def __init__(
        self,
        anchor: ClockAnchor | None = None,
        boot: str = "boot",
        passed_us: int = 0,
        ahead_us: int = 0,
    ) -> None:
        self.passed_us = passed_us
        self.ahead_us = ahead_us
        super().__init__(anchor, boot=boot, monotonic_ns=self._monotonic_ns, wall_ns=self._wall_ns)

    def sleep_us(self, microseconds: int) -> None:
        self.passed_us += microseconds

    def _monotonic_ns(self) -> int:
        return 5_000_000_000 + self.passed_us * 1000

    def _wall_ns(self) -> int:
        return (1_700_000_000_000_000 + self.passed_us + self.ahead_us) * 1000
