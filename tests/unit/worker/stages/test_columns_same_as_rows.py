"""Rows that are columns: what comes out of steps and into sinks is the same as of rows, and what fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.expressions.column_step import all_columns, read_filter, read_select
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.on_error import OnError
from penstock.dataflow.plan import ARROW, PANDAS, EventTime, Fanout, KeyedEdge, Step
from penstock.dataflow.schema import Schema
from penstock.store.codec import decode_batch
from penstock.store.port import Bounds
from penstock.store.stamps import Stamps
from penstock_worker.expressions import column_step
from penstock_worker.outputs.edges import SHARD_ROWS_MIN, EdgeRunner
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.sinks import json_entries
from penstock_worker.sinks.json_entries import JsonEntries
from penstock_worker.stages.event_time import latest_us
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values import arrow_columns
from penstock_worker.values.arrow_columns import ArrowShape, joined_rows
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows, is_columnar
from penstock_worker.values.held import Held
from penstock_worker.values.rows import RowMismatch

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 20),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(max_size=6) | st.sampled_from(["abc", "xyz", 'a"b']),
    "binary": st.binary(max_size=6),
    "date": st.integers(-719_162, 2_932_896),
    "timestamp": st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    "timestamp_ntz": st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
}
CODE = """
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

def same(batches):
    yield from batches

def halves(batches):
    for batch in batches:
        yield batch[: len(batch) // 2]
        yield batch[len(batch) // 2 :]

def turned(batches):
    for batch in batches:
        yield batch.take(pa.array(range(len(batch)))[::-1])

def nothing(batches):
    for _ in batches:
        pass
    yield from ()

def large_texts(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch[0].cast(pa.large_string())], names=["t"])

def bad_sevens(batches):
    for batch in batches:
        if pc.any(pc.equal(batch["n"], 7)).as_py():
            raise ValueError("a seven")
        yield batch

def reused(batches):
    memory = np.zeros(1000, np.int64)
    for batch in batches:
        for number in (1, 2, 3):
            memory[:] = number
            yield pa.RecordBatch.from_arrays([pa.array(memory)], names=["n"])

def frames(frames):
    for frame in frames:
        yield frame
"""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also two rows are columns here."""
    monkeypatch.setattr(arrow_columns, "COLUMNS_FROM", 2)
    monkeypatch.setattr(column_step, "COLUMNS_FROM", 2)
    monkeypatch.setattr(json_entries, "COLUMNS_FROM", 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("columns")
    (folder / "column_code.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def as_columns(schema: Schema, rows: Sequence[Sequence[Any]]) -> ColumnRows:
    return ColumnRows(ArrowShape(schema), ArrowRows(schema).arrays(zip(*rows, strict=True)))


def sunk(fanout: Fanout, folder: Path, rows: Sequence[Any], times: Sequence[int]) -> tuple[Any, ...]:
    """What a fan-out puts out: rows with their times and JSON by target, counts, and letters."""
    outputs = OutputBatch(Bounds(), "s/0", Held(Bounds(), alone=False))
    counts = FanoutRunner(fanout, folder).feed(rows, times, outputs)
    found: dict[str, list[Any]] = {}
    for output in outputs.drain():
        batch = decode_batch(output.payload)
        assert output.rows == len(batch.rows)
        stamps = [batch.base_us + delta for delta in batch.deltas_us]
        found.setdefault(output.target, []).extend(zip(stamps, batch.rows, strict=True))
    letters = [
        (name, [tuple(row) for row in letter.rows], letter.stamps_us) for name, letter in outputs.letters
    ]
    return {name: repr(rows) for name, rows in found.items()}, counts, letters, outputs.latest_us


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[tuple[Any, ...]]]:
    """A schema and rows of it; now and then all null, without nulls, or with texts of one length."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    schema = parse_schema(", ".join(f"c{place} {type_}" for place, type_ in enumerate(types)))
    count = draw(st.integers(2, 12))
    columns = []
    for type_ in types:
        values = VALUES[type_]
        match draw(st.sampled_from(["full", "full", "holes", "empty", "one"])):
            case "holes":
                values = st.none() | values
            case "empty":
                values = st.none()
            case "one":
                values = st.just(draw(values))
        columns.append(draw(st.lists(values, min_size=count, max_size=count)))
    times = draw(st.sampled_from([1, 40]))
    return schema, list(zip(*columns, strict=True)) * times


@given(tables(), st.sampled_from(["same", "halves", "turned", "nothing", "frames", ""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_steps_put_out_the_same_of_columns_as_of_rows(
    folder: Path, table: tuple[Schema, list[tuple[Any, ...]]], function: str
) -> None:
    schema, rows = table
    out = Fanout(schema, (), (ConsoleSink("out"),), ())
    form = PANDAS if function == "frames" else ARROW
    if function == "frames" and any(
        each.type in ("timestamp", "timestamp_ntz", "float", "double", "date") for each in schema.columns
    ):
        return  # pandas has not all of their values
    steps = (Step("step", f"column_code:{function}", out, form=form),) if function else ()
    fanout = Fanout(schema, steps, (ConsoleSink("all"),), ())
    times = list(range(100, 100 + len(rows)))
    by_rows = sunk(fanout, folder, rows, times)
    by_columns = sunk(fanout, folder, as_columns(schema, rows), Stamps(np.array(times)))
    assert by_columns == by_rows


@given(tables())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_of_columns_are_those_of_rows(table: tuple[Schema, list[tuple[Any, ...]]]) -> None:
    schema, rows = table
    outputs = OutputBatch(Bounds(), "s/0", Held(Bounds(), alone=False))
    outputs.put_external("out", schema.names, as_columns(schema, rows), Stamps.uniform(5, len(rows)))
    payloads = [output.payload for output in outputs.drain()]
    lines = JsonEntries(schema).lines(payloads)
    assert lines == JsonRows(schema).lines(rows)


FILTERED = parse_schema("n bigint, x double, t string, at timestamp")
EXPRESSIONS = [
    ("", ("n", "t")),
    ("n > 5", ()),
    ("n % 3 = 0 OR t IS NULL", ("n * 2 AS twice", "x", "upper(t) AS t")),
    ("x > 0.5", ("at", "n", "x + n AS sum")),
    ("false", ("n",)),
    ("", ("1 AS one", "CAST(NULL AS STRING) AS none", "n")),
    ("n <> 0 AND 10 / n > 1", ("CAST(n AS DECIMAL(20,0)) AS d",)),
]
FILTERED_ROWS = st.tuples(
    st.none() | st.integers(-20, 20),
    st.none() | st.floats(),
    st.none() | st.sampled_from(["a", "bb", "é", ""]),
    st.none() | st.integers(0, 1 << 50),
)


@given(st.lists(FILTERED_ROWS, min_size=1, max_size=30), st.sampled_from(EXPRESSIONS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_filter_and_select_are_the_same_on_columns(
    tmp_path: Path, rows: list[Any], expressions: tuple[str, tuple[str, ...]]
) -> None:
    where, select = expressions
    step = read_select(select, FILTERED) if select else all_columns(FILTERED)
    if where:
        step = replace(step, kept=read_filter(where, FILTERED), filter_text=where)
    out = Fanout(step.output, (), (ConsoleSink("out"),), ())
    fanout = Fanout(FILTERED, (Step("kept", "", out, columns=step),), (), (), EventTime(3, 0, 1000))
    times = list(range(len(rows)))
    by_rows = sunk(fanout, tmp_path, rows, times)
    assert sunk(fanout, tmp_path, as_columns(FILTERED, rows), Stamps(np.array(times))) == by_rows


@pytest.mark.parametrize("on_error", [OnError(), OnError("DeadLetter")])
def test_an_expression_that_raises_names_the_row_or_makes_it_a_letter(
    tmp_path: Path, on_error: OnError
) -> None:
    step = read_select(("10 div n AS tenth",), FILTERED)
    out = Fanout(step.output, (), (ConsoleSink("out"),), ())
    fanout = Fanout(FILTERED, (Step("kept", "", out, columns=step, on_error=on_error),), (), ())
    rows = [(n % 5, 0.5, "t", n) for n in range(13)]
    times = list(range(13))
    if not on_error.keeps_letters:
        for given_rows in (rows, as_columns(FILTERED, rows)):
            with pytest.raises(UserCodeError, match=r"raised on .*\(0, 0\.5, 't', 0\)"):
                sunk(fanout, tmp_path, given_rows, times)
        return
    by_rows = sunk(fanout, tmp_path, rows, times)
    assert len(by_rows[2]) == 3
    assert sunk(fanout, tmp_path, as_columns(FILTERED, rows), Stamps(np.array(times))) == by_rows


def test_rows_that_code_raises_on_are_letters_one_by_one(folder: Path) -> None:
    schema = parse_schema("n bigint, t string")
    out = Fanout(schema, (), (ConsoleSink("out"),), ())
    step = Step("step", "column_code:bad_sevens", out, form=ARROW, on_error=OnError("DeadLetter"))
    rows = [(n % 10, "t") for n in range(300)]
    times = list(range(300))
    fanout = Fanout(schema, (step,), (), ())
    by_rows = sunk(fanout, folder, rows, times)
    assert len(by_rows[2]) == 30
    assert sunk(fanout, folder, as_columns(schema, rows), Stamps(np.array(times))) == by_rows


def test_a_batch_may_stand_on_memory_that_is_written_to_again(folder: Path) -> None:
    schema = parse_schema("n bigint")
    out = Fanout(schema, (), (ConsoleSink("out"),), ())
    step = Step("step", "column_code:reused", out, form=ARROW)
    found = sunk(Fanout(schema, (step,), (), ()), folder, as_columns(schema, [(0,)] * 5), [1] * 5)[0]["out"]
    assert found == repr([(1, (number,)) for number in (1, 2, 3) for _ in range(1000)])


def test_rows_and_columns_for_one_sink_keep_their_order(folder: Path) -> None:
    schema = parse_schema("n bigint")
    sink = ConsoleSink("out")
    outputs = OutputBatch(Bounds(), "s/0", Held(Bounds(), alone=False))
    for number in range(4):
        rows: Any = [(number * 10 + each,) for each in range(3)]
        outputs.put_external(sink.name, ["n"], rows if number % 2 else as_columns(schema, rows), [number] * 3)
    (output,) = outputs.drain()
    assert [row[0] for row in decode_batch(output.payload).rows] == [
        0,
        1,
        2,
        10,
        11,
        12,
        20,
        21,
        22,
        30,
        31,
        32,
    ]
    assert outputs.drain() == ()


def test_entries_of_columns_are_no_larger_than_entries_may_be() -> None:
    schema = parse_schema("n bigint, t string")
    bounds = replace(Bounds(), entry_bytes_max=4096)
    rows = [(n << 40, "x" * 50) for n in range(1000)]
    outputs = OutputBatch(bounds, "s/0", Held(bounds, alone=False))
    outputs.put_external("out", ["n", "t"], as_columns(schema, rows), Stamps(np.arange(1000) << 40))
    entries = outputs.drain()
    assert max(len(entry.payload) for entry in entries) <= 4096
    assert len(entries) < 1000 * 80 // 4096 + 2
    batches = [decode_batch(entry.payload) for entry in entries]
    assert [row for batch in batches for row in batch.rows] == rows
    assert [batch.base_us + d for batch in batches for d in batch.deltas_us] == [n << 40 for n in range(1000)]


def test_what_reaches_a_keyed_stage_is_the_same(tmp_path: Path) -> None:
    schema = parse_schema("k bigint, t string")
    fanout = Fanout(schema, (), (), (KeyedEdge("count", (0,), 8),))
    for texts, is_even in ((["abc", "xyz"], True), (["abc", "z"], False)):
        rows = [(n * n % 97, texts[n % 2]) for n in range(3000)]
        times = list(range(3000))
        columns = as_columns(schema, rows)
        by_columns = sunk(fanout, tmp_path, columns, Stamps(np.array(times)))
        assert (columns._rows is None) is is_even
        assert by_columns == sunk(fanout, tmp_path, rows, times)


def fed(edge: EdgeRunner, keys: list[int]) -> bool:
    """Whether rows with these keys were cut as columns."""
    schema, bounds = parse_schema("k bigint"), Bounds()
    columns = as_columns(schema, [(key,) for key in keys])
    edge.feed(columns, Stamps.uniform(0, len(keys)), OutputBatch(bounds, "s/0", Held(bounds, alone=False)))
    return columns._rows is None


def test_columns_are_cut_by_shards_where_they_are_enough_for_those_that_they_go_to() -> None:
    edge = EdgeRunner(KeyedEdge("count", (0,), 8), parse_schema("k bigint"))
    enough = COLUMNS_FROM + 8 * SHARD_ROWS_MIN
    assert edge.columns_from == enough
    assert fed(edge, list(range(enough)))
    assert not fed(edge, list(range(enough - 1)))
    one_shard = [7] * (COLUMNS_FROM + SHARD_ROWS_MIN)
    assert not fed(edge, one_shard), "all shards had rows of those before"
    assert fed(edge, one_shard)
    assert not fed(edge, one_shard[1:])
    assert not fed(edge, list(range(600))), "they are for all shards, though those before were for one"
    fed(edge, one_shard)
    fed(edge, list(range(100)))
    assert edge.columns_from == len(one_shard), "too few to tell"


def test_a_source_gives_columns_from_where_the_first_of_those_behind_it_is_sooner_done(
    tmp_path: Path,
) -> None:
    schema = parse_schema("k bigint")
    edges = (KeyedEdge("many", (0,), 64), KeyedEdge("few", (0,), 4))
    behind = FanoutRunner(Fanout(schema, (), (), edges), tmp_path)
    assert behind.columns_from() == COLUMNS_FROM + 4 * SHARD_ROWS_MIN
    (many, _) = behind.keyed_edges()
    fed(many, [7] * (COLUMNS_FROM + 64 * SHARD_ROWS_MIN))
    assert behind.columns_from() == COLUMNS_FROM + SHARD_ROWS_MIN, "rows went to one shard"
    sink = Fanout(schema, (), (ConsoleSink("out"),), edges)
    assert FanoutRunner(sink, tmp_path).columns_from() == COLUMNS_FROM


@given(tables())
def test_columns_are_a_sequence_of_rows(table: tuple[Schema, list[tuple[Any, ...]]]) -> None:
    schema, rows = table
    assert is_columnar(schema)
    found = as_columns(schema, rows)
    assert len(found) == len(rows)
    assert repr([found[0], found[-1], *found[1:2]]) == repr([rows[0], rows[-1], *rows[1:2]])
    with pytest.raises(IndexError):
        found[len(rows)]
    assert repr(list(joined_rows([found[:1], found[1:]]))) == repr(rows)
    assert repr(list(joined_rows([rows, found]))) == repr(rows * 2)
    assert repr(found.rows) == repr(list(found)) == repr(rows)
    assert repr(found[-1]) == repr(rows[-1])


@given(st.lists(st.none() | st.integers(0, 1 << 50), min_size=1, max_size=9))
def test_the_latest_event_time_of_columns(times: list[int | None]) -> None:
    for type_ in ("timestamp", "timestamp_ntz"):
        schema = parse_schema(f"n int, at {type_}")
        rows = [(1, at) for at in times]
        assert latest_us(as_columns(schema, rows), 1) == latest_us(rows, 1)


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("timestamp", pa.array([0, 1 << 62], pa.timestamp("us", "UTC"))),
        ("timestamp_ntz", pa.array([0, -(1 << 62)], pa.timestamp("us"))),
        ("date", pa.array([0, 1 << 30], pa.date32())),
        ("bigint", pa.array([0, 1], pa.int32())),
        ("double", pa.array([0, 1], pa.float32())),
    ],
)
def test_what_rows_refuse_columns_refuse_too(type_: str, column: pa.Array) -> None:
    shape = ArrowShape(parse_schema(f"c {type_}"))
    batch = pa.RecordBatch.from_arrays([column], names=["c"])
    with pytest.raises(RowMismatch) as by_columns:
        shape.wire_rows(batch)
    with pytest.raises(RowMismatch) as by_rows:
        shape.column(0, column)
    assert str(by_columns.value) == str(by_rows.value)


def test_bytes_that_are_no_text_are_refused_where_they_come_out() -> None:
    column = pa.array([b"a", b"\xff"]).view(pa.string())
    shape = ArrowShape(parse_schema("c string"))
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        shape.wire_rows(pa.RecordBatch.from_arrays([column], names=["c"]))


def test_types_that_spark_reads_alike_become_the_columns_own() -> None:
    schema = parse_schema("a timestamp, b string, c date, d bigint, e binary, f int")
    arrays = [
        pa.array([1, None], pa.timestamp("us")),
        pa.array(["x", None], pa.large_string()),
        pa.array([3, None], pa.int32()),
        pa.array([4, None], pa.timestamp("us", "Asia/Tokyo")),
        pa.array([b"y", None], pa.large_binary()),
        pa.nulls(2),
    ]
    found = ArrowShape(schema).wire_rows(pa.RecordBatch.from_arrays(arrays, names=list("abcdef")))
    assert isinstance(found, ColumnRows)
    assert [column.type for column in found.columns] == found.shape.arrow_schema.types
    assert found == [(1, "x", 3, 4, b"y", None), (None,) * 6]


def test_schemas_with_other_types_are_rows() -> None:
    assert not is_columnar(parse_schema("n int, d decimal(10,2)"))
    assert not is_columnar(parse_schema("n int, a array<int>"))
    schema = parse_schema("a array<int>")
    batch = pa.RecordBatch.from_arrays([pa.array([[1], [2], None], pa.list_(pa.int32()))], names=["a"])
    found = ArrowShape(schema).wire_rows(batch)
    assert found == [([1],), ([2],), (None,)]
    assert not isinstance(found, ColumnRows)
