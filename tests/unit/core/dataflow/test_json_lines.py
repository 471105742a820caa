"""JSON lines as rows: each type as Spark reads it, and for what is refused the column with what was found.

`scenes.json_cases` has the answers of Spark 4.3; an integration test asks it again.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_lines import (
    BadLine,
    JsonLines,
    _microseconds,
    _unusual_microseconds,
    is_blank,
    unreadable,
)
from penstock.dataflow.json_rows import JsonRows
from scenes.json_cases import READ, REFUSED, REFUSED_HERE_ALONE

ORDERS = "user string, amount bigint, items array<struct<name:string,price:double>>, tags map<string,int>"


def read(ddl: str, *lines: str) -> list[tuple[Any, ...]]:
    return JsonLines(parse_schema(ddl)).rows(lines)


def told(ddl: str, line: str) -> str:
    with pytest.raises(BadLine) as bad:
        read(ddl, line)
    return str(bad.value)


def same(one: object, other: object) -> bool:
    nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return nan or (one == other and type(one) is type(other))


@pytest.mark.parametrize(("type_", "value", "wire"), READ)
def test_a_value_is_read_as_spark_reads_it(type_: str, value: str, wire: object) -> None:
    line = f'{{"v": {value} }}'
    lines = JsonLines(parse_schema(f"v {type_}"))
    assert same(lines.rows([line])[0][0], wire)
    assert same(lines._by_value(0, line)[0], wire)  # the slow way takes what the quick one takes


@pytest.mark.parametrize(("type_", "value"), [*REFUSED, *REFUSED_HERE_ALONE])
def test_a_value_that_is_not_of_its_type_is_refused_with_its_column(type_: str, value: str) -> None:
    assert told(f"ok string, v {type_}", f'{{"v": {value}}}').startswith((", column v", ": is no JSON"))


def test_fields_are_found_by_name_and_missing_ones_are_null() -> None:
    ann = '{"tags":{"x":1,"y":null},"new":[1,{}],"user":"ann"}'
    rows = read(ORDERS, ann, "{}", '{"USER":"x","amount":null}')
    assert rows == [("ann", None, None, [("x", 1), ("y", None)]), (None,) * 4, (None,) * 4]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert read("v int", '\ufeff{"v":1}') == [(1,)]


def test_a_field_that_stands_twice_counts_as_it_stands_last() -> None:
    assert read("v int", '{"v":1,"v":2}') == [(2,)]


def test_the_place_of_a_value_inside_others_is_named() -> None:
    line = '{"items":[{"price":1},null,{"price":"x"}]}'
    assert told(ORDERS, line) == (
        ', column items[2].price: expects double (a number, "NaN", "Infinity" or "-Infinity"), found "x"'
    )
    assert told(ORDERS, '{"tags":{"a b":1.5}}') == ", column tags['a b']: expects int, found 1.5"
    assert told(ORDERS, '{"items":{}}') == (
        ", column items: expects array<struct<name:string,price:double>>, found {}"
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("[1, 2]", ": expects a JSON object, found [1, 2]"),
        ('  "x"', ': expects a JSON object, found "x"'),
        ("null", ": expects a JSON object, found null"),
        ('{"user": "a', ": is no JSON (Input data was truncated): "),
        ('{"user":"a"} {"user":"b"}', ": is no JSON (trailing characters (byte 14)): "),
        ("{'user':'a'}", ": is no JSON ("),
        ('{"amount": NaN}', ": is no JSON ("),
        ('{"x":' + "[" * 20_000, ": is no JSON (it is nested too deeply): "),
    ],
)
def test_a_line_that_is_no_object_says_what_it_is(line: str, text: str) -> None:
    assert told(ORDERS, line).startswith(text)


def test_what_was_found_is_cut_where_it_is_long() -> None:
    assert len(told("v int", '{"v": "' + "x" * 1000 + '"}')) < 150


def test_the_first_bad_line_of_several_is_named() -> None:
    with pytest.raises(BadLine) as bad:
        read("v int", '{"v":1}', '{"v":2}', '{"v":true}', "[]")
    assert bad.value.index == 2


def test_a_blank_line_is_one_of_json_s_white_space_alone() -> None:
    assert [is_blank(line) for line in ("", " \t ", "\r", "x", "\u00a0")] == [True, True, True, False, False]


def test_a_schema_whose_maps_have_other_keys_than_text_cannot_be_read() -> None:
    assert unreadable(parse_schema(ORDERS)) is None
    deep = parse_schema("a int, b array<struct<c:map<string,map<int,string>>>>")
    assert unreadable(deep) == "column b: map<int,string> cannot be read from JSON, whose keys are text"


digits = st.integers(0, 99).map("{:02}".format)
usual_timestamps = st.builds(
    "{:04}-{}-{}{}{}:{}:{}{}{}".format,
    st.sampled_from([0, 1, 1969, 2024, 9999]), st.sampled_from(["00", "01", "02", "12", "13"]),
    st.sampled_from(["00", "01", "29", "31", "32"]), st.sampled_from(["T", " "]),
    st.sampled_from(["00", "23", "24"]), digits, digits,
    st.sampled_from(["", ".1", ".123456", ".1234567"]),
    st.sampled_from(["", "Z", "+01:00", "-17:59", "+18:00", "+18:01", "-23:00", "+00:60"]),
)  # fmt: skip


@given(usual_timestamps)
@example("0001-01-01T00:00:00+01:00")
@example("9999-12-31T23:59:59-01:00")
def test_the_usual_form_of_a_timestamp_is_read_as_all_are(text: str) -> None:
    assert _microseconds(text) == _unusual_microseconds(text)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
maybe = st.one_of
values = st.tuples(
    maybe(st.none(), texts),
    maybe(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)),
    maybe(st.none(), st.floats(allow_nan=False)),
    maybe(st.none(), st.floats(width=32, allow_nan=False)),
    maybe(st.none(), st.booleans()),
    maybe(st.none(), st.integers(-719162, 2932896)),
    maybe(st.none(), st.integers(-62135596800000000, 253402300799999999)),
    maybe(st.none(), st.binary(max_size=6)),
    maybe(st.none(), st.decimals(-99999, 99999, places=2).map(lambda number: f"{number or abs(number):f}")),
    maybe(st.none(), st.lists(maybe(st.none(), st.tuples(texts, st.integers(-8, 8))), max_size=3)),
    maybe(st.none(), st.dictionaries(texts, st.integers(-8, 8), max_size=3).map(lambda d: list(d.items()))),
    maybe(st.none(), st.integers(-62135596800000000, 253402300799999999)),
)
EVERYTHING = parse_schema(
    "s string, l long, d double, f float, b boolean, day date, at timestamp, raw binary, m decimal(7,2), "
    "a array<struct<x:string,y:int>>, o map<string,int>, there timestamp_ntz"
)


@given(st.lists(values, max_size=4))
def test_what_a_sink_writes_is_read_back(rows: list[tuple[Any, ...]]) -> None:
    written = [JsonRows(EVERYTHING).lines([row]).decode() for row in rows]
    assert JsonLines(EVERYTHING).rows(written) == rows
    assert [JsonLines(EVERYTHING)._by_value(0, line) for line in written] == rows


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(["x", "y"]), inner),
    max_leaves=6,
)
objects = st.fixed_dictionaries({}, optional=dict.fromkeys([c.name for c in EVERYTHING.columns], json_values))


@given(objects)
def test_the_quick_and_the_careful_way_say_the_same_of_every_object(found: dict[str, Any]) -> None:
    lines, line = JsonLines(EVERYTHING), json.dumps(found)
    try:
        careful = lines._by_value(0, line)
    except BadLine:
        with pytest.raises(BadLine, match=r"column .* expects .* found"):
            lines.rows([line])
    else:
        assert lines.rows([line]) == [careful]
