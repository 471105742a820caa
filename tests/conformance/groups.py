"""Which processors run on which rows."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from conformance import pandas_processors as pandas
from conformance import row_processors as rows
from conformance import timed_processors as timed
from conformance.case import Case, Group, of_keys
from conformance.row_processors import PLAIN_COLUMNS, TOLD
from penstock.dataflow.plan import PANDAS, ROWS

WORDS = ("ash", "Größe", "sea", "中文", "")


def plain(key: str, number: int) -> tuple[str, int, float | None, str]:
    return key, number, None if number % 7 == 3 else number / 8, WORDS[number % len(WORDS)]


def dense(key: str, number: int) -> tuple[str, int, float, str]:
    """Without nulls: what else is in an Arrow batch decides in Spark how pandas sees a column with some."""
    return key, number, number / 8, WORDS[number % len(WORDS)]


FEW = of_keys("ash", "sea", rows=plain, counts=(4, 3))
FEW_DENSE = of_keys("ash", "sea", rows=dense, counts=(4, 3))
ONE_KEY = of_keys("sea", rows=plain, counts=(1, 2))
AT = datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)
OUTPUTS = (
    "key string, word string, day date, at timestamp, there timestamp_ntz, price decimal(10,2), raw binary, "
    "items array<bigint>, by map<string,double>, pair struct<a:int,b:string>, "
    "pairs array<struct<a:int,b:string>>"
)

ROW_STATE = Group(
    ROWS,
    PLAIN_COLUMNS,
    ("key",),
    (
        Case(rows.Totals, "key string, n bigint, sum double", FEW),
        Case(rows.Cleared, TOLD, FEW),
        Case(rows.ListEmptied, TOLD, FEW),
        Case(rows.ListPut, TOLD, FEW),
        Case(rows.ListChangedWhileRead, TOLD, FEW, in_tester=False),
        Case(rows.MapChangedWhileIterated, TOLD, FEW, in_tester=False),
        Case(rows.MapCleared, TOLD, FEW),
        Case(rows.MapOfNulls, TOLD, FEW, in_tester=False),
        Case(rows.TextsForTuples, TOLD, FEW_DENSE, in_tester=False),
        Case(rows.ManyVariables, TOLD, FEW),
        Case(rows.Decimals, TOLD, FEW, in_tester=False),
        Case(rows.NestedStructs, TOLD, FEW),
        Case(rows.Times, TOLD, FEW, in_tester=False),
        Case(rows.SmallTypes, TOLD, FEW, in_tester=False),
        Case(rows.Edges, TOLD, FEW, in_tester=False),
        Case(rows.StructKeys, TOLD, FEW),
        Case(rows.NeverNull, TOLD, FEW),
        Case(rows.AllKindsOfState, TOLD, FEW, in_tester=False),
        Case(rows.ExistsAndClear, TOLD, FEW, in_tester=False),
        Case(rows.NullsInState, TOLD, FEW, in_tester=False),
        Case(rows.IteratorsSideBySide, TOLD, FEW, in_tester=False),
        Case(rows.OneZero, TOLD, FEW, in_tester=False),
        Case(rows.DeletesWhatNeverWas, TOLD, FEW),
        Case(rows.DeletesWhatItDeclared, TOLD, FEW, in_tester=False),
        Case(rows.Large, TOLD, ONE_KEY),
        Case(rows.Ignores, "key string, n bigint, word string", FEW),
        Case(rows.Bursts, "key string, number bigint", FEW),
        Case(rows.Outputs, f"{OUTPUTS}, share float, flag boolean, small tinyint", FEW),
        Case(rows.Sessions, "key string, word string, first bigint, last bigint", FEW, in_tester=False),
    ),
)
PANDAS_STATE = Group(
    PANDAS,
    PLAIN_COLUMNS,
    ("key",),
    (
        Case(pandas.PandasTotals, "key string, n bigint, sum double", FEW_DENSE),
        Case(pandas.PandasLists, TOLD, FEW_DENSE),
        Case(pandas.PandasMaps, TOLD, FEW_DENSE, in_tester=False),
        Case(pandas.PandasStateTypes, TOLD, FEW_DENSE, in_tester=False),
        Case(pandas.PandasEdges, TOLD, FEW_DENSE, in_tester=False),
        Case(pandas.PandasManyVariables, TOLD, FEW_DENSE, in_tester=False),
        Case(pandas.PandasChunks, TOLD, of_keys("sea", rows=dense, counts=(20_001,)), in_tester=False),
        Case(pandas.PandasIgnores, TOLD, FEW_DENSE),
        Case(
            pandas.PandasOutputs, f"{OUTPUTS}, n bigint, x double, flag boolean", FEW_DENSE, in_tester=False
        ),
    ),
)

KEYS = (
    "s string, n int, x double, flag boolean, day date, at timestamp, there timestamp_ntz, "
    "price decimal(10,2), raw binary, pair struct<a:int,b:string>"
)
_KEY = (
    "k", 1, 0.5, True, AT.date(), AT, AT.replace(tzinfo=None), decimal.Decimal("1.50"), b"\x00\xff",
    {"a": 1, "b": None},
)  # fmt: skip
KEY_NAMES = ("s", "n", "x", "flag", "day", "at", "there", "price", "raw", "pair")


def with_(**given: object) -> tuple[object, ...]:
    return tuple(given.get(name, value) for name, value in zip(KEY_NAMES, _KEY, strict=True))


ALL_KEYS = [
    _KEY, _KEY, with_(x=-0.0), with_(x=0.0), with_(s=""), with_(s="é"), with_(raw=b""), with_(x=math.inf),
    with_(pair={"a": 2, "b": "b"}), with_(price=decimal.Decimal(-1)),
]  # fmt: skip
TIMER_KEYS = [key for key in ALL_KEYS if math.copysign(1, key[2]) > 0]
"""A timer does not tell -0.0 from 0.0."""
NULL_KEYS = [with_(**{name: None}) for name in KEY_NAMES] + [(None,) * len(KEY_NAMES)]
SEEN = "text string, rows bigint"
KEYS_IN_ROWS = Group(
    ROWS,
    KEYS,
    KEY_NAMES,
    (Case(rows.KeysSeen, SEEN, [ALL_KEYS, NULL_KEYS, [*ALL_KEYS, *NULL_KEYS]], in_tester=False),),
)
KEYS_IN_PANDAS = Group(
    PANDAS,
    KEYS,
    KEY_NAMES,
    (Case(pandas.PandasKeysSeen, SEEN, [ALL_KEYS, ALL_KEYS], in_tester=False),),
)

TYPES = (
    "key string, s string, t tinyint, i int, l bigint, f float, d double, flag boolean, raw binary, "
    "day date, at timestamp, there timestamp_ntz, price decimal(10,2), items array<int>, "
    "words array<string>, prices array<decimal(4,1)>, times array<timestamp>, by map<string,int>, "
    "pair struct<a:int,b:string>, deep struct<x:double,items:array<bigint>,by:map<string,timestamp>>, "
    "pairs array<struct<a:int,b:double>>, lists array<array<int>>"
)
VALUES = (
    "x", -128, 5, 1 << 40, 0.5, 2.25, True, b"\x00\xff", AT.date(), AT, AT.replace(tzinfo=None),
    decimal.Decimal("1.50"), [1, 2], ["a", None], [decimal.Decimal("0.5")], [AT], [("a", 1)],
    {"a": 1, "b": None}, {"x": 0.5, "items": [1], "by": [("k", AT)]}, [{"a": None, "b": 0.5}], [[1], [2, 3]],
)  # fmt: skip
NULLS = (None,) * len(VALUES)
HOLES = (
    *NULLS[:12],
    [None, 2],
    [None],
    [None],
    [None],
    [("a", None)],
    {"a": None, "b": None},
    None,
    [None],
    [None],
)
TYPE_BATCHES = [[("k", *VALUES), ("k", *VALUES)], [("k", *NULLS)], [("k", *VALUES), ("k", *HOLES)]]
TYPES_IN_ROWS = Group(ROWS, TYPES, ("key",), (Case(rows.TypesSeen, SEEN, TYPE_BATCHES, in_tester=False),))
TYPES_IN_PANDAS = Group(
    PANDAS, TYPES, ("key",), (Case(pandas.PandasTypesSeen, SEEN, TYPE_BATCHES, in_tester=False),)
)

START_MS = 1_800_000_000_000
TIMES_MS = tuple(START_MS + after for after in (0, 100, 199, 200, 350, 1000))
AT_TIMES = of_keys("ash", "sea", rows=dense, counts=(2, 1, 3, 1, 1, 1))


def with_timers(form: str, base: type[timed.Timed]) -> Group:
    """All timed processors in one form."""
    found = [
        Case(timed.in_form(processor, base), TOLD, AT_TIMES, in_tester=processor in timed.BOTH_FORMS)
        for processor in (*timed.BOTH_FORMS, *timed.BOTH_FORMS_EXPIRING)
    ]
    return Group(form, PLAIN_COLUMNS, ("key",), tuple(found), TIMES_MS)


def timers_of_keys(form: str, processor: type[StatefulProcessor], keys: Sequence[tuple[Any, ...]]) -> Group:
    batches = [keys, keys[:2], keys, keys[:1]]
    cases = (Case(processor, SEEN, batches, in_tester=False),)
    return Group(form, KEYS, KEY_NAMES, cases, TIMES_MS[:2] + TIMES_MS[3:5])


GROUPS = (
    ROW_STATE,
    PANDAS_STATE,
    KEYS_IN_ROWS,
    KEYS_IN_PANDAS,
    TYPES_IN_ROWS,
    TYPES_IN_PANDAS,
    with_timers(ROWS, timed.InRows),
    with_timers(PANDAS, timed.InPandas),
    timers_of_keys(ROWS, timed.TimersOfKeys, [*TIMER_KEYS, with_(x=math.nan), *NULL_KEYS]),
    timers_of_keys(PANDAS, timed.PandasTimersOfKeys, TIMER_KEYS),
)
CHANGED = tuple(
    Group(ROWS, PLAIN_COLUMNS, ("key",), (Case(processor, TOLD, FEW[:1]),))
    for processor in (rows.BeforeChange, rows.AfterChange)
)
"""One after the other on the same state."""
