"""Steps with arguments and steps on columns: one run, killed once, gives what Spark's own calls give."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clocks.eventually import eventually
from penstock.dataflow.ddl import parse_schema
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.rows import OutputShape, RowMismatch
from processes.live_processes import kill_tree
from processes.run_harness import Run, read_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPOLOGY = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: steps}
spec:
  code: {module: steps_code}
  operators:
  - name: bids
    source:
      files:
        glob: bids/*.jsonl
        format: jsonl
        schema: "auction int, bidder string, price double"
        ratePerSecond: 900
  - name: dear
    inputs: [bids]
    mapInPandas: steps_code:dear
    args: {least: 500}
    outputSchema: "auction int, bidder string, price double"
  - name: twice
    inputs: [bids]
    mapInArrow: steps_code:twice
    outputSchema: "auction int, price double"
  - name: few
    inputs: [bids]
    map: {function: "steps_code:some_of", args: {bidders: [b1, b2]}}
    outputSchema: "bidder string"
  - name: chosen
    inputs: [bids]
    filter: "price >= 250 AND bidder <> 'b2'"
    select: ["auction", "upper(bidder) AS who", "price / 4 AS quarter", "auction % 2 = 0 AS even"]
  - name: asked
    inputs: [bids]
    map: steps_code:asked
    args: {added: 1}
    calls: {concurrent: 32, timeout: 20s, retries: 50, retryAfter: 1ms}
    outputSchema: "auction int, price double"
  - name: joined
    inputs: [bids]
    transform: steps_code:joined
    args: {least: 100}
    every: 50ms
    maxRows: 1000
    outputSchema: "auction int, title string"
  - name: count
    inputs: [dear]
    keyBy: [auction]
    processor: {class: "steps_code:counting", args: {step: 10}}
    outputSchema: "auction int, total bigint"
    shards: 4
  - {name: dears, inputs: [dear], sink: {files: {path: out/dear}}}
  - {name: twices, inputs: [twice], sink: {files: {path: out/twice}}}
  - {name: fews, inputs: [few], sink: {files: {path: out/few}}}
  - {name: chosens, inputs: [chosen], sink: {files: {path: out/chosen}}}
  - {name: askeds, inputs: [asked], sink: {files: {path: out/asked}}}
  - {name: joineds, inputs: [joined], sink: {files: {path: out/joined}}}
  - {name: totals, inputs: [count], sink: {files: {path: out/count}}}
"""
CODE = """
import asyncio
import random
from typing import Any, Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


def dear(frames, least: float = 0.0) -> Iterator[pd.DataFrame]:
    for frame in frames:
        assert str(frame["auction"].dtype) == "int32"
        yield frame[frame["price"] >= least]


def twice(batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        halves = batch.select(["auction", "price"]).set_column(1, "price", pc.divide(batch["price"], 2.0))
        yield from (halves, halves)


async def asked(row, added: int):
    await asyncio.sleep(random.random() / 1000)
    if random.random() < 0.1:
        raise ConnectionError("away for a moment")
    return [(row.auction + added, row.price)] if row.auction else []


def joined(df, least):
    rows = [(n, f"title {n}") for n in range(9)]
    titles = df.sparkSession.createDataFrame(rows, "auction int, title string")
    assert titles.rdd.getNumPartitions() == 1, "hundreds of tasks for nine rows"
    return df.where(df.price >= least).join(titles, "auction").select("title", "auction")


def some_of(bidders: list[str]):
    wanted = frozenset(bidders)
    return lambda row: [row.bidder] if row.bidder in wanted else []


class Counting(StatefulProcessor):
    def __init__(self, step):
        self.step = step

    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Row]:
        before = self.total.get()
        total = (before[0] if before else 0) + self.step * sum(1 for _ in rows)
        self.total.update((total,))
        yield Row(auction=key[0], total=total)


def counting(step: int) -> Counting:
    return Counting(step)
"""
BIDS = "auction int, bidder string, price double"


def bid(generator: random.Random) -> dict[str, Any]:
    bidder = generator.choice(["b1", "b2", "b3", None])
    return {"auction": generator.randrange(9), "bidder": bidder, "price": generator.randrange(1000) / 1}


def counted(rows: Any) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def written(folder: Path, sink: str) -> Counter[str]:
    return counted(read_rows(folder / "out" / sink))


def test_steps_on_columns_are_sparks_and_count_once_whatever_is_killed(
    spark: SparkSession, tmp_path: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(22)
    bids = [bid(generator) for _ in range(6000)]
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "steps_code.py").write_text(CODE)
    (tmp_path / "bids").mkdir()
    for file in range(2):
        text = "".join(json.dumps(row) + "\n" for row in bids[file::2])
        (tmp_path / f"bids/{file}.jsonl").write_text(text)
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "1"))
    runs.append(run)
    run.start()
    eventually(lambda: sum(written(tmp_path, "twice").values()) > 500, "some rows")
    kill_tree(run.ready_worker("w0").pid)
    assert run.finish() == 0, run.output
    assert run.summary["restarts"] == {"w0": 1}

    monkeypatch.syspath_prepend(str(tmp_path))
    import steps_code  # type: ignore[import-not-found]

    cloudpickle.register_pickle_by_value(sys.modules["steps_code"])
    frame = spark.createDataFrame([tuple(row.values()) for row in bids], BIDS)
    dear = frame.mapInPandas(lambda frames: steps_code.dear(frames, 500), BIDS)
    twice = frame.mapInArrow(steps_code.twice, "auction int, price double")
    assert written(tmp_path, "dear") == counted(json.loads(text) for text in dear.toJSON().collect())
    assert written(tmp_path, "twice") == counted(json.loads(text) for text in twice.toJSON().collect())
    chosen = frame.where("price >= 250 AND bidder <> 'b2'").selectExpr(
        "auction", "upper(bidder) AS who", "price / 4 AS quarter", "auction % 2 = 0 AS even"
    )
    assert written(tmp_path, "chosen") == counted(json.loads(text) for text in chosen.toJSON().collect())
    assert written(tmp_path, "asked") == counted(
        {"auction": row["auction"] + 1, "price": row["price"]} for row in bids if row["auction"]
    )
    assert written(tmp_path, "joined") == counted(
        {"auction": row["auction"], "title": f"title {row['auction']}"} for row in bids if row["price"] >= 100
    )
    assert written(tmp_path, "few") == counted(
        {"bidder": row["bidder"]} for row in bids if row["bidder"] in ("b1", "b2")
    )
    totals: dict[Any, int] = {}
    for row in read_rows(tmp_path / "out" / "count"):
        totals[row["auction"]] = max(totals.get(row["auction"], 0), int(str(row["total"])))
    dears = Counter(row["auction"] for row in bids if row["price"] >= 500)
    assert totals == {auction: 10 * rows for auction, rows in dears.items()}


UTC = pa.timestamp("us", "UTC")
PAIR = pa.struct([("u", pa.int64()), ("v", pa.string())])
BATCHES: dict[str, tuple[str, pa.Array | None, bool]] = {
    "as it is": ("c bigint", pa.array([1, None]), True),
    "narrower": ("c bigint", pa.array([1], pa.int32()), False),
    "without a sign": ("c bigint", pa.array([1], pa.uint64()), False),
    "whole for a fraction": ("c double", pa.array([1]), False),
    "nulls alone": ("c bigint", pa.nulls(1), True),
    "no rows of another type": ("c bigint", pa.array([], pa.string()), True),
    "large text": ("c string", pa.array(["a", None], pa.large_string()), True),
    "large binary": ("c binary", pa.array([b"a"], pa.large_binary()), True),
    "dictionary": ("c string", pa.array(["a", "a"]).dictionary_encode(), False),
    "another zone": ("c timestamp", pa.array([5], pa.timestamp("us", "Europe/Berlin")), True),
    "no zone": ("c timestamp", pa.array([5], pa.timestamp("us")), True),
    "a zone too many": ("c timestamp_ntz", pa.array([5], UTC), True),
    "milliseconds": ("c timestamp", pa.array([5], pa.timestamp("ms", "UTC")), False),
    "date in milliseconds": ("c date", pa.array([86_400_000], pa.date64()), False),
    "another scale": ("c decimal(10,2)", pa.array([Decimal("1.5")], pa.decimal128(10, 1)), True),
    "another precision": ("c decimal(10,2)", pa.array([Decimal("1.50")], pa.decimal128(9, 2)), True),
    "nulls of another type": ("c bigint", pa.array([None], pa.string()), True),
    "a whole number for a time": ("c timestamp", pa.array([5]), True),
    "a time for a whole number": ("c bigint", pa.array([5], UTC), True),
    "a whole number for a date": ("c date", pa.array([5], pa.int32()), True),
    "text for a number": ("c bigint", pa.array(["5"]), False),
    "binary for text": ("c string", pa.array([b"a"]), False),
    "rounded": ("c decimal(10,1)", pa.array([Decimal("1.25"), Decimal("-1.25")]), True),
    "too many digits": ("c decimal(3,2)", pa.array([Decimal("100.25")]), False),
    "array of nulls": ("c array<bigint>", pa.array([[None]]), True),
    "decimal": ("c decimal(10,2)", pa.array([Decimal("-1.50"), None], pa.decimal128(10, 2)), True),
    "struct": ("c struct<u:bigint,v:string>", pa.array([{"u": 1, "v": None}, None], PAIR), True),
    "struct of other names": ("c struct<x:bigint,y:string>", pa.array([{"u": 1, "v": "a"}], PAIR), True),
    "array": ("c array<bigint>", pa.array([[1, None], [], None]), True),
    "array of instants": (
        "c array<timestamp>",
        pa.array([[5]], pa.list_(pa.timestamp("us", "+01:00"))),
        True,
    ),
    "map": ("c map<string,bigint>", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), True),
    "a name": ("other bigint", pa.array([1]), True),
    "columns": ("c bigint, d bigint", pa.array([1]), False),
}


def test_record_batches_are_taken_and_refused_as_by_spark(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for case, (ddl, column, is_taken) in BATCHES.items():
        batch, schema = pa.record_batch([column], names=["c"]), parse_schema(ddl)
        frame = spark.range(1).coalesce(1).mapInArrow(lambda _, batch=batch: iter([batch]), ddl)
        if is_taken:
            theirs = OutputShape(schema).wire_rows(frame.collect())
            ours = ArrowShape(schema).wire_rows(batch)
            assert repr(ours).replace("[", "(") == repr(theirs).replace("[", "("), case
        else:
            with pytest.raises((PySparkException, Py4JJavaError)):
                frame.collect()
            with pytest.raises(RowMismatch):
                ArrowShape(schema).wire_rows(batch)
    spark.conf.unset("spark.sql.session.timeZone")
