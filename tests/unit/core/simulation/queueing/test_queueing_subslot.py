"""What slots hide: its limits are closed forms, and both ways to compute it meet."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.simulation.queueing.subslot import difference_at, hidden_waiting_us


def test_without_drift_the_difference_is_chernoffs_constant() -> None:
    assert difference_at(0.0) == pytest.approx(0.582597, abs=1e-6)


def test_series_and_sum_meet() -> None:
    assert difference_at(1 - 1e-9) == pytest.approx(difference_at(1.0), abs=1e-5)
    # By hand: 1/2 - (0.08332 + 0.02513 + 0.00976 + 0.00424 + 0.00198 + ...) = 0.3736
    assert difference_at(1.0) == pytest.approx(0.3736, abs=2e-4)


def test_with_short_rows_at_low_load_it_is_all_of_pollaczek_and_khinchines_waiting() -> None:
    # M/D/1 with S = 1 ms at rho = 0.2: lambda E[S^2] / (2 (1 - rho)) = 0.2 * 1000 / 1.6 = 125 us.
    found = hidden_waiting_us(np.array([0.2]), np.array([200.0]), 100_000.0, np.ones(1))
    assert found == pytest.approx([125.0], rel=1e-3)


def test_nothing_arriving_hides_nothing() -> None:
    assert hidden_waiting_us(np.zeros(2), np.zeros(2), 100_000.0, np.array([1.0, 4.0])).tolist() == [0.0, 0.0]


def test_overload_hides_no_more_than_a_full_server() -> None:
    load = np.array([1.0, 3.0])
    found = hidden_waiting_us(load, np.array([1_000.0, 1_000.0]), 100_000.0, np.ones(2))
    assert found[0] == pytest.approx(found[1]) == pytest.approx(0.582597 * 10_000)


def test_of_two_servers_one_is_often_free() -> None:
    # M/M/2 at rho = 0.1, S = 1 ms: C = 2 rho^2 / (1 + rho) = 0.01818, W = C * S / (2 (1 - rho)) = 10.1 us.
    found = hidden_waiting_us(np.array([0.1]), np.array([0.2 * 2_000.0]), 100_000.0, np.array([2.0]))
    assert found == pytest.approx([10.1], rel=0.01)
