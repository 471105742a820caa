"""Rows and keys at the edges: Penstock takes what Spark's own transformWithState takes, and makes the same of
it.

Where they differ it stands here and in docs/topology.md: Penstock refuses what Spark would cut without a
word, and hands rows with NaN in their key over together. Neighbour: `test_same_as_spark`.
"""

from __future__ import annotations

import datetime
import decimal
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from backends.store_backends import MemoryBackend
from conformance.in_penstock import SHARDS, InPenstock
from conformance.in_spark import run_query
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.schema import Schema
from penstock.store.port import Bounds
from penstock_worker.values.rows import OutputShape, RowMismatch, RowReader
from penstock_worker.values.spark_types import struct_type
from scenes.store_scenario import Scene

pytestmark = pytest.mark.integration

WORD = parse_schema("word string")
WIDE = parse_schema(
    "case string, n long, t tinyint, x double, d date, at timestamp, w string, a array<long>, "
    "s struct<x:int,y:int>, m decimal(10,2)"
)
TAKEN: list[Callable[[], Row]] = [
    lambda: Row(case="missing columns are null"),
    lambda: Row(nobody=1, case="a column that nobody knows is dropped", knows=2),
    lambda: Row(n=1, case="names decide, not places"),
    lambda: Row(case="4.0", n=4.0, t=4.0, a=[4.0, 1]),
    lambda: Row(case="numpy", n=np.int32(4), t=np.float64(4), x=np.float32(1.5), w=np.str_("x")),
    lambda: Row(case="decimals", n=decimal.Decimal(4), m=1),
    lambda: Row(case="whole", x=1),
    lambda: Row(case="midnight", d=datetime.datetime(2020, 1, 1)),  # noqa: DTZ001 - as users write it
    lambda: Row(case="pandas", at=pd.Timestamp("2024-01-01")),
    lambda: Row(case="struct", s=Row(x=1)),
    lambda: Row(case="struct by names", s={"y": 2, "z": 3}),
]
REFUSED: dict[str, Callable[[], Row]] = {
    "no time": lambda: Row(at=pd.NaT),
    "too large": lambda: Row(t=300),
}


class Giving(StatefulProcessor):
    """Yields what `make` makes, for each key."""

    def __init__(self, make: Callable[[], list[Row]]) -> None:
        self._make = make

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - pyspark's
        yield from self._make()


class Keys(StatefulProcessor):
    """Tells each call: the key as it comes, how many rows, how many rows of this key in all."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - pyspark's
        count = len(list(rows))
        before = self.total.get()
        total = count + (before[0] if before else 0)
        self.total.update((total,))
        yield Row(
            key=repr(key).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc"), n=count, all=total
        )


def in_spark(
    streaming: SparkSession,
    folder: Path,
    processor: StatefulProcessor,
    given: Schema,
    rows: list[Any],
    output: Schema,
) -> list[Row]:
    """What comes out for rows of which all columns are the key."""
    schema = struct_type(given)
    streaming.createDataFrame(rows, schema).coalesce(1).write.parquet(str(folder / "input"))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    stream = streaming.readStream.schema(schema).parquet(str(folder / "input"))
    return [row for batch in run_query(stream, given.names, processor, output, folder) for row in batch]


def in_penstock(
    processor: type[StatefulProcessor], given: Schema, rows: list[Any], output: Schema
) -> list[Row]:
    """The same, by the worker's parts in one batch."""
    scene = Scene(MemoryBackend().open_store(bounds=Bounds())).set_up(*SHARDS)
    return InPenstock(scene, processor, given, given.names, output).batch(rows)


@pytest.mark.timeout(240)
def test_rows_that_spark_takes_are_taken_and_become_the_same(streaming: SparkSession, tmp_path: Path) -> None:
    made = Giving(lambda: [make() for make in TAKEN])
    theirs = in_spark(streaming, tmp_path, made, WORD, [("a",)], WIDE)
    wire_rows = OutputShape(WIDE).wire_rows([make() for make in TAKEN])
    expected = streaming.createDataFrame(list(RowReader(WIDE).rows(wire_rows)), struct_type(WIDE)).collect()
    assert len(theirs) == len(TAKEN)
    assert sorted(map(repr, theirs)) == sorted(map(repr, expected))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_spark_refuses_are_refused(case: str, streaming: SparkSession, tmp_path: Path) -> None:
    make = REFUSED[case]
    with pytest.raises(Exception, match="STREAM_FAILED"):
        in_spark(streaming, tmp_path, Giving(lambda: [make()]), WORD, [("a",)], WIDE)
    with pytest.raises(RowMismatch):
        OutputShape(WIDE).wire_rows([make()])


@pytest.mark.timeout(240)
def test_what_spark_cuts_without_a_word_is_refused(streaming: SparkSession, tmp_path: Path) -> None:
    def make() -> Row:
        return Row(case="cut", n=4.5, d=datetime.datetime(2020, 1, 1, 5))  # noqa: DTZ001 - as users write it

    (theirs,) = in_spark(streaming, tmp_path, Giving(lambda: [make()]), WORD, [("a",)], WIDE)
    assert (theirs.n, theirs.d) == (4, datetime.date(2020, 1, 1))
    for column in ("n", "d"):
        with pytest.raises(RowMismatch, match=f"column '{column}'"):
            OutputShape(WIDE).wire_rows([Row(**{column: make()[column]})])


CALLS = parse_schema("key string, n long, all long")


@pytest.mark.timeout(240)
def test_keys_that_are_structs_come_as_spark_passes_them(streaming: SparkSession, tmp_path: Path) -> None:
    given = parse_schema("s struct<a:int,b:string,c:struct<at:timestamp,d:decimal(4,1)>>, n int")
    at = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    inner = Row(at=at, d=decimal.Decimal("1.5"))
    rows = [
        (Row(a=1, b="x", c=inner), 1),
        (Row(a=1, b="x", c=inner), 1),
        (Row(a=1, b="x", c=inner), 2),
        (Row(a=None, b="x", c=None), 1),
        (None, 1),
    ]
    theirs = in_spark(streaming, tmp_path, Keys(), given, rows, CALLS)
    ours = in_penstock(Keys, given, rows, CALLS)
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


@pytest.mark.timeout(240)
def test_rows_with_nan_in_their_key_are_one_call_where_spark_makes_one_each_on_one_state(
    streaming: SparkSession, tmp_path: Path
) -> None:
    given = parse_schema("x double")
    rows = [(math.nan,), (-math.nan,), (0.0,), (-0.0,)]
    theirs = in_spark(streaming, tmp_path, Keys(), given, rows, CALLS)
    ours = in_penstock(Keys, given, rows, CALLS)
    calls = [(row.n, row["all"]) for row in sorted(theirs, key=lambda row: row["all"]) if "nan" in row.key]
    assert calls == [(1, 1), (1, 2)]
    assert [(row.n, row["all"]) for row in ours if "nan" in row.key] == [(2, 2)]
    assert [row for row in ours if "nan" not in row.key] == [row for row in theirs if "nan" not in row.key]
