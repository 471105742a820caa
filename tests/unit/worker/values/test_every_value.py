"""Whatever is written can be read: every value of user code is refused with a sentence where it is written,
or it travels, routes, comes back as what it was, and prints as JSON. In rows and in state."""

# ruff: noqa: DTZ001, DTZ901, PT017 - times without a zone are cases too; both ends of a try are right
from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.connectors.files import JsonlSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.plan import Fanout, KeyedEdge
from penstock.dataflow.routing import Router, routable
from penstock.dataflow.schema import Schema
from penstock.dataflow.wire_keys import routing_keys
from penstock.store.codec import decode_batch, encode_batch
from penstock.store.port import Bounds
from penstock_worker.outputs.output_batch import OutputBatch, OutputRefused
from penstock_worker.stages.keyed_part import key_getter
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.state.encoding import key_packer
from penstock_worker.state.shapes import StateMisuse, StateShape
from penstock_worker.values.held import ONE_ROW
from penstock_worker.values.rows import OutputShape, RowMismatch, RowReader, key_reader

SIMPLE = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary", "date",
    "timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(38,0)", "decimal(38,38)",
)  # fmt: skip
EAST = datetime.timezone(datetime.timedelta(hours=12))
WEST = datetime.timezone(datetime.timedelta(hours=-12))


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


HOSTILE = st.sampled_from(
    [
        *(pd.NaT, pd.NA, pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01", tz="Europe/Berlin")),
        *(pd.Timestamp.max, pd.Timestamp.min, np.datetime64("2024-01-01"), np.datetime64("NaT")),
        *(datetime.datetime.max.replace(tzinfo=WEST), datetime.datetime.min.replace(tzinfo=EAST)),
        *(datetime.datetime.max, datetime.datetime.min, datetime.datetime(2020, 1, 1)),
        *(datetime.date.max, datetime.date.min),
        *("\ud83d", "a\udc00", Text("x"), Text("\ud83d"), np.str_("x"), np.str_("\ud83d"), Colour.RED),
        *("\x00", "\u2028"),
        *(Number(3), Level.HIGH, np.int8(-1), np.uint64(1 << 63), 1 << 63, -(1 << 63), 10**400),
        *(True, np.bool_(0)),
        *(4.0, 4.5, -0.0, math.nan, math.inf, -math.inf, 1e39),
        *(np.float32(1.1), np.float64("nan"), np.float16(2)),
        *map(decimal.Decimal, ("NaN", "sNaN", "Infinity", "-0.00", "0E+999999", "1E+999999", "1E-999999")),
        *(decimal.Decimal(4), decimal.Decimal("1.005"), Fraction(1, 3), 1j),
        *(b"\xff", bytearray(b"x"), memoryview(b"xyz")[::2], np.bytes_(b"q"), np.array([1, 2])),
        *(object(), range(3)),
    ]
)
ANYTHING = st.one_of(
    HOSTILE,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=[])),
    st.binary(),
    st.decimals(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.timezones() | st.just(WEST)),
)
"""Values that user code may give; most are of no type of a column's."""


def types(depth: int = 2) -> st.SearchStrategy[str]:
    simple = st.sampled_from(SIMPLE)
    if not depth:
        return simple
    inner = types(depth - 1)
    return st.one_of(
        simple,
        inner.map(lambda type_: f"array<{type_}>"),
        st.tuples(simple, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda found: f"struct<{','.join(f'f{n}:{type_}' for n, type_ in enumerate(found))}>"
        ),
    )


def value_for(type_: str, draw: Any) -> Any:
    """A value of about that shape, with anything in it."""
    if type_.startswith("array<"):
        return [value_for(type_[6:-1], draw) for _ in range(draw(st.integers(0, 2)))]
    if type_.startswith("map<"):
        key, _, value = _cut(type_[4:-1])
        return [(value_for(key, draw), value_for(value, draw)) for _ in range(draw(st.integers(0, 2)))]
    if type_.startswith("struct<"):
        inner, fields = type_[7:-1], {}
        while inner:
            name, _, rest = inner.partition(":")
            field, _, inner = _cut(rest)
            fields[name] = value_for(field, draw)
        return fields
    likely = {
        "string": st.text(st.characters(exclude_categories=[])),
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "binary": st.binary(),
        "date": st.dates(),
        "timestamp": st.datetimes(timezones=st.none() | st.timezones()),
        "timestamp_ntz": st.datetimes(timezones=st.none() | st.timezones()),
    }.get(type_, st.decimals() if type_.startswith("decimal") else st.integers())
    return draw(st.one_of(likely, likely, likely, ANYTHING))


def _cut(text: str) -> tuple[str, str, str]:
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            return text[:at], ",", text[at + 1 :]
    return text, "", ""


@st.composite
def typed(draw: Any) -> tuple[str, Any]:
    type_ = draw(types())
    return type_, value_for(type_, draw)


def same(one: Any, other: Any) -> bool:
    """Equal, NaN and itself too."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return same(list(one.items()), list(other.items()))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def written(schema: Schema, value: Any) -> bytes | None:
    """The value's row in an entry; None where it was refused by a sentence that names column and row."""
    try:
        rows = OutputShape(schema).wire_rows([(value,)])
        into = OutputBatch(Bounds(), "mid/0", ONE_ROW)
        FanoutRunner(Fanout(schema, (), (JsonlSink("out", "out"),), ()), None).feed(rows, [1], into)  # type: ignore[arg-type]  # no step
        (output,) = into.drain()
    except RowMismatch as refused:
        assert "'v'" in str(refused)
        str(refused).encode()
        return None
    except OutputRefused as refused:
        assert "column 'v' (1 of 1)" in str(refused)
        assert "the row is" in str(refused)
        str(refused).encode()
        return None
    return output.payload


@given(typed())
@example(("timestamp", pd.NaT))
@example(("timestamp", datetime.datetime.max.replace(tzinfo=WEST)))
@example(("string", "\ud83d"))
@example(("string", np.str_("x")))
@example(("double", decimal.Decimal("sNaN")))
@example(("decimal(10,2)", decimal.Decimal("0E+99")))
@example(("map<string,string>", [("\ud83d", "x")]))
def test_a_value_in_a_row_is_refused_or_read_back_routed_and_printed(case: tuple[str, Any]) -> None:
    type_, value = case
    schema = parse_schema(f"v {type_}")
    payload = written(schema, value)
    if payload is None:
        return
    (wire_row,) = rows = decode_batch(payload).rows
    (row,) = RowReader(schema).rows(rows)
    again = written(schema, row[0])
    assert again is not None
    assert same(decode_batch(again).rows[0], wire_row)
    (back,) = RowReader(schema).rows(decode_batch(again).rows)
    assert same(back[0], row[0])
    json.loads(JsonRows(schema).lines(rows))
    if routable(type_):
        router = Router([type_], 64)
        (key,) = routing_keys([0], [type_])(rows)
        assert 0 <= router.route(key) < 64
        group = key_getter([0], [type_])(wire_row)
        hash(group)
        key_packer([type_])(group)
        if (read := key_reader([type_])) is not None:
            assert same(read(group)[0], row[0]) or "float" in type_ or "double" in type_


@given(typed())
@example(("timestamp", pd.NaT))
@example(("string", "\ud83d"))
@example(("string", np.str_("x")))
@example(("map<string,string>", [("\ud83d", "x")]))
def test_a_value_in_state_is_refused_or_read_back(case: tuple[str, Any]) -> None:
    type_, value = case
    try:
        shape = StateShape("state 'v'", parse_schema(f"v {type_}"))
        raw = shape.packed((value,))
    except StateMisuse as refused:
        assert "state 'v'" in str(refused)
        str(refused).encode()
        return
    (kept,) = shape.values(raw)
    assert same(shape.values(shape.packed((kept,)))[0], kept)


@pytest.mark.parametrize("value", ["\ud83d", Text("\ud83d"), np.str_("a\udc00")])
def test_a_key_that_is_no_unicode_is_refused_by_row_and_column(value: Any) -> None:
    schema = parse_schema("n bigint, word string")
    runner = FanoutRunner(Fanout(schema, (), (), (KeyedEdge("count", (1,), 4),)), None)  # type: ignore[arg-type]  # no step
    rows = OutputShape(schema).wire_rows([(1, "good"), (2, value)])
    with pytest.raises(OutputRefused) as refused:
        runner.feed(rows, [1, 1], OutputBatch(Bounds(), "mid/0", ONE_ROW))
    assert "a row for count: column 'word' (2 of 2) holds" in str(refused.value)
    assert "no Unicode" in str(refused.value)
    assert "the row is tuple (2, " in str(refused.value)


@pytest.mark.parametrize(
    "microseconds",
    [math.nan, 253402343999999999, -62135640000000000, 1 << 62],
    ids=["NaT", "9999", "0", "far"],
)
def test_a_time_that_nothing_can_read_is_null_in_entries_from_before_it_was_refused(
    microseconds: Any,
) -> None:
    schema = parse_schema("word string, at timestamp, times array<timestamp>")
    rows = decode_batch(encode_batch([1], [("a", microseconds, [microseconds])])).rows
    assert next(RowReader(schema).rows(rows)).asDict() == {"word": "a", "at": None, "times": [None]}
    assert json.loads(JsonRows(schema).lines(rows)) == {"word": "a", "times": [None]}
