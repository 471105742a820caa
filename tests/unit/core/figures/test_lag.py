"""A source's lag is that of all its partitions, or it is not known."""

from __future__ import annotations

from penstock.figures.lag import Lag, lags_of
from penstock.metrics.rows import TaskRow


def row(at_us: int, operator: str = "in", **lag: tuple[int, int]) -> TaskRow:
    of = {f"{operator}/t/{name.removeprefix('p')}": told for name, told in lag.items()}
    return TaskRow("in-0", operator, 0, "ready", 1, at_us, {}, {}, 0, 0, of)


def test_records_are_summed_and_the_longest_time_counts() -> None:
    rows = [row(1, p0=(3, 40)), row(2, p1=(4, 90), p2=(0, 0))]
    assert lags_of(rows, {"in": 3}) == {"in": Lag(7, 90)}


def test_of_two_words_about_a_partition_the_later_one_counts() -> None:
    assert lags_of([row(9, p0=(1, 1)), row(5, p0=(8, 8))], {"in": 1}) == {"in": Lag(1, 1)}


def test_where_a_partition_is_not_told_of_nothing_is_known() -> None:
    assert lags_of([row(1, p0=(3, 40))], {"in": 2}) == {}
    assert lags_of([row(1)], {"in": 1}) == {}
