"""When a shard's SLA held (StreamSwitch, sections 2.1 and 6, "Metrics").

Neighbours: `replay` asks at the end of a run, benchmarks for paths and other targets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.model import FloatArray

_ROWS_MIN = 1e-6
"""Less is what is left over of a row in slots."""


def met(
    arrived: FloatArray,
    completed: FloatArray,
    latency_sum_us: FloatArray,
    slot_us: int,
    target: LatencyTarget,
) -> npt.NDArray[np.bool_]:
    """[windows, shards]: whether the SLA held over the window (t - T, t], for t the end of every slot from T
    on.

    The arguments are [slots, shards], by slot of arrival, of completion and of completion. Over rows that
    completed in the window the mean latency is compared with L. The paper does not say what a window without
    any is. Here it is met unless a row has waited for longer than L at t: nothing to do is no failure, while
    nothing done of what is due is one. ValueError for a window that is longer than the run.
    """
    slots = len(arrived)
    window = max(1, round(target.window_us / slot_us))
    if window > slots:
        raise ValueError(f"a run of {slots} slots of {slot_us} us is shorter than the window")
    rows = _over(completed, window)
    sums_us = _over(latency_sum_us, window)
    some = rows > _ROWS_MIN
    held = sums_us <= target.latency_us * rows * (1 + 1e-9)
    # A row that came before t - L, rounded down to a slot, and is not complete at t.
    late = int(target.latency_us // slot_us) + 1
    came = np.zeros_like(arrived)
    if late < slots:
        came[late:] = np.cumsum(arrived[: slots - late], axis=0)
    overdue = (came - np.cumsum(completed, axis=0))[window - 1 :] > _ROWS_MIN * 1_000
    return np.where(some, held, ~overdue)


def path_met(
    latencies: list[tuple[FloatArray, FloatArray]], slot_us: int, window_us: int, latency_us: float
) -> npt.NDArray[np.bool_]:
    """[windows]: whether the means of operators in a row, each over the window, add up to at most
    `latency_us`.

    `latencies` are (completed, latency sum) [slots] of each operator. The paper measures rows end to end; in
    slots single rows are not followed, and the sum of means is what their mean is while little changes within
    a window. An operator without completions adds nothing.
    """
    window = max(1, round(window_us / slot_us))
    total = np.zeros(len(latencies[0][0]) - window + 1)
    for completed, latency_sum_us in latencies:
        rows = _over(completed[:, None], window)[:, 0]
        sums = _over(latency_sum_us[:, None], window)[:, 0]
        total += np.divide(sums, rows, out=np.zeros_like(sums), where=rows > _ROWS_MIN)
    return total <= latency_us * (1 + 1e-9)


def _over(values: FloatArray, window: int) -> FloatArray:
    """[windows, shards], sums over `window` slots."""
    sums = np.cumsum(values, axis=0)
    sums[window:] -= sums[:-window].copy()
    return sums[window - 1 :]
