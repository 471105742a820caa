"""Steps on columns: mapInPandas and mapInArrow in the resident task, with what Spark hands over and takes."""

from __future__ import annotations

import datetime
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.types import StructField, StructType
from pyspark.worker import verify_pandas_result

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import ARROW, PANDAS, Fanout, KeyedEdge, Step
from penstock.store.codec import decode_batch
from penstock.store.port import Bounds
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.user_code import batch_steps
from penstock_worker.user_code.frame_step import FrameStep
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.frames import NoFrame
from penstock_worker.values.held import ONE_ROW, Held, TooMuch
from penstock_worker.values.rows import OutputShape, RowMismatch
from penstock_worker.values.spark_types import struct_type

GIVEN = parse_schema("n long, w string")
ROWS = [(1, "a"), (2, None), (3, "ccc"), (4, "")]
CODE = """
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

def kept(frames):
    for frame in frames:
        yield frame[frame["n"] > 1]

def doubled(frames):
    for frame in frames:
        yield frame
        yield frame.assign(n=frame["n"] * 10)

def mapped(frames):
    return map(lambda frame: frame[["w", "n"]], frames)

def first_alone(frames):
    yield next(frames)

def unread(frames):
    yield pd.DataFrame({"n": [7], "w": ["x"]})

def nothing(frames):
    for _ in frames:
        pass
    yield from ()

def one_for_all(frames):
    sizes = [len(frame) for frame in frames]
    yield pd.DataFrame({"n": [len(sizes), sum(sizes)], "w": ["batches", "rows"]})

def longer(frames, least):
    for frame in frames:
        yield frame[frame["n"] >= least]

made = []

def keeper(least):
    made.append(least)
    def keep(frames):
        for frame in frames:
            yield frame[frame["n"] >= least]
    return keep

def kept_arrow(batches):
    for batch in batches:
        yield batch.filter(pc.greater(batch["n"], 1))

def doubled_arrow(batches):
    for batch in batches:
        yield batch
        yield batch.set_column(0, "n", pc.multiply(batch["n"], 10))

def renamed_arrow(batches):
    return (batch.rename_columns(["x", "y"]) for batch in batches)

def swapped_arrow(batches):
    return (batch.select(["w", "n"]) for batch in batches)

def short_arrow(batches):
    return (batch.select(["n"]) for batch in batches)

def nothing_arrow(batches):
    for _ in batches:
        pass
    yield from ()

def one_for_all_arrow(batches):
    sizes = [len(batch) for batch in batches]
    yield pa.RecordBatch.from_pydict({"n": [len(sizes), sum(sizes)], "w": ["batches", "rows"]})

def endless_arrow(batches):
    batch = next(batches)
    while True:
        yield batch

def listed(batches):
    return list(batches)

def one(batches):
    return next(batches)

def none(batches):
    list(batches)

def rows(batches):
    yield (1, "a")

def raises(batches):
    for batch in batches:
        yield batch
        raise ValueError("no more")

def raises_at_once(batches):
    raise ValueError("not at all")

def lacking(frames):
    for frame in frames:
        yield frame[["n"]]

def between(frames):
    for frame in frames:
        yield frame.assign(x=1)[["n", "x", "w"]]

def behind(frames):
    for frame in frames:
        yield frame.assign(x=1)

def texts(frames):
    for frame in frames:
        yield frame.assign(n=frame["w"])

def narrow_arrow(batches):
    for batch in batches:
        yield batch.set_column(0, "n", batch["n"].cast(pa.int32()))

def wide_arrow(batches):
    for batch in batches:
        yield batch.append_column("x", batch["n"])

def no_function(batches, *, least, most):
    yield from batches
"""


@pytest.fixture(scope="module")
def code_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "columns_code.py").write_text(CODE)
    return folder


def step(function: str, form: str, output: str = "n long, w string", arguments: str = "") -> Fanout:
    out = Fanout(parse_schema(output), (), (ConsoleSink("out"),), ())
    return Fanout(GIVEN, (Step("cols", f"columns_code:{function}", out, arguments, form),), (), ())


def run(
    code_dir: Path, behind: Fanout, rows: list[Any] = ROWS, held: Held = ONE_ROW
) -> list[tuple[int, tuple[Any, ...]]]:
    """(timestamp, row) in order."""
    outputs = OutputBatch(Bounds(), "src/0", held)
    counts = FanoutRunner(behind, code_dir).feed(rows, range(5, 5 + len(rows)), outputs)
    found = [
        (batch.base_us + delta, tuple(row))
        for output in outputs.drain()
        for batch in [decode_batch(output.payload)]
        for delta, row in zip(batch.deltas_us, batch.rows, strict=True)
    ]
    assert counts["cols"] == len(found)
    return found


@pytest.mark.parametrize(
    ("function", "form", "expected"),
    [
        ("kept", PANDAS, ROWS[1:]),
        ("doubled", PANDAS, [*ROWS, *((n * 10, w) for n, w in ROWS)]),
        ("mapped", PANDAS, ROWS),
        ("first_alone", PANDAS, ROWS),
        ("unread", PANDAS, [(7, "x")]),
        ("nothing", PANDAS, []),
        ("one_for_all", PANDAS, [(1, "batches"), (4, "rows")]),
        ("behind", PANDAS, ROWS),
        ("kept_arrow", ARROW, ROWS[1:]),
        ("doubled_arrow", ARROW, [*ROWS, *((n * 10, w) for n, w in ROWS)]),
        ("renamed_arrow", ARROW, ROWS),
        ("wide_arrow", ARROW, ROWS),
        ("nothing_arrow", ARROW, []),
        ("one_for_all_arrow", ARROW, [(1, "batches"), (4, "rows")]),
    ],
)
def test_what_code_gives_comes_out_as_old_as_the_oldest_row(
    code_dir: Path, function: str, form: str, expected: list[Any]
) -> None:
    assert run(code_dir, step(function, form)) == [(5, row) for row in expected]


@pytest.mark.parametrize(("function", "form"), [("one_for_all", PANDAS), ("one_for_all_arrow", ARROW)])
def test_many_rows_come_in_batches_of_sparks_size(
    code_dir: Path, function: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_steps, "BATCH_ROWS_MAX", 3)
    assert [row for _, row in run(code_dir, step(function, form))] == [(2, "batches"), (4, "rows")]


def test_arguments_and_factories_are_those_of_any_step(code_dir: Path) -> None:
    for function in ("longer", "keeper"):
        runner = FanoutRunner(step(function, PANDAS, arguments='{"least": 3}'), code_dir)
        for _ in range(2):
            assert runner.feed(ROWS, [1, 2, 3, 4], OutputBatch(Bounds(), "s", ONE_ROW))["cols"] == 2
    assert sys.modules["columns_code"].made == [3]
    with pytest.raises(
        UserCodeMissing, match=r"is called as no_function\(iterator, least=3\): it lacks 'most'"
    ):
        FanoutRunner(step("no_function", ARROW, arguments='{"least": 3}'), code_dir)


def test_code_is_not_called_where_no_rows_are(code_dir: Path) -> None:
    assert (
        FanoutRunner(step("raises_at_once", ARROW), code_dir).feed(
            [], [], OutputBatch(Bounds(), "s", ONE_ROW)
        )
        == {}
    )


def test_what_comes_out_goes_on_to_steps_and_keys(code_dir: Path) -> None:
    behind = Step(
        "again", "columns_code:kept_arrow", Fanout(GIVEN, (), (ConsoleSink("out"),), ()), form=ARROW
    )
    out = Fanout(GIVEN, (behind,), (), (KeyedEdge("count", (1,), 1),))
    first = Fanout(GIVEN, (Step("cols", "columns_code:doubled", out, form=PANDAS),), (), ())
    outputs = OutputBatch(Bounds(), "src/0", ONE_ROW)
    counts = FanoutRunner(first, code_dir).feed(ROWS, [9, 8, 7, 6], outputs)
    assert counts == {"cols": 8, "again": 7, "out": 7}
    (keyed,) = [output for output in outputs.drain() if output.target == "count/0"]
    assert keyed.rows == 8


@pytest.mark.parametrize(
    ("function", "form", "told"),
    [
        (
            "listed",
            PANDAS,
            ["returned list", "mapInPandas returns an iterator of DataFrames, as Spark asks for"],
        ),
        ("listed", ARROW, ["returned list", "mapInArrow returns an iterator of record batches"]),
        ("one", PANDAS, ["returned DataFrame"]),
        ("none", ARROW, ["returned None", "yield them, or return iter([...])"]),
        ("rows", PANDAS, ["yielded tuple (1, 'a'); mapInPandas yields DataFrames"]),
        ("rows", ARROW, ["yielded tuple (1, 'a'); mapInArrow yields record batches"]),
        ("kept", ARROW, ["TypeError", "in kept"]),
        (
            "raises",
            ARROW,
            ["raised on 4 rows, of which the first is tuple (1, 'a')", "ValueError: no more", "line "],
        ),
        ("raises_at_once", PANDAS, ["ValueError: not at all"]),
        ("lacking", PANDAS, ["a DataFrame lacks 'w'; its columns are n", "in lacking"]),
        ("between", PANDAS, ["has 'x' among its first 2 columns, which are to be n, w"]),
        ("texts", PANDAS, ["column 'n' (1 of 2) expects bigint, got str 'a'; row 0 of the DataFrame is"]),
        ("narrow_arrow", ARROW, ["column 'n' (1 of 2) expects bigint, in Arrow int64, got int32; cast it"]),
        ("short_arrow", ARROW, ["a batch has the columns n; wanted are n, w, by their places"]),
        ("swapped_arrow", ARROW, ["column 'n' (1 of 2) expects bigint, in Arrow int64, got string; cast it"]),
    ],
)
def test_what_spark_refuses_is_refused_in_words(
    code_dir: Path, function: str, form: str, told: list[str]
) -> None:
    with pytest.raises(UserCodeError) as refused:
        run(code_dir, step(function, form))
    for text in ("operator cols: columns_code:" + function, *told):
        assert text in str(refused.value)


def test_code_that_gives_without_end_is_stopped_early(code_dir: Path) -> None:
    with pytest.raises(TooMuch):
        run(code_dir, step("endless_arrow", ARROW), held=Held(Bounds(), alone=False))


# --- all types --------------------------------------------------------------------------------------

EVERY = parse_schema(
    "t tinyint, s smallint, i int, n long, f float, x double, b boolean, w string, y binary, d date, "
    "at timestamp, local timestamp_ntz, m decimal(10,2), a array<long>, k map<string,int>, "
    "p struct<u:long,v:string>, q array<struct<at:timestamp,d:decimal(4,1)>>, `odd name` string"
)
QUICK = parse_schema(
    "t tinyint, s smallint, i int, n long, f float, x double, b boolean, y binary, d date, at timestamp"
)
NOON = datetime.datetime(2024, 3, 1, 12, 0, 0, 5, tzinfo=datetime.UTC)
FULL = (
    -5, 300, 70_000, 1 << 60, 0.5, 1.25, True, "text", b"\x00", datetime.date(1969, 7, 20), NOON,
    NOON.replace(tzinfo=None), Decimal("-1.50"), [1, None], {"one": 1, "none": None}, {"u": 1, "v": None},
    [{"at": NOON, "d": Decimal("0.5")}], "odd",
)  # fmt: skip
EMPTY: tuple[Any, ...] = (None,) * len(FULL)
LEAST = (
    -128, -32768, -(1 << 31), -(1 << 63), -math.inf, 5e-324, False, "", b"", datetime.date(1, 1, 1),
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    Decimal("0.00"), [], {}, {"u": None, "v": ""}, [], "",
)  # fmt: skip


def wire(*rows: Any, schema: Any = EVERY) -> list[tuple[Any, ...]]:
    return OutputShape(schema).wire_rows(list(rows))


def normal(rows: list[tuple[Any, ...]]) -> str:
    """Wire rows to be compared: a tuple is a list on the wire."""
    return repr(rows).replace("(", "[").replace(")", "]").replace(",]", "]")


@pytest.mark.parametrize("rows", [[FULL], [EMPTY], [LEAST], [FULL, EMPTY, LEAST]])
def test_rows_of_every_type_go_through_arrow_unchanged(rows: list[Any]) -> None:
    given = wire(*rows)
    assert normal(ArrowShape(EVERY).wire_rows(ArrowRows(EVERY).batch(given))) == normal(given)


def test_a_number_that_is_none_stays_none_and_nan_stays_nan() -> None:
    schema = parse_schema("x double, f float, n long")
    given = [(math.nan, math.nan, 1), (None, None, None), (1.5, 2.5, 0)]
    assert repr(ArrowShape(schema).wire_rows(ArrowRows(schema).batch(given))) == repr(given)


@pytest.mark.parametrize("rows", [[FULL], [FULL, EMPTY], [EMPTY], [FULL, FULL]])
def test_dataframes_are_those_of_sparks_own_worker(rows: list[Any]) -> None:
    for schema in (EVERY, QUICK):
        places = [EVERY.names.index(name) for name in schema.names]
        given = wire(*[tuple(row[place] for place in places) for row in rows], schema=schema)
        batch = ArrowBatchTransformer.wrap_struct(ArrowRows(schema).batch(given))
        (theirs,) = ArrowBatchTransformer.to_pandas(batch, timezone="UTC", df_for_struct=True)
        ours = FrameStep(schema, schema).batch(given)
        pd.testing.assert_frame_equal(ours, theirs)


def test_a_dataframe_may_be_changed_in_place() -> None:
    frame = FrameStep(GIVEN, GIVEN).batch(ROWS)
    frame.loc[0, "n"] = 9
    assert frame["n"].tolist() == [9, 2, 3, 4]


@pytest.mark.parametrize("micros", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_a_time_that_pandas_has_not_is_named_with_its_column(micros: int) -> None:
    schema = parse_schema("at timestamp")
    for rows in ([(micros,)], [(micros,), (None,)]):
        with pytest.raises(NoFrame, match=r"column 'at' has what pandas has no value for .* \(mapInArrow\)"):
            FrameStep(schema, schema).batch(rows)


def test_floats_among_instants_are_whole_in_arrow() -> None:
    schema = parse_schema("at timestamp")
    assert ArrowRows(schema).batch([(5.0,), (None,), (6,)])["at"].cast(pa.int64()).to_pylist() == [5, None, 6]


@pytest.mark.parametrize(
    ("ddl", "column", "told"),
    [
        (
            "at timestamp",
            pa.array([1 << 62], pa.timestamp("us", "UTC")),
            "year in UTC is not within 1 to 9999",
        ),
        ("d date", pa.array([3_000_000], pa.date32()), "whose year is not within 1 to 9999"),
        ("a array<date>", pa.array([[3_000_000]], pa.list_(pa.date32())), "cannot be read"),
    ],
)
def test_times_that_python_has_not_are_refused(ddl: str, column: pa.Array, told: str) -> None:
    shape = ArrowShape(parse_schema(ddl))
    with pytest.raises(RowMismatch, match=rf"column '\w+' \(1 of 1\) .*{told}"):
        shape.wire_rows(pa.record_batch([column], names=[ddl.split()[0]]))


FRAMES_AS_SPARK: dict[str, tuple[str, Any]] = {
    "by name": ("n long, w string", {"w": ["a"], "n": [1]}),
    "more behind": ("n long, w string", {"w": ["a"], "n": [1], "x": [2]}),
    "more between": ("n long, w string", {"w": ["a"], "x": [2], "n": [1]}),
    "lacking": ("n long, w string", {"n": [1]}),
    "by place": ("n long, w string", [[1, "a"]]),
    "by place, more": ("n long", [[1, "a"]]),
    "by place, lacking": ("n long, w string", [[1]]),
    "nothing": ("n long", {}),
    "whole": ("n long", {"n": [4.0, None]}),
    "pandas' own": ("n long", {"n": pd.array([1, None], dtype="Int64")}),
    "objects": ("n long", {"n": pd.Series([1, None], dtype=object)}),
    "text of numbers": ("n long, x double", {"n": ["5"], "x": ["1.5"]}),
    "text": ("n long", {"n": ["x"]}),
    "flags": ("b boolean, n long", {"b": [1, 0], "n": [True, False]}),
    "text of flags": ("b boolean", {"b": ["true", "false", None]}),
    "number for text": ("w string", {"w": [5]}),
    "nan": ("w string, x double", {"w": ["a", math.nan], "x": [math.nan, 1]}),
    "texts": ("w string", {"w": pd.array(["a", None], dtype="string")}),
    "category": ("w string", {"w": pd.Categorical(["a", "b"])}),
    "decimals": ("m decimal(10,2)", {"m": [Decimal("1.5"), None]}),
    "zone": ("at timestamp", {"at": [pd.Timestamp("2024-01-01 10:00", tz="Europe/Berlin"), pd.NaT]}),
    "no zone": ("at timestamp, u timestamp_ntz", {"at": [pd.Timestamp(5)], "u": [pd.Timestamp(5)]}),
    "date": ("d date", {"d": [pd.Timestamp("2024-01-01")]}),
    "text for a time": ("at timestamp", {"at": ["2024-01-01"]}),
    "nested": (
        "a array<long>, s struct<u:long,v:string>, k map<string,long>",
        {"a": [[1, None]], "s": [{"u": 1, "v": None}], "k": [{"a": 1}]},
    ),
}


@pytest.mark.parametrize("case", FRAMES_AS_SPARK)
def test_dataframes_are_taken_and_refused_as_by_sparks_own_worker(case: str) -> None:
    """Its functions for mapInPandas, with the settings that Spark has without others."""
    ddl, columns = FRAMES_AS_SPARK[case]
    schema, frame = parse_schema(ddl), pd.DataFrame(columns)
    output = StructType([StructField("_0", struct_type(schema))])
    wire_rows = FrameStep(schema, schema).wire_rows
    try:
        verify_pandas_result(
            frame, struct_type(schema), assign_cols_by_name=True, truncate_return_schema=True
        )
        theirs = PandasToArrowConversion.convert(
            [frame], output, timezone="UTC", safecheck=False, arrow_cast=True, assign_cols_by_name=True
        )
    except (PySparkException, pa.ArrowException):
        with pytest.raises(RowMismatch):
            wire_rows(frame)
    else:
        batch = pa.RecordBatch.from_arrays(theirs.column(0).flatten(), names=schema.names)
        assert normal(wire_rows(frame)) == normal(ArrowShape(schema).wire_rows(batch))
