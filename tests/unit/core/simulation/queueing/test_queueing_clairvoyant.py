"""Bounds on what any policy can do, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.clairvoyant import clairvoyant
from penstock.simulation.queueing.model import Arrivals, InitialExecutor, SimulatedOperator

SLOT_US = 100_000
OPERATOR = SimulatedOperator("o", 4, 5_000.0, (InitialExecutor("e0"),))


def test_a_shard_that_is_too_much_for_one_executor_is_met_by_nobody() -> None:
    # 30 rows of 5 ms a slot are 1.5 executors: the queue grows by half a slot a slot, past 1 s after 2 s.
    rows = np.tile(np.array([30, 1, 1, 1], dtype=np.int64), (100, 1))
    found = clairvoyant(OPERATOR, Arrivals(SLOT_US, {"o": rows}), LatencyTarget(1_000_000.0), executors_max=8)
    assert found.success_max[1:].tolist() == [1.0, 1.0, 1.0]
    assert found.success_max[0] == pytest.approx(0.25, abs=0.1)
    assert found.work_executors == pytest.approx(1.65)


def test_a_burst_is_spread_over_the_time_that_the_bound_leaves() -> None:
    # 400 rows of 5 ms come at once, 2 s of work, due within 0.5 s: four executors for half a second.
    rows = np.zeros((20, 4), dtype=np.int64)
    rows[4] = 100
    found = clairvoyant(
        OPERATOR,
        Arrivals(SLOT_US, {"o": rows}),
        LatencyTarget(500_000.0),
        executors_min=0,
        executors_max=8,
        hold_us=500_000,
    )
    assert found.executors.tolist() == [0] * 5 + [4] * 5 + [0] * 10
    assert found.work_executors == pytest.approx(1.0)


def test_no_more_than_allowed_are_used() -> None:
    rows = np.full((20, 4), 100, dtype=np.int64)
    found = clairvoyant(OPERATOR, Arrivals(SLOT_US, {"o": rows}), LatencyTarget(100_000.0), executors_max=3)
    assert found.executors.max() == 3


def test_an_operator_that_nothing_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows reach operator o"):
        clairvoyant(
            OPERATOR,
            Arrivals(SLOT_US, {"p": np.zeros((20, 1), dtype=np.int64)}),
            LatencyTarget(1e6),
            executors_max=3,
        )
