"""The SLA over sliding windows, by hand (StreamSwitch, 2.1), and the windows in which nothing was
completed."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.success import met, path_met

SLOT_US = 100
TARGET = LatencyTarget(latency_us=300.0, window_us=200, alert_us=50.0, interval_us=100)


def column(*values: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)[:, None]


def test_the_mean_of_a_window_is_compared_with_the_bound() -> None:
    # Windows end at slots 1, 2, 3: means (100 + 500) / 2 = 300, (500 + 200) / 2 = 350, (200 + 200) / 2 = 200.
    rows = column(1, 1, 1, 1)
    held = met(rows, rows, column(100, 500, 200, 200), SLOT_US, TARGET)
    assert held[:, 0].tolist() == [True, False, True]


def test_rows_weigh_as_many_as_they_are() -> None:
    held = met(column(3, 1), column(3, 1), column(3 * 100, 900), SLOT_US, TARGET)
    assert held[:, 0].tolist() == [True]


def test_a_window_with_nothing_to_do_is_met() -> None:
    held = met(column(0, 0, 0), column(0, 0, 0), column(0, 0, 0), SLOT_US, TARGET)
    assert held.all()


def test_a_window_in_which_nothing_came_out_is_met_until_a_row_has_waited_too_long() -> None:
    # A row comes in slot 0 and stays: older than 300 us for certain from the end of slot 4 on.
    arrived = column(1, 0, 0, 0, 0, 0)
    held = met(arrived, column(0, 0, 0, 0, 0, 0), column(0, 0, 0, 0, 0, 0), SLOT_US, TARGET)
    assert held[:, 0].tolist() == [True, True, True, False, False]


def test_a_window_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter than the window"):
        met(column(1), column(1), column(0), SLOT_US, TARGET)


def test_latencies_add_up_along_a_path() -> None:
    split = (np.array([1.0, 1.0]), np.array([100.0, 300.0]))
    count = (np.array([2.0, 2.0]), np.array([100.0, 300.0]))
    # Means over one window of two slots: 200 and 100.
    assert path_met([split, count], SLOT_US, 200, 300.0).tolist() == [True]
    assert path_met([split, count], SLOT_US, 200, 299.0).tolist() == [False]
