"""JSON lines equal what Spark's to_json says of the same rows, but for what `json_rows` names; and Spark
reads the cases of `scenes.json_cases` as these say."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, struct, to_json

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock_worker.values.rows import OutputShape
from penstock_worker.values.spark_types import struct_type
from scenes.json_cases import READ, REFUSED

pytestmark = pytest.mark.integration

DDL = (
    "s string, b boolean, t tinyint, i int, l bigint, d double, f float, bin binary, day date, at timestamp, "
    "there timestamp_ntz, price decimal(20,4), tags array<string>, days array<date>, "
    "counts map<string,bigint>, by_number map<int,double>, "
    "inner struct<x:int,`y z`:struct<at:timestamp,price:decimal(4,1)>>"
)
AT = datetime.datetime(2024, 2, 29, 23, 59, 59, 125000, tzinfo=datetime.UTC)
ROWS: list[tuple[Any, ...]] = [
    (
        'über "q" \\ / \u2028\n\t\x01', True, -128, -1, 1 << 62, 0.1, 0.1, b"\x00\xff\x10", AT.date(), AT,
        AT.replace(tzinfo=None), decimal.Decimal("1234567890123456.5000"), ["a", None, ""],
        [AT.date(), None], {"a": 1, "b": None}, {1: math.nan, -5: 1e300}, (1, (AT, decimal.Decimal("-0.5"))),
    ),
    (
        "", False, 127, 0, 0, -math.inf, 3.4028234663852886e38, b"", datetime.date(1, 1, 1),
        datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC), datetime.datetime(1, 1, 1),  # noqa: DTZ001
        decimal.Decimal("-0.0001"), [], [], {}, {},
        (None, (None, None)),
    ),
    (None,) * 17,
]  # fmt: skip


def test_json_lines_equal_sparks(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        schema = parse_schema(DDL)
        frame = spark.createDataFrame(ROWS, struct_type(schema))
        whole = struct(*(col(f"`{name}`") for name in schema.names))
        theirs = [
            json.loads(row.j, parse_float=str) for row in frame.select(to_json(whole).alias("j")).collect()
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    lines = JsonRows(schema).lines(OutputShape(schema).wire_rows(list(ROWS))).decode().split("\n")[:-1]
    ours = [json.loads(line, parse_float=str) for line in lines]
    assert [normal(row) for row in ours] == [normal(row) for row in theirs]


def normal(value: Any, name: str = "") -> Any:
    """Numbers with a point by their value (Java writes 1.0E300), decimals by their digits."""
    if isinstance(value, dict):
        return {key: normal(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [normal(item, name) for item in value]
    if isinstance(value, str) and name not in ("s", "price", "tags") and value != "NaN":
        try:
            return float(value)
        except ValueError:
            return value
    return value


UTC = "unix_micros(CAST(v AS timestamp))"
CASES = [*READ, *((type_, value, REFUSED) for type_, value in REFUSED)]


@pytest.mark.parametrize("type_", sorted({type_ for type_, _, _ in CASES}))
def test_spark_reads_a_value_as_the_cases_say(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    """A value that it refuses makes its line a corrupt record."""
    cases = [(value, wire) for of, value, wire in CASES if of == type_]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f'{{"n":{n},"v":{value}}}\n' for n, (value, _) in enumerate(cases)))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        read = spark.read.option("columnNameOfCorruptRecord", "bad")
        frame = read.schema(f"n int, v {type_}, bad string").json(str(file))
        shown = {"date": "unix_date(v)", "timestamp": "unix_micros(v)", "timestamp_ntz": UTC}.get(type_, "v")
        rows = frame.selectExpr("n", f"{shown} AS v", "bad").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [value for row, (value, _) in zip(rows, cases, strict=True) if row.bad] == [
        value for value, wire in cases if wire is REFUSED
    ]
    good = [(row.v, wire) for row, (_, wire) in zip(rows, cases, strict=True) if not row.bad]
    assert [str(of_spark(value)) for value, _ in good] == [str(wire) for _, wire in good]


def of_spark(value: Any) -> Any:
    """A value that Spark read, in the wire's form."""
    match value:
        case tuple():
            return tuple(map(of_spark, value))
        case list():
            return [of_spark(item) for item in value]
        case dict():
            return [(key, of_spark(item)) for key, item in value.items()]
        case bytearray():
            return bytes(value)
        case decimal.Decimal():
            return f"{value:f}"
    return value
