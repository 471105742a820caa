"""Whether sources upstream of an SLA's operators are further behind than it allows.

A record that waits where it comes from is in no inbox, so no operator's latency has it. Neighbours:
`figures.lag` says how far a source is behind, `loop` hands it in with each look, `account` tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.figures.lag import Lag

BEHIND = "SourceBehind"
"""The condition."""


class SourceLagJudge:
    """`bound_us` is what is allowed: a source is behind when it was above that in all looks of a window.
    `bound_us` None: nothing is judged."""

    def __init__(self, bound_us: int | None, window_us: int, sources: Sequence[str]) -> None:
        self._bound_us = bound_us
        self._window_us = window_us
        self._sources = tuple(sources)
        self._since_us: dict[str, int] = {}
        self._last: dict[str, Lag] = {}
        self.words = ""
        """Which sources are behind, and by how much; "" when none is."""

    def take(self, at_us: int, lags: Mapping[str, Lag]) -> None:
        """A look. Of a source without a lag nothing is known at this look: it stays what it was."""
        if self._bound_us is None:
            return
        for source, lag in lags.items():
            if lag.behind_ms * 1000 > self._bound_us:
                self._since_us.setdefault(source, at_us)
                self._last[source] = lag
            else:
                self._since_us.pop(source, None)
        behind = [
            f"{source} by {self._last[source].behind_ms / 1000:.1f} s ({self._last[source].records} records)"
            for source in self._sources
            if at_us - self._since_us.get(source, at_us) >= self._window_us
        ]
        allowed = f"{self._bound_us / 1e6:g} s"
        self.words = f"behind what is there by more than {allowed}: {', '.join(behind)}" if behind else ""
