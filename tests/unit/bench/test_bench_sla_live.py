"""The bursts of `make bench-sla-live`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench.sla_live import (
    BASE_PER_S,
    PEAK_PER_S,
    STEP_S,
    TASK_RATE_PER_S,
    TASKS_MAX,
    bursts,
    oracle_mean_executors,
)


@pytest.mark.parametrize("seed", range(5))
def test_bursts_are_drawn_from_a_seed_within_what_eight_tasks_can_serve(seed: int) -> None:
    trace = bursts(seed, 75.0)
    assert trace == bursts(seed, 75.0)
    assert trace[0][0] == 0.0
    assert trace[-1] == (75.0, 0.0)
    rates = [rate for _, rate in trace[:-1]]
    assert min(rates) >= BASE_PER_S[0]
    assert PEAK_PER_S[0] <= max(rates) <= PEAK_PER_S[1] < TASK_RATE_PER_S * TASKS_MAX
    assert all(later[0] - sooner[0] == STEP_S for sooner, later in pairwise(trace[:-1]))


def test_another_seed_has_other_bursts() -> None:
    assert bursts(1, 75.0) != bursts(2, 75.0)


def test_the_oracle_has_just_the_executors_that_a_rate_takes() -> None:
    trace = [(0.0, 0.0), (1.0, 200.0), (2.0, 201.0), (4.0, 0.0)]
    assert oracle_mean_executors(trace) == (1 + 1 + 2 * 2) / 4
