"""Many looks at once for DRS: those at which its model is content. Neighbour: `examiner` takes looks in."""

from __future__ import annotations

from penstock.control.baselines.drs import Drs, is_least
from penstock.control.streamswitch.diagnose import capacity_per_s, expected_latency_us, severe
from penstock.control.streamswitch.examination import Flags
from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.ahead.examiner import ExaminerAhead
from penstock.simulation.queueing.ahead.examiner_metrics import Ahead
from penstock.simulation.queueing.ahead.snapshot_series import OperatorSeries, SnapshotSeries


class DrsAhead:
    """See `ObservesMany`."""

    def __init__(self, drs: Drs) -> None:
        self._drs = drs
        self._examiners = {name: ExaminerAhead(each.examiner) for name, each in drs._operators.items()}

    def observe_many(self, series: SnapshotSeries) -> int:
        """See `ObservesMany`: looks at which the model is content and, for DRS-LB, no executor is severe."""
        count = len(series)
        found: list[tuple[ExaminerAhead, OperatorSeries, Ahead | None]] = []
        for name, operator in self._drs._operators.items():
            one = series.operators.get(name)
            if one is None or not count:
                return 0
            examiner, ahead = self._examiners[name], None
            if not one.treatment:
                ahead = examiner.ahead(series.at_us, one)
                if ahead is None:
                    return 0
                quiet = self._quiet(operator.target, ahead, len(one.executors))
                count = count if quiet[:count].all() else int(quiet.argmin())
            found.append((examiner, one, ahead))
        if count:
            for examiner, one, ahead in found:
                if ahead is None:
                    examiner.pass_by(series.at_us[:count], one.part(slice(count)))
                else:
                    examiner.take(ahead, one, count)
        return count

    def _quiet(self, target: LatencyTarget, ahead: Ahead, has: int) -> Flags:
        """By look: whether `_verdict` would do nothing."""
        capacity = capacity_per_s(ahead.service_per_s, target.safety_margin)
        arrival = ahead.arrival_per_s.sum(axis=1)
        quiet = ahead.certain & is_least(arrival, capacity.mean(axis=1), target.latency_us, has)
        if self._drs._balances_load:
            expected_us = expected_latency_us(ahead.arrival_per_s, capacity)
            quiet &= ~severe(ahead.instantaneous_us, expected_us, target).any(axis=1)
        return quiet
