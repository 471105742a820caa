"""Many looks at once for what stands around a policy: up to where an outcome is due.

A guard that remembers good health and loads has to be told what each look has shown. Neighbours: any
`ObservesMany` looks ahead for the policy inside, one that `TellsMany` says what it saw.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.control.guard import Guard, Watch
from penstock.control.sliding_extreme import outlasting
from penstock.simulation.queueing.ahead.looking import ObservesMany, TellsMany, Told
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries


class GuardAhead:
    """See `ObservesMany`. `inner` looks ahead for the policy inside."""

    def __init__(self, guard: Guard, inner: ObservesMany) -> None:
        self._guard = guard
        self._inner = inner
        self._telling = inner if isinstance(inner, TellsMany) else None

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: up to where an outcome is due. None while an operator is out of bounds, or
        where the policy inside does not say what it saw."""
        guard = self._guard
        remembers = guard._rules.scale_in_after_us > 0
        if not len(series) or (remembers and self._telling is None):
            return 0
        first = series.snapshot(0)
        if any(guard._is_outside(one) for one in first.operators.values()):
            return 0
        due_us = min((watch.outcomes.until_us(first) for watch in guard._watches.values()), default=math.inf)
        before = int(np.searchsorted(series.at_us, due_us))
        if not before:
            return 0
        front = series if before == len(series) else series.part(slice(before))
        if not remembers or self._telling is None:
            return self._inner.observe_many(front)
        from_us = {name: _scale_in_from_us(guard._watch(name), first.at_us) for name in guard._scope.targets}
        count = self._telling.observe_many_refused(front, from_us)
        if count:
            for operator, parts in self._telling.told.items():
                for told in parts:
                    _look_many(guard._watch(operator), told)
        return count


def _scale_in_from_us(watch: Watch, first_us: int) -> float:
    """At looks before that `is_too_soon` refuses, whatever they show; the first of them is at `first_us`."""
    return (first_us if watch._good_since_us is None else watch._good_since_us) + watch._span_us


def _look_many(watch: Watch, told: Told) -> None:
    """As `look` would at each of the looks that were taken in."""
    at_us = told.at_us.tolist()
    bad = np.flatnonzero(~told.is_good)
    if bad.size:
        since = int(bad[-1]) + 1
        watch._good_since_us = at_us[since] if since < len(at_us) else None
    elif watch._good_since_us is None:
        watch._good_since_us = at_us[0]
    slowness = np.array(told.tasks) / told.service_per_s
    for kept, values in ((watch._loads, told.arrival_per_s), (watch._slowness, slowness)):
        lasting = outlasting(values)
        for column, name in enumerate(told.executors):
            looks = lasting[:, column].nonzero()[0]
            watch._of(kept, name).add_many(told.at_us[looks].tolist(), values[looks, column].tolist())
    watch._forget(told.executors)
