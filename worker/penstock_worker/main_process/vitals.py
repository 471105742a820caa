"""Whether this worker lives and whether it can work: what kubelet's two probes ask.

The main loop tells (`turned`, `worked`, `resting`), the server's threads ask; each value is written whole.
Neighbour: `prometheus` serves the verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_worker.process.clock import Clock

START_US_MAX = 300_000_000
"""Spark and user's images may be slow to start; longer than this and it hangs."""
TURN_US_MAX = 60_000_000
"""The main loop turns every 0.3 s; it may hang in the store for as long as a few replies may take."""
WORK_US_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    good: bool
    why: str


class Vitals:
    """Marks of the main loop on its own clock; None before the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._born_us = clock.monotonic_us()
        self._turned_us: int | None = None
        self._worked_us: int | None = None
        self._resting = "Spark is starting"

    def turned(self) -> None:
        """The main loop has gone round, whatever came of it."""
        self._turned_us = self._clock.monotonic_us()

    def worked(self) -> None:
        """A round with the store, enrolled, went well."""
        self._resting = ""
        self._worked_us = self._clock.monotonic_us()

    def resting(self, why: str) -> None:
        """It cannot work now, for this reason."""
        self._resting = why

    def healthy(self) -> Verdict:
        """False when it hangs, and only a new start helps."""
        now_us = self._clock.monotonic_us()
        if self._turned_us is None:
            age_us = now_us - self._born_us
            return Verdict(age_us <= START_US_MAX, f"starting for {_seconds(age_us)}")
        age_us = now_us - self._turned_us
        return Verdict(age_us <= TURN_US_MAX, f"the main loop turned {_seconds(age_us)} ago")

    def ready(self) -> Verdict:
        """True when it is enrolled, and its assignment is fresh."""
        if self._resting or self._worked_us is None:
            return Verdict(False, self._resting)
        age_us = self._clock.monotonic_us() - self._worked_us
        return Verdict(age_us <= WORK_US_MAX, f"the assignment was read {_seconds(age_us)} ago")


def _seconds(duration_us: int) -> str:
    return f"{duration_us / 1e6:.1f} s"
