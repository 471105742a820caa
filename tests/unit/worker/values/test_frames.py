"""DataFrames hold what Spark gives pandas code, and what user code puts into them is checked by columns."""

from __future__ import annotations

import datetime
import decimal
import math
import pickle
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from penstock.dataflow.ddl import parse_schema
from penstock_worker.values.frame_blocks import FrameBlocks
from penstock_worker.values.frame_rows import FrameShape
from penstock_worker.values.frames import FRAME_ROWS_MAX, FrameKey, FrameReader, NoFrame
from penstock_worker.values.rows import OutputShape, RowMismatch

AT = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=datetime.UTC)


def frame_of(ddl: str, *rows: tuple[Any, ...]) -> pd.DataFrame:
    schema = parse_schema(ddl)
    return FrameReader(schema).frame(OutputShape(schema).wire_rows(list(rows)))


@pytest.mark.parametrize(
    ("type_", "values", "dtype"),
    [
        ("int", (1, -2), "int64"),
        ("tinyint", (1, None), "float64"),
        ("bigint", (None, None), "float64"),
        ("double", (0.5, None), "float64"),
        ("float", (0.5, 1.0), "float64"),
        ("boolean", (True, False), "bool"),
        ("boolean", (True, None), "object"),
        ("string", ("a", None), "object"),
        ("binary", (b"a", None), "object"),
        ("date", (AT.date(), None), "object"),
        ("decimal(10,2)", (decimal.Decimal("1.50"), None), "object"),
        ("timestamp", (AT, None), "datetime64[ns]"),
        ("timestamp_ntz", (AT.replace(tzinfo=None), AT.replace(tzinfo=None)), "datetime64[ns]"),
        ("array<int>", ([1], None), "object"),
        ("struct<a:int>", ({"a": 1}, None), "object"),
    ],
)
def test_a_column_has_the_dtype_that_it_has_in_spark(type_: str, values: tuple[Any, ...], dtype: str) -> None:
    frame = frame_of(f"v {type_}", *((value,) for value in values))
    assert str(frame["v"].dtype) == dtype
    back = FrameShape(parse_schema(f"v {type_}")).wire_rows(frame)
    assert back == OutputShape(parse_schema(f"v {type_}")).wire_rows([(value,) for value in values])


def test_nested_values_are_those_of_sparks_own_conversion() -> None:
    frame = frame_of(
        "items array<int>, by map<string,timestamp>, pair struct<a:decimal(4,1),b:array<string>>",
        ([1, 2], {"k": AT}, (decimal.Decimal("0.5"), ["x", None])),
    )
    assert isinstance(frame["items"][0], np.ndarray)
    assert frame["by"][0] == {"k": pd.Timestamp(AT).tz_localize(None)}
    assert frame["pair"][0]["a"] == decimal.Decimal("0.5")
    assert list(frame["pair"][0]["b"]) == ["x", None]


def test_very_many_rows_come_in_several_frames_each_numbered_from_zero() -> None:
    rows = [(number,) for number in range(FRAME_ROWS_MAX + 2)]
    first, second = FrameReader(parse_schema("n int")).frames(rows)
    assert (len(first), len(second)) == (FRAME_ROWS_MAX, 2)
    assert second.index.tolist() == [0, 1]
    assert second["n"].tolist() == [FRAME_ROWS_MAX, FRAME_ROWS_MAX + 1]


def test_a_frame_is_the_users_to_change() -> None:
    rows = [(1, "a"), (2, "b")]
    reader = FrameReader(parse_schema("n int, word string"))
    frame = reader.frame(rows)
    frame["n"] += 5
    frame.loc[0, "word"] = "changed"
    assert reader.frame(rows)["n"].tolist() == [1, 2]
    assert rows == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("ddl", "rows_by_key"),
    [
        ("n int, word string", [[(1, "a"), (2, None)], [(3, "b")]]),
        ("n int, word string", [[(1, "a"), (None, "b")], [(3, "b")]]),
        ("flag boolean, x double", [[(True, None)], [(None, 2.0)], [(False, 1.0)]]),
        ("at timestamp, day date, price decimal(5,2)", [[(5, 1, "0.5")], [(None, None, None), (7, 2, "1")]]),
        ("items array<int>", [[([1, None],)], [([2],)]]),
        ("n int", [[(1,)]]),
        ("n int", [[(1,)] * 3, [(number,) for number in range(FRAME_ROWS_MAX + 2)]]),
        ("n int", []),
    ],
)
def test_the_frames_of_several_keys_are_those_that_each_would_have_by_itself(
    ddl: str, rows_by_key: list[list[tuple[Any, ...]]]
) -> None:
    reader = FrameReader(parse_schema(ddl))
    together = [list(frames) for frames in reader.each(rows_by_key)]
    alone = [list(reader.frames(rows)) for rows in rows_by_key]
    assert [len(frames) for frames in together] == [len(frames) for frames in alone]
    for found, wanted in zip(chain(*together), chain(*alone), strict=True):
        pd.testing.assert_frame_equal(found, wanted, check_index_type="exact", check_exact=True)


@pytest.mark.filterwarnings("error")
def test_what_is_written_into_one_keys_frame_is_in_no_others() -> None:
    reader = FrameReader(parse_schema("n int, word string"))
    frames = reader.each([[(1, "a")], [(2, "b"), (3, "c")]])
    ((first,), (second,)) = (tuple(of_key) for of_key in frames)
    first["n"] += 5
    first.loc[0, "word"] = "changed"
    first["more"] = 1
    assert (second["n"].tolist(), second["word"].tolist()) == ([2, 3], ["b", "c"])
    assert list(second.columns) == ["n", "word"]


def test_a_time_that_pandas_has_not_is_refused_with_its_own_key() -> None:
    reader = FrameReader(parse_schema("at timestamp"))
    long_ago_us = -(10**16)
    first, second = reader.each([[(1,)], [(long_ago_us,)]])
    assert len(next(first)) == 1
    with pytest.raises(NoFrame):
        next(second)


def test_names_that_are_no_identifiers_are_those_of_sparks_frames() -> None:
    assert list(frame_of("n int, `my col` int, class int", (1, 2, 3)).columns) == ["n", "_1", "_2"]


@pytest.mark.parametrize("year", [1, 1600, 2300, 9999])
def test_a_time_that_pandas_has_not_is_refused_with_its_column(year: int) -> None:
    with pytest.raises(NoFrame, match=r"column 'at' holds .*: leave such rows out before, or take Rows"):
        frame_of("at timestamp", (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC),))


def test_keys_are_as_a_row_of_a_frame_has_them() -> None:
    schema = parse_schema("s string, n int, at timestamp, day date, pair struct<a:int>")
    read = FrameKey(schema).read
    (wire,) = OutputShape(schema).wire_rows([("x", 5, AT, AT.date(), {"a": 1})])
    assert read(wire) == ("x", 5, pd.Timestamp(AT).tz_localize(None), AT.date(), {"a": 1})
    s, n, at, day, pair = read((None,) * 5)
    assert s is day is pair is None
    assert math.isnan(n)
    assert at is pd.NaT
    assert FrameKey(parse_schema("s string, n int")).read(("x", 5)) == ("x", 5)


def blocks() -> FrameBlocks:
    names = pd.Index(["n", "word", "x", "m", "at"])
    numbers = np.arange(9)
    return FrameBlocks(
        names,
        [
            numbers,
            np.array([f"w{n}" for n in numbers], object),
            numbers / 2,
            numbers * 10,
            numbers.astype("datetime64[s]").astype("datetime64[ns]"),
        ],
    )


@pytest.mark.filterwarnings("error")
def test_a_frame_of_ready_arrays_is_as_pandas_makes_it() -> None:
    numbers = np.arange(3, 7)
    wanted = pd.DataFrame(
        {
            "n": numbers,
            "word": [f"w{n}" for n in numbers],
            "x": numbers / 2,
            "m": numbers * 10,
            "at": numbers.astype("datetime64[s]").astype("datetime64[ns]"),
        }
    )
    found = blocks().frame(3, 7)
    pd.testing.assert_frame_equal(found, wanted, check_index_type="exact", check_exact=True)
    assert found.dtypes.tolist() == wanted.dtypes.tolist()
    assert type(found.index) is pd.RangeIndex
    for change in (
        lambda frame: frame.assign(more=frame["n"] + frame["m"]),
        lambda frame: frame.groupby("word", sort=False)["x"].sum(),
        lambda frame: frame.drop(columns="x").rename(columns={"n": "k"}),
        lambda frame: frame[["m", "n"]].to_numpy(),
        lambda frame: frame.sort_values("n", ascending=False).reset_index(drop=True),
        lambda frame: pd.concat([frame, frame]),
        lambda frame: frame.set_index("word").T,
        lambda frame: pickle.loads(pickle.dumps(frame)),
        lambda frame: frame.merge(frame, on="n"),
        lambda frame: frame.query("n > 4")["at"].dt.second,
        lambda frame: pa.Table.from_pandas(frame).to_pydict(),
    ):
        assert repr(change(blocks().frame(3, 7))) == repr(change(wanted.copy()))


@pytest.mark.filterwarnings("error")
def test_frames_of_different_rows_have_nothing_in_common() -> None:
    made = blocks()
    first, second = made.frame(0, 4), made.frame(4, 9)
    first.loc[:, "n"] = 7
    first["x"] = -1.0
    first.iloc[1, 1] = "changed"
    first.insert(0, "more", 1)
    first.columns.name = "named"
    del first["at"]
    assert second["n"].tolist() == [4, 5, 6, 7, 8]
    assert second["word"].tolist() == ["w4", "w5", "w6", "w7", "w8"]
    assert second["x"].tolist() == [2.0, 2.5, 3.0, 3.5, 4.0]
    assert (list(second.columns), second.columns.name) == (["n", "word", "x", "m", "at"], None)


# --- what comes out ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "given", "wire"),
    [
        ("bigint", pd.Series([1.0, None]), [1, None]),
        ("bigint", pd.Series([1, None], dtype="Int64"), [1, None]),
        ("bigint", pd.Series([1, 2], dtype="uint8"), [1, 2]),
        ("bigint", [np.int32(1), decimal.Decimal(2)], [1, 2]),
        ("int", [1, None], [1, None]),
        ("double", [1, 2], [1.0, 2.0]),
        ("double", [math.nan, math.inf], [None, math.inf]),
        ("double", pd.Series([0.5, None], dtype="Float64"), [0.5, None]),
        ("float", [0.1, None], [0.10000000149011612, None]),
        ("boolean", [True, pd.NA], [True, None]),
        ("string", ["a", None, math.nan, pd.NA], ["a", None, None, None]),
        ("string", pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        ("string", pd.Series(["a", None], dtype="string"), ["a", None]),
        ("timestamp", [pd.Timestamp(AT), pd.NaT], [1709168523456789, None]),
        ("timestamp", pd.Series([AT]).dt.tz_convert("Asia/Tokyo"), [1709168523456789]),
        ("timestamp_ntz", [pd.Timestamp(AT).tz_localize(None)], [1709168523456789]),
        ("timestamp", pd.Series([AT.replace(tzinfo=None)], dtype="datetime64[s]"), [1709168523000000]),
        ("date", [AT.date(), None], [19782, None]),
        ("array<bigint>", [np.array([1, 2]), [3]], [[1, 2], [3]]),
        ("array<double>", [np.array([0.5])], [[0.5]]),
        ("array<double>", [np.array([0.5, np.nan]), [math.nan]], [[0.5, None], [None]]),
        (
            "array<timestamp>",
            [np.array(["1970-01-01T00:00:01", "NaT"], "datetime64[s]")],
            [[1_000_000, None]],
        ),
        ("map<string,double>", [{"a": math.nan}], [[("a", None)]]),
        ("struct<at:timestamp>", [{"at": pd.NaT}], [(None,)]),
        ("array<struct<a:double,b:int>>", [[Row(b=1, a=math.nan), Row(2.0, 3)]], [[(None, 1), (2.0, 3)]]),
        (
            "decimal(38,9)",
            [decimal.Decimal("12345678901234567890.1230000000")],
            ["12345678901234567890.123000000"],
        ),
        ("bigint", ["5", "-7"], [5, -7]),
        ("double", ["1.5", "-inf"], [1.5, -math.inf]),
        ("bigint", [True, False], [1, 0]),
        ("double", [True, False], [1.0, 0.0]),
        ("boolean", [1, 0], [True, False]),
        ("timestamp", [pd.Timestamp("1960-01-01 00:00:00.123456789")], [-315619199876543]),
        ("struct<a:int,b:string>", [{"a": 1}, (2, "x")], [(1, None), (2, "x")]),
    ],
)
def test_a_column_of_any_dtype_becomes_wire_values(type_: str, given: Any, wire: list[Any]) -> None:
    rows = FrameShape(parse_schema(f"v {type_}")).wire_rows(pd.DataFrame({"v": given}))
    assert rows == [(value,) for value in wire]
    assert all(type(row[0]).__module__ != "numpy" for row in rows)


TOTALS = FrameShape(parse_schema("word string, total int"))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pd.DataFrame({"word": ["a", "b"], "total": [1, 4.5]}),
            "column 'total' (2 of 2) expects int, got float",
        ),
        (
            pd.DataFrame({"word": ["a"], "total": [1 << 40]}),
            "column 'total' (2 of 2) expects int, -2147483648 to",
        ),
        (pd.DataFrame({"word": ["a"], "total": ["5x"]}), "column 'total' (2 of 2) expects int, got str '5x'"),
        (pd.DataFrame({"word": [b"a"], "total": [5]}), "column 'word' (1 of 2) expects string, got bytes"),
        (pd.DataFrame({"word": [5], "total": [5]}), "column 'word' (1 of 2) expects string, got int 5"),
        (pd.DataFrame({"word": ["a"]}), "a DataFrame lacks 'total'; its columns are word"),
        (pd.DataFrame([["a"]]), "a DataFrame has 1 columns without names; 2 are wanted: word, total"),
        (pd.DataFrame([["a", "b", 1]], columns=["word", "word", "total"]), "a DataFrame has 'word' twice"),
        (("a", 1), "yielded tuple ('a', 1); a processor of form Pandas yields DataFrames"),
        (pd.Series(["a"]), "a processor of form Pandas yields DataFrames"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column(frame: Any, message: str) -> None:
    with pytest.raises(RowMismatch) as refused:
        TOTALS.wire_rows(frame)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "value"), [("decimal(10,2)", decimal.Decimal("1.255")), ("boolean", 2), ("bigint", 4.5)]
)
def test_what_spark_cuts_without_a_word_is_refused(type_: str, value: Any) -> None:
    with pytest.raises(RowMismatch, match="column 'v'"):
        FrameShape(parse_schema(f"v {type_}")).wire_rows(pd.DataFrame({"v": [value]}))


def test_a_value_that_does_not_fit_is_told_with_its_row() -> None:
    with pytest.raises(RowMismatch, match=r"row 1 of the DataFrame is dict {'word': 'b', 'total': 4.5}"):
        TOTALS.wire_rows(pd.DataFrame({"word": ["a", "b"], "total": [1, 4.5]}))


@pytest.mark.parametrize(
    ("frame", "rows"),
    [
        (pd.DataFrame(), []),
        (pd.DataFrame({"word": [], "total": []}), []),
        (pd.DataFrame(index=[0, 1]), [(None, None), (None, None)]),
        (pd.DataFrame([["a", 1]]), [("a", 1)]),
        (pd.DataFrame({"total": [1], "nobody": [2], "word": ["a"]}), [("a", 1)]),
        (pd.DataFrame({"word": ["a", "b"], "total": [1, 2]}, index=[7, 7]), [("a", 1), ("b", 2)]),
    ],
)
def test_columns_go_by_name_or_by_place(frame: pd.DataFrame, rows: list[Any]) -> None:
    assert TOTALS.wire_rows(frame) == rows
