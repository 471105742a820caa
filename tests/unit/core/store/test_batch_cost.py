"""What a batch costs whatever is in it is told by how its work changes with its size."""

from __future__ import annotations

import random

import pytest

from penstock.store.batch_cost import BatchCost

SIZES = [2_000, 1_000, 8_000, 3_000, 3_000, 90_000, 40_000, 700]


def told(cost: BatchCost, fixed_us: int, us_per_byte: float, sizes: list[int]) -> list[float]:
    return [cost.fixed_us(size, round(fixed_us + us_per_byte * size)) for size in sizes]


@pytest.mark.parametrize("fixed_us", [200, 20_000, 250_000])
@pytest.mark.parametrize("us_per_byte", [0.1, 5.0])
def test_it_is_what_the_line_through_batches_begins_with(fixed_us: int, us_per_byte: float) -> None:
    assert told(BatchCost(), fixed_us, us_per_byte, SIZES * 4)[-1] == pytest.approx(fixed_us, rel=0.02)


def test_before_sizes_differ_all_work_goes_by_bytes() -> None:
    assert told(BatchCost(), 5_000, 1.0, [4_000] * 20) == [0.0] * 20


def test_work_that_goes_by_bytes_has_none() -> None:
    assert told(BatchCost(), 0, 3.0, SIZES * 4)[-1] == pytest.approx(0.0, abs=1.0)


def test_work_that_is_the_same_for_any_size_is_all_fixed() -> None:
    assert told(BatchCost(), 30_000, 0.0, SIZES * 4)[-1] > 29_000


def test_it_is_remembered_while_sizes_are_the_same() -> None:
    cost = BatchCost()
    told(cost, 20_000, 1.0, SIZES * 4)
    assert told(cost, 20_000, 1.0, [50_000] * 10_000)[-1] == pytest.approx(20_000, rel=0.02)


def test_it_follows_code_that_has_become_dearer() -> None:
    cost = BatchCost()
    told(cost, 100, 1.0, SIZES * 4)
    assert told(cost, 40_000, 1.0, SIZES * 6)[-1] == pytest.approx(40_000, rel=0.1)


def test_a_machine_that_takes_the_core_away_now_and_then_does_not_disturb() -> None:
    rng = random.Random(5)
    shards = [BatchCost() for _ in range(64)]
    fixed_us = busy_us = 0.0
    for turn in range(400):
        for cost in shards:
            size = rng.randrange(20_000, 30_000)
            took_us = round(200 + 0.15 * size) + (4_000 if rng.random() < 0.25 else 0)
            part_us = cost.fixed_us(size, took_us)
            if turn >= 200:
                fixed_us, busy_us = fixed_us + part_us, busy_us + took_us
    assert fixed_us < 0.35 * busy_us


def test_commits_without_bytes_or_work_are_no_error() -> None:
    cost = BatchCost()
    assert [cost.fixed_us(size, us) for size, us in [(0, 0), (0, 5), (10, 0), (0, 0), (10, 5)]][:2] == [
        0.0,
        0.0,
    ]
