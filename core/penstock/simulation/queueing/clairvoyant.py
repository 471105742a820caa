"""What could have been, knowing the trace: a bound to hold policies against.

In a world without switching costs or starts, where work can be split over executors at will. Three figures
come out, from strict to indicative. `success_max`: a shard is worked by one executor at a time, so it can
never do better than alone on one; nobody's success rate is higher. `work_executors`: all the work over all
the time, and never less than the minimum; who works everything has at least as many on average. `executors`:
the fewest at each time that complete each row within L of its arrival, changed every so often and as late as
possible, as far as `executors_max` goes. An SLA bounds averages, so rows may be later than L; this is
therefore no strict bound, but what comes between it and a policy is the price of not knowing, of switching
and of whole shards.

By slots, as `slots`. Neighbours: benchmarks put it beside policies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.model import Arrivals, FloatArray, IntArray, SimulatedOperator
from penstock.simulation.queueing.success import met


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """`success_max` is [shards], `executors` [slots]."""

    success_max: FloatArray
    work_executors: float
    executors: IntArray

    @property
    def mean_executors(self) -> float:
        return float(self.executors.mean())


def clairvoyant(
    operator: SimulatedOperator,
    arrivals: Arrivals,
    target: LatencyTarget,
    *,
    executors_min: int = 1,
    executors_max: int,
    hold_us: int = 1_000_000,
) -> Clairvoyant:
    """For an operator that rows reach from outside, on executors of speed 1 with one task each. ValueError
    for one that none reach."""
    if operator.name not in arrivals.rows:
        raise ValueError(f"no rows reach operator {operator.name} from outside")
    rows = arrivals.rows[operator.name].astype(np.float64)
    means_us = operator.service_means_us
    work_us = rows @ means_us
    total = float(work_us.sum()) / (len(rows) * arrivals.slot_us)
    return Clairvoyant(
        success_max=_alone(rows, means_us, arrivals.slot_us, target).mean(axis=0),
        work_executors=max(total, float(executors_min)),
        executors=_fewest(
            work_us,
            arrivals.slot_us,
            max(0, int(target.latency_us // arrivals.slot_us)),
            max(1, hold_us // arrivals.slot_us),
            executors_min,
            executors_max,
        ),
    )


def _alone(
    rows: FloatArray, means_us: FloatArray, slot_us: int, target: LatencyTarget
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Windows in which each shard's SLA holds if it has an executor of its own."""
    net_us = np.cumsum(rows * means_us - slot_us, axis=0)
    unfinished_us = net_us - np.minimum(np.minimum.accumulate(net_us, axis=0), 0.0)
    completed = np.maximum(np.cumsum(rows, axis=0) - unfinished_us / means_us, 0.0)
    # By Little's law what waits during a slot adds its length to latencies: half at both ends.
    waiting = unfinished_us / means_us
    before = np.vstack((np.zeros((1, rows.shape[1])), waiting[:-1]))
    completed = np.diff(completed, axis=0, prepend=0.0)
    latency_sum_us = (before + waiting) / 2 * slot_us + completed * means_us
    return met(rows, completed, latency_sum_us, slot_us, target)


def _fewest(
    work_us: FloatArray, slot_us: int, slack: int, hold: int, executors_min: int, executors_max: int
) -> IntArray:
    """[slots]: what came `slack` slots ago is done at the end of each slot, as far as `executors_max`
    goes."""
    came_us = np.cumsum(work_us)
    due_us = np.concatenate((np.zeros(slack), came_us))[: len(came_us)]
    executors = np.zeros(len(work_us), dtype=np.int64)
    done_us = 0.0
    for begin in range(0, len(work_us), hold):
        end = min(begin + hold, len(work_us))
        lengths_us = np.arange(1, end - begin + 1) * slot_us
        needed = np.ceil(np.max((due_us[begin:end] - done_us) / lengths_us) - 1e-9)
        count = int(np.clip(needed, executors_min, executors_max))
        executors[begin:end] = count
        for slot in range(begin, end):
            done_us = min(done_us + count * slot_us, float(came_us[slot]))
    return executors
