"""A transform's function with real Spark: what it is given, what of it comes back, what is refused, and whose
fault that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Transform
from penstock.testing import Misuse, TopologyTest
from penstock_worker.spark.batch_calls import BatchUser
from penstock_worker.spark.batch_door import BatchDoor, transforming_through
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.user_code.transform_code import TransformCode
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.arrow_rows import ArrowRows, unpacked

GIVEN = parse_schema("word string, n int, at timestamp, amount decimal(9,2), many array<int>")
AT_US = 1_700_000_000_000_001
ROWS = [("a", 1, AT_US, "12.50", [1, 2]), ("b", 2, None, None, None), (None,) * 5]
CODE = """
import pandas as pd
from pyspark.sql import Window
from pyspark.sql import functions as F

calls = []


def same(df):
    return df.select("many", "amount", "at", "n", "word", F.lit(1).alias("further"))


def numbered(df, begin):
    window = Window.orderBy("n")
    return df.where("n is not null").select(F.row_number().over(window).alias("n"), "word").withColumn(
        "n", F.col("n") + begin
    )


def in_python(df):
    @F.pandas_udf("int")
    def twice(column: pd.Series) -> pd.Series:
        return column * 2

    return df.where("n is not null").select("word", twice("n").alias("n"))


def making(begin):
    calls.append(begin)
    return lambda df: numbered(df, begin)


def none(df):
    df.count()


def narrow(df):
    return df.select("word")


def other(df):
    return df.selectExpr("word", "cast(n as bigint) AS n")


def twice_n(df):
    return df.select("word", "n", df.n.alias("n"))


def raises(df):
    raise ValueError("the table is gone")


def unknown(df):
    return df.select("nowhere")


def divides(df):
    return df.selectExpr("word", "cast(1 / (n - 2) as int) AS n")
"""
WORDS = parse_schema("word string, n int")
PAIRS = (
    "numbered",
    "making",
    "in_python",
    "none",
    "narrow",
    "other",
    "twice_n",
    "raises",
    "unknown",
    "divides",
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "transform_code.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def door(spark: SparkSession, folder: Path) -> Iterator[BatchDoor]:
    outputs = {"same": GIVEN, **dict.fromkeys(PAIRS, WORDS)}
    arguments = dict.fromkeys(("numbered", "making"), '{"begin": 10}')
    users = {
        name: BatchUser(
            GIVEN,
            TransformCode(name, Transform(f"transform_code:{name}", arguments.get(name, "")), output, folder),
        )
        for name, output in outputs.items()
    }
    door = BatchDoor(spark, users)
    yield door
    door.close()


def made(door: BatchDoor, name: str, number: int = 1) -> list[tuple[object, ...]]:
    packed = transforming_through(door.path, name)(number, len(ROWS), ArrowRows(GIVEN).packed(ROWS))
    shape = ArrowShape(GIVEN if name == "same" else WORDS)
    return [row for batch in unpacked(packed).to_batches() for row in shape.wire_rows(batch)]


def test_columns_come_back_by_name_as_they_went(door: BatchDoor) -> None:
    assert made(door, "same") == ROWS


def test_all_of_spark_sql_is_there_python_too(door: BatchDoor, folder: Path) -> None:
    assert made(door, "numbered") == [("a", 11), ("b", 12)]
    assert made(door, "in_python") == [("a", 2), ("b", 4)]
    assert made(door, "making") == made(door, "making", 2) == [("a", 11), ("b", 12)]
    import transform_code  # type: ignore[import-not-found]

    assert transform_code.calls == [10]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none", "returned None; a transform returns a DataFrame"),
        ("narrow", "returned the columns word; outputSchema has 'n' too"),
        ("other", "column 'n' is bigint, and outputSchema says int; cast it"),
        ("twice_n", "returned 2 columns 'n'; keep one of them"),
    ],
)
def test_what_can_be_right_for_no_batch_fails_whatever_the_rows(
    door: BatchDoor, name: str, told: str
) -> None:
    with pytest.raises(WorkFailed) as failed:
        made(door, name, 7)
    text = str(failed.value)
    assert text.startswith(f"operator {name}: transform_code:{name}, on micro-batch 7, of 3 rows:\n{told}")
    assert 'transform_code.py", line' in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "operator raises: transform_code:raises raised on micro-batch 1, of 3 rows\n"),
        ("unknown", "operator unknown: transform_code:unknown raised on micro-batch 1, of 3 rows\n"),
        ("divides", "operator divides: the Spark job of transform_code:divides failed on micro-batch 1"),
    ],
)
def test_what_it_raises_may_be_the_rows_fault(door: BatchDoor, name: str, told: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        made(door, name)
    assert str(raised.value).startswith(told)
    assert raised.value.operator == name


MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: transformed}
spec:
  code: {module: transform_code}
  operators:
  - name: words
    source: {files: {glob: '*', format: jsonl, schema: "word string, n int"}}
  - name: shares
    inputs: [words]
    transform: transform_code:divides
    every: 50ms
    outputSchema: "word string, n int"
    onError: DeadLetter
  - {name: out, inputs: [shares], sink: {console: {}}}
"""


def test_a_users_test_has_transforms_worked_out_by_a_session_of_its_own(
    spark: SparkSession, folder: Path
) -> None:
    (folder / "topology.yaml").write_text(MANIFEST)
    with pytest.raises(Misuse, match="shares is a transform, which Spark works out"):
        TopologyTest.of(folder / "topology.yaml")
    with TopologyTest.of(folder / "topology.yaml", spark=spark) as topology:
        topology.feed("words", [("a", 3), ("b", 2), ("c", 1)])
        assert topology.rows("out") == [{"word": "a", "n": 1}, {"word": "c", "n": -1}]
        topology.feed("words", [("d", 4)])
        assert topology.take("shares")[2:] == [{"word": "d", "n": 0}]
        assert topology.replay("shares") == 1
        (letter,) = topology.dead_letters("shares")
        assert (letter.rows, letter.key, letter.attempts) == ([{"word": "b", "n": 2}], None, 2)
