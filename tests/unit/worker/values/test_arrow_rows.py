"""Wire rows as Arrow: the types and values that Spark's own conversion gives."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.dataflow.ddl import parse_schema
from penstock_worker.values.arrow_rows import ArrowRows, unpacked
from penstock_worker.values.spark_types import struct_type

SCHEMA = parse_schema(
    "a string, b int, c bigint, d smallint, e tinyint, f double, g float, h boolean, i date, j timestamp, "
    "k timestamp_ntz, l binary, m decimal(9,2), n array<int>, o map<string,date>, p struct<x:int,y:timestamp>"
)
ROW = (
    "text", 1, 2, 3, 4, 0.5, 0.25, True, 20_000, 1_700_000_000_000_001,
    1_700_000_000_000_001, b"\x00", "12.50", [1, None], [("k", 20_000)], [7, 1_000_000],
)  # fmt: skip


def test_each_type_has_its_value_and_a_null() -> None:
    table = unpacked(ArrowRows(SCHEMA).packed([ROW, (None,) * 16]))
    first, second = table.to_pylist()
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, 1)  # noqa: DTZ001
    day = datetime.date(2024, 10, 4)
    second_of_1970 = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert list(first.values()) == [
        "text", 1, 2, 3, 4, 0.5, 0.25, True, day, at.replace(tzinfo=datetime.UTC),
        at, b"\x00", Decimal("12.50"), [1, None], [("k", day)], {"x": 7, "y": second_of_1970},
    ]  # fmt: skip
    assert set(second.values()) == {None}


def test_the_schema_is_that_of_sparks_own() -> None:
    schema = unpacked(ArrowRows(SCHEMA).packed([ROW])).schema
    wanted = to_arrow_schema(struct_type(SCHEMA), timezone="UTC")
    assert [field.name for field in schema] == [field.name for field in wanted]
    assert pa.schema([(f.name, f.type) for f in schema]).types == wanted.types
