"""Many looks at once for a static number of executors."""

from __future__ import annotations

from penstock.control.baselines.static import Static
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries


class StaticAhead:
    """See `ObservesMany`."""

    def __init__(self, static: Static) -> None:
        self._static = static

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: all of them, unless a number is to be mended."""
        seen = (
            series.operators[operator].treatment or len(series.operators[operator].executors) == wanted
            for operator, wanted in self._static._executors.items()
            if operator in series.operators
        )
        return len(series) if all(seen) else 0
