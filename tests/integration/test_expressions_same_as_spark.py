"""Expressions of `filter` and `select` over edge values: types, values and errors are Spark's."""

from __future__ import annotations

import datetime
import math
import os
import random
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unicodedata import category

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.expression_tree import InvalidExpression
from penstock.dataflow.expressions.column_step import read_select
from penstock_worker.expressions.column_step import ColumnStepWork
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.rows import OutputShape
from penstock_worker.values.spark_types import struct_type

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

UTC = datetime.UTC
DAY = datetime.date
MOMENT = datetime.datetime
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "b": ("boolean", [True, None, False]),
    "t": ("tinyint", [0, 127, -128, None, 1, -1, 7]),
    "s": ("smallint", [3, 32767, -32768, None, 0]),
    "i": ("int", [1, 0, 2**31 - 1, -(2**31), None, -7, 5, 100]),
    "l": ("bigint", [2, 0, 2**63 - 1, -(2**63), None, -1, 3, 2**53 + 1, 10**15]),
    "f": ("float", [1.5, 0.0, -0.0, math.nan, math.inf, None, 3.4028234663852886e38, 1e-45, -2.25]),
    "d": (
        "double",
        [
            0.5,
            0.0,
            -0.0,
            math.nan,
            math.inf,
            -math.inf,
            None,
            1e308,
            5e-324,
            2.0**63,
            -(2.0**63),
            -1.5,
            127.9,
            1e15,
        ],
    ),
    "m": (
        "decimal(10,2)",
        [
            Decimal("1.25"),
            Decimal("0.00"),
            Decimal("99999999.99"),
            Decimal("-99999999.99"),
            None,
            Decimal("-0.05"),
        ],
    ),
    "w": (
        "decimal(38,18)",
        [
            Decimal("0.000000000000000001"),
            Decimal("99999999999999999999.999999999999999999"),
            None,
            Decimal("-2.500000000000000000"),
            Decimal("12345678901.123456789012345678"),
            Decimal("12345678901234567890.123456789012345678"),
            Decimal("-98765432109876543210.987654321098765432"),
        ],
    ),
    "c": (
        "string",
        ["AT", "", None, " at ", "straße", "ΣΑΣ", "a%b_c", "İ", "x\ny", "日本語", "😀 smile", "\tTab", "at"],
    ),
    "n": (
        "string",
        [
            "5",
            " 7 ",
            "+3",
            "-128",
            "1.5",
            None,
            "1e3",
            "x",
            "",
            "NaN",
            "-Infinity",
            "9223372036854775808",
            "0x1p3",
            "true",
            "N",
            "007",
            "1d",
            ".5",
            "5.",
            "\x7f4",
            "１",
            "1_0",
            "INF",
            "-nan",
            "+inf",
        ],
    ),
    "y": ("binary", [b"", b"\x00\xff", None, b"AT"]),
    "a": (
        "date",
        [DAY(1970, 1, 1), DAY(1, 1, 1), DAY(9999, 12, 31), None, DAY(2024, 2, 29), DAY(1582, 10, 10)],
    ),
    "at": (
        "timestamp",
        [
            MOMENT(1970, 1, 1, tzinfo=UTC),
            MOMENT(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            None,
            MOMENT(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            MOMENT(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC),
        ],
    ),
    "z": (
        "timestamp_ntz",
        [
            MOMENT(1970, 1, 1),
            MOMENT(1969, 12, 31, 23, 59, 59, 1),
            None,
            MOMENT(1, 1, 1),
            MOMENT(2024, 12, 31, 1, 2, 3),
        ],
    ),
}
ROWS = 50
TOGETHER = 60
"""Expressions of one query."""
NUMBERS = ("t", "s", "i", "l", "f", "d", "m", "w", "2", "3L", "1.5", "2e0", "0", "-128Y", "1.5F", "NULL")
WHOLE = ("t", "s", "i", "l", "7", "-2")
TYPES = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(10,2)",
    "decimal(38,4)",
    "boolean",
)
EXPRESSIONS = [
    # Numbers meet numbers.
    *(f"{x} {sign} {y}" for sign in "+-*/%" for x in NUMBERS for y in NUMBERS),
    *(f"{x} {sign} {y}" for sign in ("=", "<", ">=", "<=>", "!=") for x in NUMBERS for y in NUMBERS),
    *(f"{x} div {y}" for x in WHOLE for y in WHOLE),
    *(f"-{x}" for x in NUMBERS),
    *(
        f"{name}({x})"
        for name in ("abs", "ceil", "floor", "sqrt", "isnan", "isnull", "isnotnull")
        for x in NUMBERS
    ),
    "mod(l, 3)",
    "-2147483648",
    "2147483648",
    "- (-128Y)",
    "-9223372036854775808",
    "1.5BD",
    "100.00",
    "0.05",
    "+i",
    "i - -1",
    "2 + 3 * 4 - 5 % 3",
    "7 div 2 * 2",
    "99999999999999999999",
    "1e-3",
    "1e400 > d",
    # Casts.
    *(
        f"CAST({x} AS {type_})"
        for x in (*NUMBERS, "b", "n", "c", "a", "z", "y")
        for type_ in (*TYPES, "string")
    ),
    *(
        f"CAST({x} AS {type_})"
        for x in ("a", "z", "c", "n", "NULL")
        for type_ in ("date", "timestamp_ntz", "binary")
    ),
    "i::bigint",
    "m::decimal(12,1)",
    "w::decimal(20,0) + 1",
    "CAST(CAST(m AS double) AS float)",
    # Logic with nulls, and what is not worked out.
    *(
        f"{x} {word} {y}"
        for word in ("AND", "OR")
        for x in ("b", "i > 0", "NULL", "true")
        for y in ("b", "d < 1", "NULL")
    ),
    "NOT b",
    "!b AND NOT i = 1",
    "b IS TRUE",
    "b IS NOT FALSE",
    "b = (i > 3)",
    "NOT NULL",
    "i <> 0 AND 10 / i > 1",
    "i = 0 OR 10 % i = 0",
    "i = 0 OR i IS NULL OR 10 div i > 0",
    "CASE WHEN i = 0 THEN NULL ELSE 10 / i END",
    "IF(i > 1000, 0, i * 1000)",
    "coalesce(l, i + 1)",
    "nvl(t, 1 / t)",
    "CASE WHEN i > 5 THEN 'big' WHEN i > 0 THEN 'small' END",
    "CASE i WHEN 1 THEN 1L WHEN 0 THEN 1.5 ELSE d END",
    "CASE WHEN b THEN m ELSE 0 END",
    "CASE WHEN NULL THEN 1 ELSE 2 END",
    "IF(b, t, l)",
    "IF(b, f, i)",
    "coalesce(m, 0)",
    "coalesce(NULL, m, w, i)",
    "ifnull(c, 'none')",
    "nullif(i, 0)",
    "nullif(i, 1.0)",
    "nullif(c, '')",
    "coalesce(f, d)",
    "coalesce(f, l)",
    "coalesce(a, DATE '2020-01-01')",
    "if(b, NULL, z)",
    "coalesce(NULL, i)",
    # Comparisons of other types.
    *(f"{x} {sign} {x}" for sign in ("=", "<", ">=", "<=>") for x in ("c", "a", "at", "z", "y", "b")),
    "c < 'b'",
    "c = ''",
    "c <=> NULL",
    "NULL <=> NULL",
    "a >= DATE '1970-01-01'",
    "at < TIMESTAMP '2000-01-01 00:00:00Z'",
    "at >= TIMESTAMP '1970-01-01 01:00:00+01:00'",
    "z = TIMESTAMP_NTZ '1970-01-01 00:00:00'",
    "c IS DISTINCT FROM 'AT'",
    "i BETWEEN 0 AND 5",
    "i NOT BETWEEN -7 AND 1.5",
    "c BETWEEN 'A' AND 'b'",
    "d BETWEEN 0 AND 1",
    "i IN (1, 2, 5)",
    "i NOT IN (1, NULL)",
    "d IN (0, 1.5e0, CAST('NaN' AS double))",
    "m IN (1.25, 0)",
    "c IN ('AT', 'at')",
    "l IN (t, i)",
    "t IN (1, 3000000000)",
    "m IN (l)",
    "i = 1 = b",
    # Texts.
    "length(c)",
    "length(y)",
    "char_length(c)",
    "upper(c)",
    "lower(c)",
    "ucase(c)",
    "trim(c)",
    "ltrim(c)",
    "rtrim(c)",
    "c || '-' || n",
    "concat(c, n, 'x')",
    "concat(c)",
    "replace(c, 'a', 'bb')",
    "replace(c, '')",
    "replace(c, 'A')",
    *(f"substring(c, {p}, {n})" for p in (-100, -3, -1, 0, 1, 2, 100) for n in (-1, 0, 1, 2, 3, 2147483647)),
    *(f"substr(c, {p})" for p in (-2, 0, 1, 3, -2147483648, 2147483647)),
    "left(c, 2)",
    "left(c, -1)",
    "contains(c, 't')",
    "startswith(c, 'a')",
    "endswith(c, ' ')",
    "contains(c, '')",
    *(
        f"c LIKE '{p}'"
        for p in (
            "a%",
            "%b_c",
            "A_",
            "__",
            "",
            "%",
            "_",
            "%y",
            "x_y",
            "a%b%",
            "%語",
            "日__",
            "😀%",
            ".*",
            "(%",
        )
    ),
    "c NOT LIKE '%t'",
    'c = "AT"',
    # Times.
    *(
        f"{name}({x})"
        for name in ("year", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "quarter")
        for x in "az"
    ),
    "hour(z)",
    "minute(z)",
    "second(z)",
    "date_add(a, 1)",
    "date_sub(a, t)",
    "date_add(a, s)",
    "dateadd(a, -1)",
    "datediff(a, DATE '2000-02-29')",
    "datediff(DATE '9999-12-31', a)",
    "unix_micros(at)",
    "unix_millis(at)",
    "unix_seconds(at)",
    "timestamp_micros(i)",
    "timestamp_millis(i)",
    "timestamp_seconds(i)",
    "timestamp_seconds(l)",
    # As they come.
    "c",
    "B",
    "m",
    "w",
    "`at`",
    "NULL IS NULL",
    "'text'",
    "true",
    "DATE '2024-02-29'",
]
REFUSED = {
    "m / 3": "/ of decimals",
    "CAST(d AS string)": "CAST from double to string",
    "CAST(at AS date)": "time zone",
    "i + '5'": "cast it",
    "at > '2020-01-01'": "cast one of them",
    "upper(i)": "takes string",
    "rand() > 0.5": "function rand",
    "c RLIKE 'a+'": "Java's patterns",
    "now()": "function now",
    "sum(i)": "function sum",
    "year(at)": "takes date or timestamp_ntz",
    "substring(c, i)": "no columns",
}


def table() -> list[tuple[Any, ...]]:
    """Rows in which values of all columns meet in many ways."""
    names = list(COLUMNS)
    return [
        tuple(
            COLUMNS[name][1][(row * (1 + 2 * at % 7) + at) % len(COLUMNS[name][1])]
            for at, name in enumerate(names)
        )
        for row in range(ROWS)
    ]


SCHEMA = parse_schema(", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items()))


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    numbered = [(*row, number) for number, row in enumerate(table())]
    frame = (
        spark.createDataFrame(numbered, struct_type(parse_schema(f"{SCHEMA.ddl()}, `#` int")))
        .coalesce(1)
        .cache()
    )
    frame.count()
    return frame


def ours(expression: str, wire: list[Any]) -> tuple[str, list[Any]]:
    """The type, and of each row its value, or UserCodeError."""
    step = read_select([f"{expression} AS x"], SCHEMA)
    work = ColumnStepWork(step, SCHEMA, "step")
    try:
        return step.output.columns[0].type, [row[0] for row in work.work(wire, [0] * len(wire))[0]]
    except UserCodeError:
        pass
    found: list[Any] = []
    for row in wire:
        try:
            found.append(work.work([row], [0])[0][0][0])
        except UserCodeError as raised:
            found.append(raised)
    return step.output.columns[0].type, found


@dataclass(frozen=True)
class Ours:
    expression: str
    type: str
    values: list[Any]

    @property
    def fine(self) -> list[int]:
        return [n for n, value in enumerate(self.values) if not isinstance(value, UserCodeError)]

    @property
    def raising(self) -> list[int]:
        return [n for n, value in enumerate(self.values) if isinstance(value, UserCodeError)]

    def where_fine(self, name: str) -> str:
        """What Spark works out for the rows that ours gives a value for, and for no others."""
        if not self.raising:
            return f"{self.expression} AS {name}"
        fine = ", ".join(map(str, self.fine)) or "NULL"
        return f"CASE WHEN `#` IN ({fine}) THEN {self.expression} END AS {name}"


def differences(rows: DataFrame, some: list[Ours]) -> list[str]:
    """How Spark's types and values differ from these."""
    try:
        frame = rows.orderBy("`#`").selectExpr(*(one.where_fine(f"x{n}") for n, one in enumerate(some)))
        ddl = ", ".join(
            f"x{n} {field.dataType.simpleString()}" for n, field in enumerate(frame.schema.fields)
        )
        theirs = OutputShape(parse_schema(ddl)).wire_rows(frame.collect())
    except (PySparkException, Py4JJavaError) as error:
        if len(some) > 1:
            half = len(some) // 2
            return [*differences(rows, some[:half]), *differences(rows, some[half:])]
        return [f"{some[0].expression}: ours goes, Spark raises {str(error)[:200]!r}"]
    wrong = []
    for n, one in enumerate(some):
        if (type_ := frame.schema.fields[n].dataType.simpleString()) != one.type:
            wrong.append(f"{one.expression}: ours is {one.type}, Spark's {type_}")
        differing = [number for number in one.fine if repr(one.values[number]) != repr(theirs[number][n])]
        for number in differing[:1]:
            values = f"ours {one.values[number]!r}, Spark's {theirs[number][n]!r}"
            wrong.append(f"{one.expression} on {table()[number]}: {values}")
    return wrong


def test_every_expression_that_is_taken_gives_what_spark_gives(rows: DataFrame) -> None:
    wire = OutputShape(SCHEMA).wire_rows(table())
    taken = []
    for expression in EXPRESSIONS:
        with suppress(InvalidExpression):
            taken.append(Ours(expression, *ours(expression, wire)))
    assert len(taken) > 2500
    wrong = [
        line
        for start in range(0, len(taken), TOGETHER)
        for line in differences(rows, taken[start : start + TOGETHER])
    ]
    raising = [(one, number) for one in taken for number in one.raising]
    for one, number in random.Random(51).sample(
        raising, min(len(raising), int(os.environ.get("PENSTOCK_RAISING", "120")))
    ):
        try:
            got = (
                rows.where(spark_functions.col("`#`") == number)
                .selectExpr(f"{one.expression} AS x")
                .collect()
            )
        except (PySparkException, Py4JJavaError, ValueError):
            continue  # ValueError: a date that Spark has and Python has not, such as one of the year 10000
        wrong.append(
            f"{one.expression} on {table()[number]}: ours raises {one.values[number]}, Spark gives {got}"
        )
    assert not wrong, "\n".join(wrong)


def test_what_is_not_promised_is_refused_with_what_would_do(rows: DataFrame) -> None:
    for expression, why in REFUSED.items():
        with pytest.raises(InvalidExpression, match=why):
            read_select([f"{expression} AS x"], SCHEMA)


@pytest.mark.slow(held_by="test_every_expression_that_is_taken_gives_what_spark_gives")
def test_letters_of_all_of_unicode_are_made_great_and_small_as_by_spark(spark: SparkSession) -> None:
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    schema = parse_schema("c string")
    for function in ("upper", "lower"):
        step = read_select([f"{function}(c) AS x"], schema)
        found, _ = ColumnStepWork(step, schema, "step").work(
            [(letter,) for letter in letters], [0] * len(letters)
        )
        frame = spark.createDataFrame([(letter,) for letter in letters], "c string").coalesce(1)
        theirs = [row[0] for row in frame.selectExpr(f"{function}(c)").collect()]
        java = spark.sparkContext._jvm.java.lang.Character
        for letter, (mine, *_), other in zip(letters, found, theirs, strict=True):
            if mine != other:
                # Python and Java each have Unicode's letters of their own year.
                pair = {letter, mine, other}
                assert any(java.getType(ord(one)) == 0 or category(one) == "Cn" for one in pair), pair
