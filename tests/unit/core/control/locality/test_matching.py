"""A graph's edges by vertex, and parts matched to nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.control.locality.adjacency import adjacency
from penstock.control.locality.matching import matched


def test_edges_between_the_same_two_are_one_to_their_neighbours() -> None:
    near = adjacency(4, np.array([0, 2, 0]), np.array([2, 0, 1]), np.array([1.0, 2.0, 5.0]))
    assert [dict(zip(*(each.tolist() for each in near.of(v)), strict=True)) for v in range(4)] == [
        {1: 5.0, 2: 3.0}, {0: 5.0}, {0: 3.0}, {},
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_the_matching_of_greatest_value_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    value = rng.integers(-9, 10, (count, count)).astype(float)
    columns = matched(value)
    assert sorted(columns.tolist()) == list(range(count))
    best = max(
        sum(value[row, column] for row, column in enumerate(each))
        for each in itertools.permutations(range(count))
    )
    assert value[np.arange(count), columns].sum() == best
