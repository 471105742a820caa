"""How many tasks an executor needs whose shards are pinned to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.elasticutor.pinned_shards import ShardLoad

S = 1_000_000


def load(*demand_per_s: float, latency_us: float = 100_000.0, coming_per_s: float = 0.0) -> ShardLoad:
    """A task serves 100/s; with 100 ms allowed it may be given 90/s."""
    return ShardLoad.of(np.array(demand_per_s), 100.0, latency_us, coming_per_s)


def test_one_task_is_enough_as_long_as_it_keeps_the_bound() -> None:
    assert load(0.0).tasks_needed() == 1
    assert load(45.0, 45.0).tasks_needed() == 1
    assert load(46.0, 45.0).tasks_needed() == 2


def test_no_task_comes_on_top_of_what_the_bound_asks_for() -> None:
    # a = 3.5: the paper's ceil(a) + 1 would be 5.
    assert load(*[1.75] * 200).tasks_needed() == 4


def test_shards_are_spread_whole() -> None:
    # 150/s are less than two tasks may be given, but three shards of 50/s fit no two of them.
    assert load(50.0, 50.0, 50.0).tasks_needed() == 3


def test_a_shard_that_is_too_much_for_a_task_has_one_for_itself_and_no_more() -> None:
    heavy = load(250.0, 30.0, 30.0, 30.0)
    assert (heavy.alone, heavy.tasks_needed()) == (1, 2)
    assert heavy.expected_us(2) == math.inf
    assert load(250.0).tasks_needed() == 1


def test_a_bound_that_no_task_keeps_asks_for_tasks_half_used() -> None:
    assert load(25.0, 25.0, 25.0, 25.0, latency_us=5_000.0).tasks_needed() == 2


def test_what_is_expected_is_the_worst_task_s() -> None:
    assert load(50.0, 30.0).expected_us(1) == pytest.approx(S / 20)
    assert load(50.0, 30.0).expected_us(2) == pytest.approx(S / 50)
    assert load(50.0, 60.0).expected_us(1) == math.inf
    assert load(0.0).expected_us(1) == 0.0


def test_tasks_that_come_are_enough_for_when_they_work() -> None:
    rising = load(*[10.0] * 20, coming_per_s=400.0)
    assert rising.tasks_asked(2) == 5
    # Who has enough now is not made bigger for what the newest interval shows.
    assert rising.tasks_asked(3) == 3


@given(
    st.lists(st.floats(0.0, 120.0), min_size=1, max_size=40),
    st.floats(20_000.0, 1_000_000.0),
)
def test_with_what_is_needed_every_task_keeps_the_bound(demands: list[float], latency_us: float) -> None:
    drawn = load(*demands, latency_us=latency_us)
    needed = drawn.tasks_needed()
    assert 1 <= needed <= len(demands)
    if not drawn.alone:
        assert drawn.expected_us(needed) <= latency_us * (1 + 1e-6)
