"""What a window and a join may be, and which columns come out of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.interval_join import LEFT_OUTER, IntervalJoin, JoinSide
from penstock.dataflow.window import Aggregate, InvalidWindow, Session, Sliding, Tumbling, WindowAggregation

GIVEN = parse_schema("word string, n int, price decimal(5,2), x float, parts array<int>, at timestamp")


def output(*aggregates: Aggregate, event_time: str = "at") -> str:
    return WindowAggregation(Tumbling(1000), event_time, aggregates).output(GIVEN, (0,)).ddl()


def test_results_have_key_bounds_and_aggregates() -> None:
    assert output(
        Aggregate("rows", "count"),
        Aggregate("total", "sum", "n"),
        Aggregate("paid", "sum", "price"),
        Aggregate("each", "mean", "price"),
        Aggregate("most", "max", "price"),
        Aggregate("mid", "approxQuantile", "x", (0.5,)),
        Aggregate("tails", "approxQuantiles", "x", (0.01, 0.99)),
        Aggregate("words", "approxCountDistinct", "word"),
        Aggregate("own", "code.mine:Volume", type="struct<a:int>"),
    ) == (
        "`word` string, `windowStart` timestamp, `windowEnd` timestamp, `rows` bigint, `total` bigint, "
        "`paid` decimal(15,2), `each` decimal(9,6), `most` decimal(5,2), `mid` double, "
        "`tails` array<double>, `words` bigint, `own` struct<a:int>"
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Tumbling(0), "a size of 0 ms; give at least 1 ms"),
        (lambda: Tumbling(10, -10), "-10 ms; give less than its size, 10 ms"),
        (lambda: Sliding(10, 3, 3), "less than every, 3 ms"),
        (lambda: Sliding(10, 11), "begins every 11 ms"),
        (lambda: Session(-1), "a gap of -1 ms"),
        (lambda: Aggregate("a", "median", "n"), "'median'; give one of count, sum"),
        (lambda: Aggregate("a", "sum"), "sum needs a column"),
        (lambda: Aggregate("a", "sum", "n", (0.5,)), "takes no quantiles"),
        (lambda: Aggregate("a", "approxQuantile", "n", (0.5, 0.6)), "takes one quantile, got 2"),
        (lambda: Aggregate("a", "approxQuantiles", "n"), "takes a list of quantiles"),
        (lambda: Aggregate("a", "approxQuantile", "n", (1.5,)), "from 0 to 1, got 1.5"),
        (lambda: Aggregate("a", "m:C"), "say of what type the results of m:C are"),
        (lambda: Aggregate("a", "m:C", "n", type="int"), "name no column"),
        (lambda: Aggregate("a", "count", type="int"), "leave it out"),
        (lambda: WindowAggregation(Session(1), "at", ()), "give at least one aggregate"),
        (lambda: output(Aggregate("a", "sum", "word")), "there is no sum of string ('word')"),
        (lambda: output(Aggregate("a", "max", "parts")), "there is no max of array<int>"),
        (lambda: output(Aggregate("a", "count", "m")), "aggregate 'a': there is no column 'm'; there"),
        (lambda: output(Aggregate("Word", "count")), "column 'Word' comes out twice"),
        (lambda: output(Aggregate("a", "count"), event_time="n"), "event time 'n' is int"),
        (lambda: IntervalJoin(SIDE, SIDE, 2, 1), "from 2 ms to 1 ms holds no time"),
        (lambda: IntervalJoin(SIDE, SIDE, 1, 2, "full"), "inner or leftOuter, got 'full'"),
        (lambda: IntervalJoin(SIDE, SIDE, 1, 2).output(JOINED), "column 'at' comes out twice"),
        (lambda: IntervalJoin(SIDE, SIDE, 1, 2).output(GIVEN), "a join: there is no column 'left'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidWindow) as refused:
        make()
    assert says in str(refused.value)


SIDE = JoinSide("at", (("at", "at"),))
JOINED = parse_schema(
    "k string, left struct<at:timestamp,ad:string>, right struct<at:timestamp,`the price`:map<string,int>>"
)


def test_a_join_puts_out_the_columns_of_the_left_and_then_of_the_right() -> None:
    join = IntervalJoin(
        JoinSide("at", (("ad", "ad"), ("at", "shown"))),
        JoinSide("at", (("the price", "paid"), ("at", "clicked"))),
        0,
        1000,
        LEFT_OUTER,
    )
    assert join.output(JOINED).ddl() == (
        "`ad` string, `shown` timestamp, `paid` map<string,int>, `clicked` timestamp"
    )


def test_what_state_depends_on_is_in_the_words() -> None:
    words = WindowAggregation(Sliding(10, 5), "at", (Aggregate("a", "sum", "n"),)).identity_text()
    assert words == "sliding 10 ms every 5 ms, offset 0 ms, of at: sum(n)"
    mid = Aggregate("a", "approxQuantile", "n", (0.5,))
    assert dataclasses.replace(mid, quantiles=(0.9,)).identity_text() == mid.identity_text()
    assert IntervalJoin(SIDE, SIDE, -1, 2).identity_text() == "inner join of at and at, -1 to 2 ms"
