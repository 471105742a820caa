"""JSON lines: the form of Spark's to_json, from wire values."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.schema import Column, Schema


def line(ddl: str, *values: Any) -> str:
    return JsonRows(parse_schema(ddl)).lines([values]).decode()


def of_type(type_: str, value: Any) -> str:
    """The JSON of one value."""
    text = line(f"c {type_}", value)
    assert text.startswith('{"c":')
    assert text.endswith("}\n")
    return text[5:-2]


@pytest.mark.parametrize(
    ("type_", "wire", "written"),
    [
        ("string", 'é"\n/<', '"é\\"\\n/<"'),
        ("bigint", -(1 << 63), "-9223372036854775808"),
        ("boolean", True, "true"),
        ("binary", b"\x00\xffA", '"AP9B"'),
        ("date", 19756, '"2024-02-03"'),
        ("date", -719162, '"0001-01-01"'),
        ("timestamp", 1706933106000000, '"2024-02-03T04:05:06.000Z"'),
        ("timestamp", 1706933106120000, '"2024-02-03T04:05:06.120Z"'),
        ("timestamp", 1706933106123456, '"2024-02-03T04:05:06.123456Z"'),
        ("timestamp", -2208988800000000, '"1900-01-01T00:00:00.000Z"'),
        ("timestamp_ntz", 1706933106120000, '"2024-02-03T04:05:06.120"'),
        ("timestamp", -1, '"1969-12-31T23:59:59.999999Z"'),
        ("decimal(10,2)", "1.50", "1.50"),
        ("decimal(38,3)", "-12345678901234567890.500", "-12345678901234567890.500"),
        ("double", 0.1, "0.1"),
        ("double", math.nan, '"NaN"'),
        ("double", math.inf, '"Infinity"'),
        ("double", -math.inf, '"-Infinity"'),
        ("float", struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.1"),
        ("float", math.nan, '"NaN"'),
        ("float", 16777216.0, "16777216.0"),
        ("float", struct.unpack("<f", b"\xff\xff\x7f\x7f")[0], "3.4028235e38"),
        ("array<int>", [1, None, 2], "[1,null,2]"),
        ("array<array<date>>", [[0], None], '[["1970-01-01"],null]'),
        ("map<string,int>", [("a", 1), ("b", None)], '{"a":1,"b":null}'),
        ("map<int,string>", [[1, "x"]], '{"1":"x"}'),
        ("map<boolean,double>", [(True, math.nan)], '{"true":"NaN"}'),
        ("map<date,timestamp>", [(0, 0)], '{"1970-01-01":"1970-01-01T00:00:00.000Z"}'),
        ("map<decimal(3,2),int>", [("1.50", 1)], '{"1.50":1}'),
        ("struct<x:int,y:string>", (1, None), '{"x":1}'),
        ("struct<x:int,y:struct<`a:,<b`:date,z:decimal(2,1)>>", [1, [0, "1.5"]], None),
    ],
)
def test_a_value_is_written_by_its_type(type_: str, wire: Any, written: str | None) -> None:
    expected = written or '{"x":1,"y":{"a:,<b":"1970-01-01","z":1.5}}'
    assert of_type(type_, wire) == expected


def test_columns_keep_their_order_and_nulls_are_left_out() -> None:
    assert line("b string, a int, c date", "x", None, None) == '{"b":"x"}\n'
    assert line("b string, a int", None, None) == "{}\n"
    assert line("`a b` int, `c``d` int", 1, 2) == '{"a b":1,"c`d":2}\n'


def test_each_row_is_one_line() -> None:
    rows = JsonRows(parse_schema("word string, total bigint"))
    assert rows.lines([["a\nb", 1], ("c", 2)]) == b'{"word":"a\\nb","total":1}\n{"word":"c","total":2}\n'
    assert rows.lines([]) == b""


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_as_itself_and_no_longer_than_it_must_be(value: float) -> None:
    written = of_type("float", value)
    assert struct.pack("<f", float(written)) == struct.pack("<f", value)
    assert len(written.lstrip("-").partition("e")[0].replace(".", "").strip("0")) <= 9


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_as_itself(value: float) -> None:
    assert json.loads(of_type("double", value)) == value


def test_a_type_without_a_canonical_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no canonical type name"):
        JsonRows(Schema((Column("c", "text"),)))
