"""SpaceSaving in arrays: its guarantees on whole streams, for the counters that stayed."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.locality.id_counters import IdCounters

COUNTERS_MAX, KEPT = 100, 75


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 2.0])
@pytest.mark.parametrize("size", [1, 7, 256, 5000])
def test_no_count_is_further_off_than_it_says(exponent: float, size: int) -> None:
    rng = np.random.default_rng(int(exponent * 10) + size)
    weights = 1 / np.arange(1, 1001) ** exponent
    stream = rng.choice(1000, 6000, p=weights / weights.sum()).astype(np.uint64)
    counters = IdCounters()
    for start in range(0, len(stream), size):
        counters.count(stream[start : start + size], COUNTERS_MAX, KEPT)
        assert len(counters) <= COUNTERS_MAX
    true = np.bincount(stream.astype(np.int64), minlength=1000)
    assert (np.diff(counters.ids.astype(np.int64)) > 0).all()
    seen = true[counters.ids.astype(np.int64)]
    assert (counters.counts - counters.errors <= seen).all()
    assert (seen <= counters.counts).all()
    absent = np.setdiff1d(np.arange(1000), counters.ids)
    assert true[absent].max(initial=0) <= counters.floor <= len(stream) / (KEPT + 1)
    # The flattest stream is the one that reaches it.
    assert exponent > 0 or counters.floor > 0


def test_of_the_least_frequent_those_stay_that_come_first() -> None:
    counters = IdCounters()
    counters.count(np.array([9, 9, 9, 4, 4, 2, 7, 5], np.uint64), 4, 3)
    assert counters.ids.tolist() == [2, 4, 9]
    assert counters.counts.tolist() == [1, 2, 3]
    assert counters.floor == 1
    counters.count(np.array([7], np.uint64), 4, 3)
    assert (counters.ids.tolist(), counters.counts.tolist()) == ([2, 4, 7, 9], [1, 2, 2, 3])
    assert counters.errors.tolist() == [0, 0, 1, 0]
