"""Rows of two sides meet by key and interval, in whatever order they come, and wait no longer than needed."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.interval_join import INNER, LEFT_OUTER, IntervalJoin, JoinSide
from penstock_worker.windows.processors import join_processor
from scenes.window_scene import END_MS, WindowScene, at, ms_of

GIVEN = parse_schema("k string, left struct<at:timestamp,ad:int>, right struct<at:timestamp,price:int>")
LEFT = JoinSide("at", (("ad", "ad"),))
RIGHT = JoinSide("at", (("price", "price"),))


def time_of(row: Row) -> float:
    return ms_of((row.left or row.right)["at"])


def scene(lower_ms: int, upper_ms: int, how: str = INNER) -> WindowScene:
    join = IntervalJoin(LEFT, RIGHT, lower_ms, upper_ms, how)
    return WindowScene(join_processor(join, GIVEN), GIVEN.names, time_of)


def left(key: str | None, ms: float, ad: int) -> tuple[Any, ...]:
    return key, {"at": at(ms), "ad": ad}, None


def right(key: str | None, ms: float, price: int) -> tuple[Any, ...]:
    return key, None, {"at": at(ms), "price": price}


def test_rows_meet_at_both_bounds_whichever_comes_first() -> None:
    made = scene(-1000, 2000)
    made.give(left("a", 5000, 1), right("a", 4000, 10), right("a", 3999.999, 11))
    made.give(right("a", 7000, 12), right("a", 7000.001, 13), right("b", 5000, 14), left("a", 5000.001, 2))
    assert sorted(made.made) == [(1, 10), (1, 12), (2, 12), (2, 13)]


def test_structs_may_be_rows() -> None:
    made = scene(0, 1000)
    made.give(("a", Row(at=at(5), ad=1), None), ("a", None, Row(at=at(6), price=2)))
    assert made.made == [(1, 2)]


def test_rows_wait_until_the_watermark_says_that_nobody_comes() -> None:
    made = scene(-1000, 7000)
    made.give(left("a", 100, 1), right("a", 200, 2))
    # Both wait in a bucket that ends at 1000: up to 7000 and 1000 later.
    assert made.timers() == {"a": [2000]}
    made.watermark(2000)
    assert made.timers() == {"a": [8000]}
    assert made.tester.peekMapState("right", "a") == {}
    made.give(right("a", 7100, 3))
    assert made.made == [(1, 2), (1, 3)]
    made.watermark(8000)
    assert made.tester.peekMapState("left", "a") == {}
    made.watermark(END_MS)
    assert made.holds_nothing()


def test_a_row_nobody_can_come_for_does_not_wait() -> None:
    made = scene(5000, 6000)
    made.watermark(20_000)
    made.give(right("a", 20_500, 1))
    assert made.holds_nothing()
    made.give(left("a", 20_500, 1))
    assert made.timers() == {"a": [27_000]}


def test_null_keys_meet_nobody_and_rows_of_neither_side_are_nothing() -> None:
    inner, outer = scene(0, 1000), scene(0, 1000, LEFT_OUTER)
    for made in (inner, outer):
        made.give(left(None, 1, 1), right(None, 1, 2), (("a", None, {"at": at(1), "price": None})))
        made.watermark(END_MS)
        assert made.holds_nothing()
    assert (inner.made, outer.made) == ([], [(1, None)])


def test_of_a_left_outer_join_rows_that_met_nobody_come_out_when_nobody_can_come() -> None:
    made = scene(0, 1000, LEFT_OUTER)
    made.give(left("a", 100, 1), left("a", 200, 2), left("b", 300, 3))
    made.give(right("a", 150, 10))
    made.give(right("a", 160, 11))
    assert made.made == [(1, 10), (1, 11)]
    made.watermark(1999)
    assert made.made[2:] == []
    made.watermark(2000)
    assert sorted(made.made[2:]) == [(2, None), (3, None)]
    assert made.holds_nothing()


def test_a_left_row_whose_partners_are_all_over_comes_out_at_once() -> None:
    made = scene(-9000, -8000, LEFT_OUTER)
    made.give(right("a", 1500, 1))
    made.watermark(9_999)
    made.give(left("a", 10_000, 1), left("a", 18_500, 2))
    assert made.made == [(1, 1)]
    made.watermark(END_MS)
    assert made.made[1:] == [(2, None)]
    assert made.holds_nothing()


EVENTS = st.lists(
    st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 30_000)), max_size=30
)  # fmt: skip


@pytest.mark.parametrize("how", [INNER, LEFT_OUTER])
@given(EVENTS, st.integers(-12_000, 12_000), st.integers(0, 20_000), st.integers(1, 8), st.integers(0, 3000))
def test_every_pair_comes_out_once(
    how: str, events: list[tuple[bool, str, int]], lower_ms: int, length_ms: int, batch: int, delay_ms: int
) -> None:
    # In such an order that none is late.
    ordered = sorted(enumerate(events), key=lambda one: one[1][2] + (one[0] * 7919) % (delay_ms + 1))
    rows = [
        (left if is_left else right)(key, ms + 1 + delay_ms, number) for number, (is_left, key, ms) in ordered
    ]
    made = scene(lower_ms, lower_ms + length_ms, how)
    found = sorted(made.play(rows, batch, delay_ms + 1), key=str)
    pairs: list[tuple[int, int | None]] = [
        (one, other)
        for one, (is_left, key, ms) in enumerate(events)
        for other, (other_left, other_key, other_ms) in enumerate(events)
        if is_left and not other_left and key == other_key
        and ms + lower_ms <= other_ms <= ms + lower_ms + length_ms
    ]  # fmt: skip
    if how == LEFT_OUTER:
        met = {one for one, _ in pairs}
        pairs += [(one, None) for one, (is_left, _, _) in enumerate(events) if is_left and one not in met]
    assert found == sorted(pairs, key=str)
    assert made.holds_nothing()


def test_nested_values_come_out_as_they_came() -> None:
    given_ = parse_schema(
        "k string, left struct<at:timestamp_ntz,d:decimal(5,2),m:map<string,date>,s:struct<x:array<int>>>, "
        "right struct<at:timestamp>"
    )
    names = ("at", "d", "m", "s")
    join = IntervalJoin(
        JoinSide("at", tuple((name, name) for name in names)), JoinSide("at", (("at", "then"),)), 0, 0
    )
    made = WindowScene(join_processor(join, given_), given_.names, lambda row: 1)
    naive = at(5.001).replace(tzinfo=None)
    day = datetime.date(2026, 1, 2)
    values = {"at": naive, "d": None, "m": [("a", day), ("b", None)], "s": {"x": [1, None]}}
    made.give(("a", values, None))
    made.give(("a", None, {"at": at(5.001)}))
    assert made.made == [(naive, None, [("a", day), ("b", None)], {"x": [1, None]}, at(5.001))]
