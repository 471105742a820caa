"""Aggregates are those of Spark, keep what they know as plain values, and merge without a loss."""

from __future__ import annotations

import datetime
import math
import random
import sys
import types
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.window import Aggregate
from penstock_worker.windows.aggregators import Aggregator, SumOverflow
from penstock_worker.windows.making import aggregator_of, aggregators_of
from penstock_worker.windows.stored_types import pack, unpacker

GIVEN = parse_schema(
    "n bigint, x double, d decimal(5,2), s string, at timestamp, b binary, day date, ntz timestamp_ntz"
)

NAIVE = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - a timestamp_ntz


def made(function: str, column: str = "", *quantiles: float) -> Aggregator:
    return aggregator_of(Aggregate("out", function, column, quantiles), GIVEN, Path())


def over(aggregator: Aggregator, column: str, *parts: Sequence[Any]) -> Any:
    """The result of values in one column: parts are reduced one by one, packed, and merged."""
    place = GIVEN.names.index(column)
    row = Row(*GIVEN.names)
    unpack = unpacker(aggregator.stored)
    total = aggregator.zero()
    for part in parts:
        rows = [row(*[value if at == place else None for at in range(len(GIVEN.names))]) for value in part]
        total = aggregator.merge(total, unpack(pack(aggregator.reduce(aggregator.zero(), rows))))
        total = unpack(pack(total))
    return aggregator.finish(total)


@pytest.mark.parametrize(
    ("function", "column", "values", "wanted"),
    [
        ("count", "n", [1, None, 3], 2),
        ("sum", "n", [1, None, 3], 4),
        ("sum", "n", [None, None], None),
        ("sum", "x", [-0.0], 0.0),
        ("sum", "d", [Decimal("1.15"), None, Decimal("2.22"), Decimal("-3.10")], Decimal("0.27")),
        ("mean", "n", [1, 2, None], 1.5),
        ("mean", "n", [None], None),
        ("mean", "d", [Decimal("1.00"), Decimal("0.00"), Decimal("0.00")], Decimal("0.333333")),
        ("min", "x", [math.nan, None, 2.0, 1.0], 1.0),
        ("max", "s", ["a", "é", None, "b"], "é"),
        ("max", "b", [b"a", b"\xff", b""], b"\xff"),
        ("min", "day", [datetime.date(2026, 1, 2), datetime.date(2025, 3, 4)], datetime.date(2025, 3, 4)),
        ("max", "ntz", [NAIVE], NAIVE),
        ("approxCountDistinct", "s", ["a", "b", "a", None], 2),
        ("approxCountDistinct", "x", [0.0, -0.0, math.nan, math.nan], 2),
        ("approxCountDistinct", "b", [b"a", b"a", b"c"], 2),
        ("approxCountDistinct", "d", [Decimal("1.10"), Decimal("1.10"), None], 1),
        ("approxCountDistinct", "n", [None], 0),
    ],
)  # fmt: skip
def test_an_aggregate_is_sparks_in_one_part_and_in_many(
    function: str, column: str, values: list[Any], wanted: Any
) -> None:
    aggregator = made(function, column)
    for parts in ([values], [[value] for value in values], [[], values, []]):
        found = over(aggregator, column, *parts)
        assert (found, type(found)) == (wanted, type(wanted))
        if wanted == 0.0 and isinstance(wanted, float):
            assert math.copysign(1, found) == 1


def test_the_largest_number_is_nan() -> None:
    assert math.isnan(over(made("max", "x"), "x", [1.0, math.nan], [math.inf]))
    assert math.isnan(over(made("min", "x"), "x", [math.nan], [math.nan]))


def test_times_keep_their_microseconds_and_zone() -> None:
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    assert over(made("max", "at"), "at", [time]) == time
    assert over(made("max", "at"), "at", [time]).tzinfo is not None


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    largest = (1 << 63) - 1
    assert over(made("sum", "n"), "n", [largest]) == largest
    for parts in ([[largest, 1]], [[largest], [1]], [[-largest, -2]]):
        with pytest.raises(SumOverflow):
            over(made("sum", "n"), "n", *parts)


def test_rows_are_counted_whatever_they_hold() -> None:
    assert over(made("count"), "n", [None, 1], [None]) == 3


def test_distinct_values_are_counted_within_the_sketchs_error() -> None:
    parts = [range(begin, begin + 2000) for begin in range(0, 40_000, 1000)]
    assert over(made("approxCountDistinct", "n"), "n", *parts) == pytest.approx(41_000, rel=0.06)


def test_quantiles_of_few_values_are_exact_and_those_of_many_nearly() -> None:
    assert over(made("approxQuantile", "n", 0.5), "n", [5, 1, None], [3, 4, 2]) == 3.0
    assert over(made("approxQuantiles", "x", 0, 0.5, 1), "x", [2.0, 1.0]) == [1.0, 1.0, 2.0]
    assert over(made("approxQuantile", "n", 0.5), "n", [None]) is None
    assert over(made("approxQuantile", "x", 0.5), "x", [math.nan]) is None
    values = list(range(10_000))
    random.Random(4).shuffle(values)
    parts = [values[begin : begin + 500] for begin in range(0, len(values), 500)]
    found = over(made("approxQuantiles", "n", 0.5, 0.99), "n", *parts)
    assert found == [pytest.approx(5000, abs=300), pytest.approx(9900, abs=300)]


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-(1 << 40), 1 << 40)), max_size=5), max_size=5))
def test_merging_parts_is_reducing_all(parts: list[list[int | None]]) -> None:
    values = [value for part in parts for value in part]
    for function in ("count", "sum", "min", "max", "approxCountDistinct"):
        aggregator = made(function, "n")
        assert over(aggregator, "n", *parts) == over(aggregator, "n", values)


class Longest:
    """A user's: the longest text, and how many rows were looked at. Its accumulator is changed in place."""

    def zero(self) -> dict[str, Any]:
        return {"rows": 0, "text": ""}

    def reduce(self, acc: dict[str, Any], row: Row) -> dict[str, Any]:
        acc["rows"] += 1
        acc["text"] = max(acc["text"], row.s, key=len)
        return acc

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        if not one["rows"]:
            return other
        one["rows"] += other["rows"]
        one["text"] = max(one["text"], other["text"], key=len)
        return one

    def finish(self, acc: dict[str, Any]) -> str:
        return f"{acc['text']} of {acc['rows']}"


@pytest.fixture
def users_module() -> str:
    module = types.ModuleType("users_aggregates")
    module.Longest = Longest  # type: ignore[attr-defined]
    sys.modules["users_aggregates"] = module
    return "users_aggregates:Longest"


def test_a_users_aggregate_is_a_class_with_sparks_words(users_module: str, tmp_path: Path) -> None:
    aggregator = aggregator_of(Aggregate("out", users_module, type="string"), GIVEN, tmp_path)
    assert over(aggregator, "s", ["a", "ccc"], ["bb"]) == "ccc of 3"


def test_what_a_user_merges_changes_no_part(users_module: str, tmp_path: Path) -> None:
    together = aggregators_of([Aggregate("out", users_module, type="string")], GIVEN, tmp_path)
    parts = [({"rows": 1, "text": text},) for text in ("a", "bb", "c")]
    before = pack(parts)
    assert together.finish(together.merge(parts)) == ["bb of 3"]
    assert pack(parts) == before


def test_accumulators_of_a_class_are_read_as_its_buffer(tmp_path: Path) -> None:
    class Pair(Longest):
        buffer = msgspec.defstruct("Pair", [("rows", int), ("text", str)])

        def zero(self) -> Any:
            return self.buffer(0, "")

        def reduce(self, acc: Any, row: Row) -> Any:
            return self.buffer(acc.rows + 1, row.s)

        def merge(self, one: Any, other: Any) -> Any:
            return self.buffer(one.rows + other.rows, other.text)

        def finish(self, acc: Any) -> str:
            return f"{acc.rows}{acc.text}"

    module = types.ModuleType("users_buffers")
    module.Pair = Pair  # type: ignore[attr-defined]
    sys.modules["users_buffers"] = module
    aggregator = aggregator_of(Aggregate("out", "users_buffers:Pair", type="string"), GIVEN, tmp_path)
    assert over(aggregator, "s", ["a"], ["b"]) == "2b"
