"""Rows in and out of user code: pyspark's Rows, strict output, what travels."""

from __future__ import annotations

import copy
import datetime
import decimal
import pickle
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import types as spark

from penstock.dataflow.ddl import parse_schema
from penstock.store.codec import decode_batch, encode_batch
from penstock_worker.values.rows import (
    OutputShape,
    RowMismatch,
    RowReader,
    key_reader,
    row_class,
    timer_key_reader,
)
from penstock_worker.values.spark_types import UnknownType, schema_of, struct_type

WORD_TOTAL = parse_schema("word string, total long")
ALL_TYPES = (
    "a string, b int, c bigint, d smallint, e tinyint, f double, g float, h boolean, i date, j timestamp, "
    "k binary, l decimal(10,2), m array<int>, n map<string,date>, o struct<x:int,`y z`:array<decimal(5,1)>>"
)
UTC = datetime.UTC
EVERYTHING = (
    "text",
    -(1 << 31),
    1 << 62,
    -(1 << 15),
    127,
    1.5,
    0.5,
    True,
    datetime.date(1960, 2, 29),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    b"\x00\xff",
    decimal.Decimal("-1.50"),
    [1, None],
    [("k", datetime.date(2020, 1, 1)), ("l", None)],
    {"x": 1, "y z": [decimal.Decimal("0.1"), None]},
)


def row_of(ddl: str, *values: Any) -> Row:
    """A row as user code gets it."""
    return next(RowReader(parse_schema(ddl)).rows([values]))


# --- rows in ----------------------------------------------------------------------------------------


def test_a_row_answers_as_one_of_pysparks_own() -> None:
    ours: Row = tuple.__new__(row_class(WORD_TOTAL), ["a", 1])
    theirs = Row(word="a", total=1)
    assert isinstance(ours, Row)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs)
    assert ours.asDict() == theirs.asDict()
    assert (ours.word, ours["total"], ours[0], ours[-1]) == ("a", 1, "a", 1)
    assert "word" in ours
    assert "other" not in ours
    assert list(ours.__fields__) == ["word", "total"]
    word, total = ours
    assert (word, total) == ("a", 1)
    with pytest.raises(AttributeError):
        _ = ours.other
    with pytest.raises(ValueError, match="other"):
        ours["other"]
    with pytest.raises(Exception, match="READ_ONLY"):
        ours.word = "b"


@pytest.mark.parametrize(
    "round_trip",
    [
        lambda row: pickle.loads(pickle.dumps(row)),
        lambda row: cloudpickle.loads(cloudpickle.dumps(row)),
        copy.copy,
        copy.deepcopy,
    ],
    ids=["pickle", "cloudpickle", "copy", "deepcopy"],
)
def test_a_row_can_be_pickled_and_copied(round_trip: Any) -> None:
    row = row_of("word string, total long", "a", 1)
    assert round_trip(row) == row
    assert round_trip(row).asDict() == {"word": "a", "total": 1}


def test_a_column_called_like_a_method_of_tuples_is_reached_as_in_pyspark() -> None:
    row = row_of("count long, index long", 5, 6)
    assert row["count"] == 5
    assert row.asDict() == {"count": 5, "index": 6}
    assert callable(row.count)


def test_values_come_as_spark_hands_them_to_transform_with_state() -> None:
    shape = OutputShape(parse_schema(ALL_TYPES))
    (wire_row,) = shape.wire_rows([EVERYTHING])
    row = row_of(ALL_TYPES, *wire_row)
    assert tuple(row) == EVERYTHING
    assert repr(tuple(row)) == repr(EVERYTHING)


def test_wire_rows_travel_by_msgpack() -> None:
    shape = OutputShape(parse_schema(ALL_TYPES))
    wire_rows = shape.wire_rows([EVERYTHING, (None,) * len(EVERYTHING)])
    travelled = decode_batch(encode_batch([5, 6], wire_rows)).rows
    assert [tuple(row) for row in RowReader(parse_schema(ALL_TYPES)).rows(travelled)] == [
        EVERYTHING,
        (None,) * len(EVERYTHING),
    ]


def test_a_list_in_a_row_is_the_users_own() -> None:
    wire_row = ([1, 2],)
    row_of("a array<int>", *wire_row)[0].append(3)
    assert wire_row == ([1, 2],)


def test_a_key_is_read_as_spark_passes_it() -> None:
    assert key_reader(["string", "bigint"]) is None
    read = key_reader(["date", "string", "decimal(4,1)"])
    assert read is not None
    assert read((0, "x", "1.5")) == (datetime.date(1970, 1, 1), "x", decimal.Decimal("1.5"))
    assert read((None, None, None)) == (None, None, None)


def test_a_timers_key_is_read_as_spark_reads_it_from_its_state() -> None:
    assert timer_key_reader(["string", "bigint"]) is None
    read = timer_key_reader(["timestamp", "struct<a:int,at:timestamp>", "string"])
    assert read is not None
    epoch = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, as Spark gives it
    assert read((0, (1, 0), "x")) == (epoch, Row(a=1, at=epoch), "x")
    assert read((None, (None, None), None)) == (None, Row(a=None, at=None), None)


# --- rows out ---------------------------------------------------------------------------------------


class Named(NamedTuple):
    total: str
    word: int


Factory = Row("word", "total")


@pytest.mark.parametrize(
    "given",
    [
        Row(word="a", total=1),
        Row(total=1, word="a"),
        Row("a", 1),
        Factory("a", 1),
        ("a", 1),
        ["a", 1],
        {"total": 1, "word": "a"},
        Named("a", 1),  # type: ignore[arg-type]  # by position, whatever its names
        ("a", np.int64(1)),
        (np.str_("a"), np.int8(1)),
    ],
    ids=repr,
)
def test_a_row_may_come_in_any_form(given: Any) -> None:
    assert OutputShape(WORD_TOTAL).wire_rows([given, ("b", None)]) == [("a", 1), ("b", None)]


@pytest.mark.parametrize(
    "given", [Row(word="a"), Row(word="a", sum=1), {"word": "a"}, {"word": "a", "n": 1, "m": 2}], ids=repr
)
def test_a_row_by_names_may_lack_columns_and_have_others_as_in_spark(given: Any) -> None:
    assert OutputShape(WORD_TOTAL).wire_rows([given]) == [("a", None)]


@pytest.mark.parametrize(
    ("type_", "given", "wire"),
    [
        ("bigint", 4.0, 4),
        ("tinyint", np.float32(4), 4),
        ("int", decimal.Decimal("4.00"), 4),
        ("array<long>", [4.0, 1], [4, 1]),
        ("date", datetime.datetime(1970, 1, 2, tzinfo=UTC), 1),
        ("struct<x:int,y:int>", Row(x=1), (1, None)),
        ("struct<x:int,y:int>", {"y": 2, "z": 3}, (None, 2)),
    ],
)
def test_what_spark_takes_without_loss_is_taken(type_: str, given: Any, wire: Any) -> None:
    assert OutputShape(parse_schema(f"a {type_}")).wire_rows([(given,)]) == [(wire,)]


def test_a_row_that_came_in_may_go_out() -> None:
    rows = list(RowReader(WORD_TOTAL).rows([["a", 1], ["b", 2]]))
    assert OutputShape(WORD_TOTAL).wire_rows(rows) == [("a", 1), ("b", 2)]
    other = OutputShape(parse_schema("total long, word string"))
    assert other.wire_rows(rows) == [(1, "a"), (2, "b")]


def test_a_bare_value_is_a_row_where_there_is_one_column() -> None:
    words = OutputShape(parse_schema("word string"))
    assert words.wire_rows(["a", "b"]) == [("a",), ("b",)]
    assert words.wire_rows(["a", ("b",), Row(word="c"), None]) == [("a",), ("b",), ("c",), (None,)]
    days = OutputShape(parse_schema("day date"))
    assert days.wire_rows([datetime.date(1970, 1, 2)]) == [(1,)]


@pytest.mark.parametrize(
    ("ddl", "given", "message"),
    [
        ("word string, total long", ("a", 1.5), "column 'total' (2 of 2) expects bigint, got float 1.5"),
        ("a bigint", (float("nan"),), "expects bigint, got float nan"),
        ("a bigint", (1e30,), "9223372036854775807, got float 1e+30"),
        ("word string, total long", ("a", True), "expects bigint, got bool True"),
        ("word string, total long", (1, 1), "column 'word' (1 of 2) expects string, got int 1"),
        ("word string, total long", (b"a", 1), "expects string, got bytes b'a'"),
        ("word string, total long", ("a", 1 << 63), "got int 9223372036854775808"),
        ("a int", (1 << 31,), "expects int, -2147483648 to 2147483647"),
        ("a smallint", (1 << 15,), "expects smallint, -32768 to 32767"),
        ("a tinyint", (-129,), "expects tinyint, -128 to 127"),
        ("a double", (True,), "expects double, got bool True"),
        ("a double", ("1",), "expects double, got str '1'"),
        ("a float", (1e300,), "out of its range"),
        ("a boolean", (1,), "expects boolean, got int 1"),
        ("a binary", ("YWJj",), "expects binary, got str 'YWJj'"),
        ("a date", ("2020-01-01",), "expects date, got str"),
        ("a timestamp", (5,), "expects timestamp, got int 5"),
        ("a decimal(4,2)", (1.5,), "expects decimal(4,2), got float 1.5"),
        ("a decimal(4,2)", (decimal.Decimal("NaN"),), "does not fit"),
        ("a decimal(4,2)", (decimal.Decimal("99.999"),), "does not fit"),
        ("a array<int>", ([1, "x"],), "has element 1 that expects int, got str 'x'"),
        ("a map<string,int>", ({1: 1},), "has a key that expects string, got int 1"),
        ("a map<string,int>", ({None: 1},), "null key"),
        ("a struct<x:int>", ({"y": 1},), "expects the names x; it has y"),
        ("word string, total long", ("a",), "has 1 values; the schema has 2"),
        ("word string, total long", Row(w="a", sum=1), "expects the names word, total; it has w, sum"),
        ("word string, total long", {}, "expects the names word, total; it has none"),
        (
            "a date",
            (datetime.datetime(2020, 1, 1, 5, tzinfo=UTC),),
            "which has a time of day; give its date()",
        ),
        ("a timestamp", (pd.NaT,), "got NaTType NaT; give None for a time that is missing"),
        ("word string, total long", "a", "is no row of the schema `word` string, `total` bigint"),
        ("word string, total long", None, "is no row"),
        ("words array<string>", "a", "is no row"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_column_type_and_value(
    ddl: str, given: Any, message: str
) -> None:
    with pytest.raises(RowMismatch) as refused:
        OutputShape(parse_schema(ddl)).wire_rows([given])
    assert message in str(refused.value)


def test_one_bad_row_among_many_is_the_one_that_is_named() -> None:
    rows = [("a", n) for n in range(100)]
    rows[57] = ("b", "x")  # type: ignore[assignment]  # on purpose
    with pytest.raises(RowMismatch, match=r"the row is tuple \('b', 'x'\)"):
        OutputShape(WORD_TOTAL).wire_rows(rows)


def test_a_whole_number_may_stand_in_a_double_column() -> None:
    (row,) = OutputShape(parse_schema("a double, b float")).wire_rows([(1, 2)])
    assert repr(row) == "(1.0, 2.0)"


def test_a_float_column_holds_what_32_bits_hold() -> None:
    assert OutputShape(parse_schema("a float")).wire_rows([(1.1,)]) == [(1.100000023841858,)]


def test_a_datetime_without_a_zone_is_utc() -> None:
    naive = datetime.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - that is the case
    east = datetime.datetime(1970, 1, 1, 1, 0, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert OutputShape(parse_schema("a timestamp")).wire_rows([(naive,), (east,)]) == [(10**6,), (10**6,)]


def test_equal_decimals_travel_as_equal_text() -> None:
    given = [decimal.Decimal(text) for text in ("1.5", "1.50", "15E-1", "1.495")]
    assert {
        row[0] for row in OutputShape(parse_schema("a decimal(6,2)")).wire_rows([(d,) for d in given])
    } == {"1.50"}


# --- types ------------------------------------------------------------------------------------------


def test_a_schema_becomes_pysparks_struct_type_and_comes_back() -> None:
    schema = parse_schema(ALL_TYPES)
    struct = struct_type(schema)
    assert struct["l"].dataType == spark.DecimalType(10, 2)
    assert struct["o"].dataType["y z"].dataType == spark.ArrayType(spark.DecimalType(5, 1))
    assert schema_of(struct) == schema
    assert schema_of(ALL_TYPES) == schema


@pytest.mark.parametrize("unknown", [spark.TimeType(), spark.DayTimeIntervalType(), spark.VariantType()])
def test_a_type_that_is_not_carried_is_refused_by_name(unknown: spark.DataType) -> None:
    with pytest.raises(UnknownType, match=re.escape(unknown.simpleString())):
        schema_of(spark.StructType([spark.StructField("a", unknown)]))


@pytest.mark.parametrize("declared", [5, None, spark.LongType(), spark.StructType([])])
def test_what_is_no_schema_is_refused(declared: Any) -> None:
    with pytest.raises(UnknownType):
        schema_of(declared)
