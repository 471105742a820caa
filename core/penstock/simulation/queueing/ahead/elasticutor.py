"""Many looks at once for Elasticutor: those at which every executor has what it needs.

Neighbour: `elasticutor_rest` says when the whole step would change nothing.
"""

from __future__ import annotations

import numpy as np

from penstock.control.elasticutor.load import Load
from penstock.control.elasticutor.policy import Elasticutor
from penstock.simulation.queueing.ahead.elasticutor_rest import Rest
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries


class ElasticutorAhead:
    """See `ObservesMany`."""

    def __init__(self, policy: Elasticutor) -> None:
        self._policy = policy

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: looks at which every executor has what it needs, and nothing is to be given
        back. The look after those is observed too; the decision about it goes on from there."""
        if not len(series) or any(
            operator not in series.operators or series.operators[operator].treatment
            for operator in self._policy._scope.targets
        ):
            return 0
        rest: Rest | None = None
        for look in range(len(series)):
            load = self._policy._observed
            if load is None or load.snapshot.at_us != series.at_us[look]:
                load = self._policy.observe(series.snapshot(look))
            if rest is None:
                rest = Rest.of(load, self._policy._scope, self._policy._settings.threshold_bytes_per_s)
            if not self._may_rest(load, rest):
                self._policy._observed = load
                return look
            self._policy._observed = None
        return len(series)

    def _may_rest(self, load: Load, rest: Rest) -> bool:
        """Whether `schedule` would do nothing; if so, what it would remember is remembered."""
        if any(load.filling):
            return False
        needed = rest.needed(load, self._policy._settings.naive)
        if needed is None or self._policy._surplus.is_due(load, needed, rest.totals):
            return False
        if load.shard_loads:
            self._policy._surplus.keep(load, needed, rest.totals)
            return True
        fixed = np.full(len(needed), -1)
        network = self._policy._network(load, rest.plant, fixed)
        if any(bound > target for bound, target in rest.latencies_us(network, needed)):
            return False
        self._policy._surplus.keep(load, needed, rest.totals)
        return True
