"""Many looks at once for a hybrid of two policies: those that the fast one takes in, between two samples of
the slow time scale. Neighbours: `streamswitch` and `elasticutor` look ahead for the two."""

from __future__ import annotations

import math

import numpy as np

from penstock.control.hybrid.policy import Hybrid
from penstock.simulation.queueing.ahead.looking import ObservesMany
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries
from penstock.simulation.queueing.ahead.streamswitch import StreamSwitchAhead


class HybridAhead:
    """See `ObservesMany`. `fast` and `slow` look ahead for its parents; without a slow one, None."""

    def __init__(self, hybrid: Hybrid, fast: ObservesMany, slow: StreamSwitchAhead | None) -> None:
        self._hybrid = hybrid
        self._fast = fast
        self._slow = slow

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: looks at which the fast parent does nothing, up to the next sample of the slow
        time scale."""
        hybrid, fast, slow = self._hybrid, self._fast, self._slow
        operators = [name for name in series.operators if name in hybrid._scope.targets]
        if any(name not in hybrid._sampled_us for name in operators):
            return 0
        until_us = min(
            (min(hybrid._sampled_us[name], hybrid._due_us([name])) for name in operators), default=math.inf
        )
        count = int(np.searchsorted(series.at_us, until_us))
        if count:
            count = fast.observe_many(series.part(slice(count)))
        if count and slow is not None:
            slow.watch_many(series.part(slice(count)))
        return count
