"""Runs processors in Spark itself, in rows and in pandas, each batch a micro-batch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from conformance.case import CASE, Group, Told, told
from conformance.dispatch import Dispatcher
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import PANDAS, ROWS
from penstock.dataflow.schema import Schema
from penstock_worker.values.spark_types import struct_type

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.session.timeZone": "UTC",
}


def in_spark(session: SparkSession, group: Group, folder: Path, before: int = 0) -> dict[str, Told]:
    """Of each case what came out of each batch. `before`: so many batches were taken in `folder` by an
    earlier query, on whose state this one goes on."""
    cases = group.cases
    given = parse_schema(f"{CASE} string, {group.input}")
    outputs = {case.name: parse_schema(case.output) for case in cases}
    merged = {column.name: column for output in outputs.values() for column in output.columns}
    output = Schema((parse_schema(f"{CASE} string").columns[0], *merged.values()))
    batches = max(len(case.batches) for case in cases)
    for number in range(batches):
        rows = [
            (case.name, *row) for case in cases if number < len(case.batches) for row in case.batches[number]
        ]
        write_parquet(folder / "input", before + number, rows, struct_type(given))
    for module in {case.processor.__module__ for case in cases} | {Dispatcher.__module__}:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    dispatcher = Dispatcher([case.processor for case in cases], list(merged), pandas=group.form == PANDAS)
    stream = session.readStream.schema(struct_type(given)).option("maxFilesPerTrigger", 1)
    found = run_query(
        stream.parquet(str(folder / "input")),
        (CASE, *group.key),
        dispatcher,
        output,
        folder,
        group.form,
        lambda frame: frame.toJSON().collect(),
    )
    assert len(found) == batches, f"{len(found)} micro-batches"
    return {
        case.name: [told(_of_case(lines, case.name), outputs[case.name].names) for lines in found]
        for case in cases
    }


def run_query(
    stream: DataFrame,
    key: Sequence[str],
    processor: StatefulProcessor,
    output: Schema,
    folder: Path,
    form: str = ROWS,
    take: Callable[[DataFrame], list[Any]] = DataFrame.collect,
) -> list[list[Any]]:
    """What `take` makes of what comes out of each micro-batch; by default its Rows."""
    batches: list[list[Any]] = []

    def keep(frame: DataFrame, _: int) -> None:
        batches.append(take(frame))

    grouped = stream.groupBy(*key)
    run = grouped.transformWithStateInPandas if form == PANDAS else grouped.transformWithState
    query = (
        run(processor, struct_type(output), "Update", "None")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    return batches


def _of_case(lines: list[str], name: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, lines) if row[CASE] == name]


def write_parquet(folder: Path, number: int, rows: list[tuple[object, ...]], schema: StructType) -> None:
    """One file for one micro-batch; Spark takes them by age. Structs are given as dicts."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*rows, strict=True))
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, arrow, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=arrow)
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
