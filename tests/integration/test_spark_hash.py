"""Shards are chosen as Spark SQL's xxhash64 would choose them, for every type that a key may have."""

from __future__ import annotations

import datetime
import math
import random
import struct
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.routing import Router, spark_xxhash64

pytestmark = pytest.mark.integration

ROWS = 400
SHARDS = 4093
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def any_double(rng: random.Random) -> float:
    return float(struct.unpack("<d", rng.randbytes(8))[0])


def any_float(rng: random.Random) -> float:
    return float(struct.unpack("<f", rng.randbytes(4))[0])


def any_text(rng: random.Random) -> str:
    alphabet = "abcxyz 0189-_äöüßéñ中文字日本語🎉🚰\u0000\u00a0"
    return "".join(rng.choices(alphabet, k=rng.randrange(0, 70)))


def any_decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    def draw(rng: random.Random) -> Decimal:
        unscaled = rng.randrange(10 ** rng.randrange(1, digits + 1))
        return Decimal((rng.randrange(2), tuple(map(int, str(unscaled))), -scale))

    return draw


def any_integer(bits: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) >> rng.randrange(bits)


# Column type -> values that have gone wrong somewhere before, and a way to draw more.
COLUMNS: dict[str, tuple[list[Any], Callable[[random.Random], Any]]] = {
    "string": (["", "a", "ä", "中文", "🚰", "x" * 31, "x" * 32, "x" * 33, "\u0000"], any_text),
    "int": ([0, 1, -1, 2**31 - 1, -(2**31)], any_integer(32)),
    "bigint": ([0, 1, -1, 2**63 - 1, -(2**63)], any_integer(64)),
    "smallint": ([0, -1, 2**15 - 1, -(2**15)], any_integer(16)),
    "tinyint": ([0, -1, 127, -128], any_integer(8)),
    "boolean": ([True, False], lambda rng: rng.random() < 0.5),
    "double": (
        [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1.0],
        any_double,
    ),
    "float": ([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 0.1, 1e39, -1e39, -1e-60], any_float),
    "date": (
        [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(1, 1, 1), datetime.date.max],
        lambda rng: datetime.date.fromordinal(rng.randrange(1, datetime.date.max.toordinal())),
    ),
    "timestamp": (
        [_EPOCH, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)],
        lambda rng: _EPOCH + datetime.timedelta(microseconds=rng.randrange(-(2**50), 2**51)),
    ),
    "timestamp_ntz": (
        [_EPOCH.replace(tzinfo=None), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)],  # noqa: DTZ001
        lambda rng: (_EPOCH + datetime.timedelta(microseconds=rng.randrange(2**51))).replace(tzinfo=None),
    ),
    "binary": ([b"", b"\x00", bytes(32)], lambda rng: rng.randbytes(rng.randrange(70))),
    "decimal(9,2)": ([Decimal(0), Decimal("-0.01"), Decimal("9999999.99")], any_decimal(9, 2)),
    "decimal(18,0)": ([Decimal(10**18 - 1), Decimal(1 - 10**18)], any_decimal(18, 0)),
    "decimal(19,4)": (
        [Decimal(0), Decimal("-0.0001"), Decimal("12.8"), Decimal("-12.8")],
        any_decimal(19, 4),
    ),
    "decimal(38,10)": ([Decimal(128), Decimal(-128), Decimal(10**28 - 1), Decimal(1)], any_decimal(38, 10)),
}
CHAINS = (("string", "int"), ("int", "string", "double"), ("date", "decimal(38,10)", "boolean", "bigint"))


def rows_of(rng: random.Random) -> list[tuple[Any, ...]]:
    """One column a type; a tenth of the values are null."""

    def column(special: list[Any], draw: Callable[[random.Random], Any]) -> list[Any]:
        drawn = [None if rng.random() < 0.1 else draw(rng) for _ in range(ROWS - len(special) - 1)]
        return [None, *special, *drawn]

    return list(zip(*(column(*how) for how in COLUMNS.values()), strict=True))


def test_hashes_and_shards_equal_those_of_spark(spark: SparkSession) -> None:
    rng = random.Random(20_260_101)
    rows = rows_of(rng)
    types = tuple(COLUMNS)
    names = [f"c{number}" for number in range(len(types))]
    frame = spark.createDataFrame(rows, ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True)))
    keys = [(type_,) for type_ in types] + list(CHAINS) + [types]
    columns = [", ".join(names[types.index(type_)] for type_ in key) for key in keys]
    hashes = [f"xxhash64({text})" for text in columns]
    answers = frame.selectExpr(*hashes, *(f"pmod({text}, {SHARDS})" for text in hashes)).collect()

    routers = [Router(key, SHARDS) for key in keys]
    for row, answer in zip(rows, answers, strict=True):
        by_type = dict(zip(types, row, strict=True))
        for at, key in enumerate(keys):
            values = tuple(by_type[type_] for type_ in key)
            assert spark_xxhash64(values, key) == answer[at], (key, values)
            assert routers[at].route(values) == answer[len(keys) + at], (key, values)
            assert routers[at].route(values) == answer[len(keys) + at], (key, values)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_timestamp_without_a_zone_is_local_time_as_in_pyspark(
    spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        clock = [
            datetime.datetime(2024, month, 3, 2, 30, 0, month, tzinfo=datetime.UTC) for month in range(1, 13)
        ]
        naive = [(value.replace(tzinfo=None),) for value in clock]
        frame = spark.createDataFrame(naive, "at timestamp").selectExpr("xxhash64(at)")
        router = Router(["timestamp"], SHARDS)
        for value, (expected,) in zip(naive, frame.collect(), strict=True):
            assert spark_xxhash64(value, ["timestamp"]) == expected
            assert router.route(value) == expected % SHARDS
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "ddl",
    [
        "word string, total long",
        "a tinyint, b byte, c short, d smallint, e int, f integer, g bigint, h long",
        "a float, b real, c double, d boolean, e date, f timestamp, g binary",
        "a decimal, b dec(5), c numeric(20, 3), d DECIMAL(38,38)",
        "a array<map<string,array<int>>>, `b c` struct<x: int, `y``z`: struct<w: string>>",
        "a int COMMENT 'one, two', b: string",
        "order int, timestamp timestamp, map map<int,int>, `a.b` int, 1a string",
    ],
)
def test_schemas_are_read_as_spark_reads_them(spark: SparkSession, ddl: str) -> None:
    assert spark.sparkContext is not None
    schema = parse_schema(ddl)
    as_spark_reads_it = [(field.name, field.dataType) for field in StructType.fromDDL(ddl)]
    assert [(field.name, field.dataType) for field in StructType.fromDDL(schema.ddl())] == as_spark_reads_it
    assert list(schema.names) == [name for name, _ in as_spark_reads_it]


@pytest.mark.parametrize(
    "ddl", ["a text", "a datetime", "a array<>", "a map<string>", "a int b int", "a int,"]
)
def test_what_spark_refuses_is_refused(spark: SparkSession, ddl: str) -> None:
    assert spark.sparkContext is not None
    with pytest.raises(ParseException):
        StructType.fromDDL(ddl)
    with pytest.raises(InvalidSchema):
        parse_schema(ddl)
