"""Many looks at once for StreamSwitch: those at which nobody is severe, and nobody can be spared.

Neighbours: `examiner` takes looks in by operator, `guard` is told what they have shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.control.decision import Health
from penstock.control.streamswitch.diagnose import capacity_per_s, expected_latency_us, good, is_quiet
from penstock.control.streamswitch.policy import StreamSwitch, may_go
from penstock.simulation.queueing.ahead.examiner import ExaminerAhead
from penstock.simulation.queueing.ahead.examiner_metrics import Ahead
from penstock.simulation.queueing.ahead.looking import Told
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries, SnapshotSeries

_PART_MIN, _PART_MAX = 32, 1024
"""Looks that are taken in at once: the first ones, and at most."""

_PASSES_MAX = 3
"""Times that single looks are asked for, after as many were needed."""


class StreamSwitchAhead:
    """See `ObservesMany` and `TellsMany`."""

    def __init__(self, switch: StreamSwitch) -> None:
        self._switch = switch
        self._ahead: dict[str, ExaminerAhead] = {}
        self._told: dict[str, list[Told]] = {}
        self._passes = 0
        self._misses = 0

    def _examiner(self, operator: str) -> ExaminerAhead:
        """It is another one after a target with another window."""
        now, ahead = self._switch._examiners[operator], self._ahead.get(operator)
        if ahead is None or ahead.examiner is not now:
            ahead = self._ahead[operator] = ExaminerAhead(now)
        return ahead

    def watch_many(self, series: SnapshotSeries) -> None:
        """The same as `watch` on each."""
        for operator in self._switch._targets:
            one = series.operators.get(operator)
            if one is not None:
                self._examiner(operator).pass_by(series.at_us, one)

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: looks at which no operator is severe, and none good with an executor to
        spare."""
        return self.observe_many_refused(series, {})

    def observe_many_refused(self, series: SnapshotSeries, scale_in_from_us: Mapping[str, float]) -> int:
        """See `TellsMany`.

        In parts that grow, since what lies behind the first look that needs a decision is looked at for
        nothing. Where there were none, the next ones are not looked for at once.
        """
        self._told = {operator: [] for operator in self._switch._targets}
        seen = [series.operators.get(operator) for operator in self._switch._targets]
        if all(one is not None and one.treatment for one in seen):
            return self._pass_by(series)
        if self._passes > 0:
            self._passes -= 1
            return 0
        taken, size = 0, _PART_MIN
        while taken < len(series):
            part = series.part(slice(taken, taken + size))
            count = self._take_part(part, scale_in_from_us)
            if count is None:
                return taken
            taken += count
            if count < len(part):
                break
            size = min(2 * size, _PART_MAX)
        self._misses = 0 if taken else min(2 * self._misses + 1, _PASSES_MAX)
        self._passes = self._misses
        return taken

    def _pass_by(self, series: SnapshotSeries) -> int:
        """Every operator is under treatment: nothing is decided until that ends."""
        if len(series):
            for operator in self._switch._targets:
                self._examiner(operator).pass_by(series.at_us, series.operators[operator])
                self._told[operator].append(self._unchanged(operator, series.at_us))
        return len(series)

    def _take_part(self, series: SnapshotSeries, scale_in_from_us: Mapping[str, float]) -> int | None:
        """How many looks were taken in; None where they have to be looked at one by one."""
        count = len(series)
        found: list[tuple[str, OperatorSeries, Ahead | None]] = []
        for operator, target in self._switch._targets.items():
            one = series.operators.get(operator)
            if one is None:
                return None
            ahead = None
            if not one.treatment:
                ahead = self._examiner(operator).ahead(series.at_us, one)
                if ahead is None:
                    return None
                limits = self._switch._scope.limits_of(operator)
                spare = may_go(tuple([executor.tasks for executor in one.executors]), limits.min)
                if operator in scale_in_from_us:
                    spare = spare & (series.at_us >= scale_in_from_us[operator])[:, None]
                quiet = ahead.certain & is_quiet(
                    ahead.arrival_per_s, ahead.service_per_s, ahead.instantaneous_us, target, spare
                )
                count = count if quiet[:count].all() else int(quiet.argmin())
            found.append((operator, one, ahead))
        if count:
            for operator, one, ahead in found:
                at_us = series.at_us[:count]
                if ahead is None:
                    self._examiner(operator).pass_by(at_us, one.part(slice(count)))
                    told = self._unchanged(operator, at_us)
                else:
                    self._examiner(operator).take(ahead, one, count)
                    told = self._tell(operator, one, ahead, count)
                    self._switch._health[operator] = Health.GOOD if told.is_good[-1] else Health.MODERATE
                self._told[operator].append(told)
        return count

    @property
    def told(self) -> Mapping[str, Sequence[Told]]:
        """See `TellsMany`."""
        return self._told

    def _unchanged(self, operator: str, at_us: NDArray[np.int64]) -> Told:
        """Of looks during a treatment."""
        nothing = np.zeros((len(at_us), 0))
        is_good = np.full(len(at_us), self._switch._health[operator] is Health.GOOD)
        return Told(at_us, (), (), nothing, nothing, is_good)

    def _tell(self, operator: str, one: OperatorSeries, ahead: Ahead, count: int) -> Told:
        target = self._switch._targets[operator]
        arrival_per_s, service_per_s = ahead.arrival_per_s[:count], ahead.service_per_s[:count]
        expected_us = expected_latency_us(arrival_per_s, capacity_per_s(service_per_s, target.safety_margin))
        are_good = good(ahead.instantaneous_us[:count], expected_us, target)
        names = tuple([executor.name for executor in one.executors])
        at_us = ahead.counted.at_us[:count]
        tasks = tuple([executor.tasks for executor in one.executors])
        return Told(at_us, names, tasks, arrival_per_s, service_per_s, np.asarray(are_good.all(axis=-1)))
