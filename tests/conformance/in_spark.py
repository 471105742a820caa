"""Runs processors in Spark itself, in rows and in pandas, each batch a micro-batch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from conformance.case import CASE, Group, Told, told
from conformance.dispatch import Dispatcher
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import NO_TIME, PANDAS, ROWS
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
    batches = [
        [(case.name, *row) for case in cases if number < len(case.batches) for row in case.batches[number]]
        for number in range(max(len(case.batches) for case in cases))
    ]
    for module in {case.processor.__module__ for case in cases} | {Dispatcher.__module__}:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    dispatcher = Dispatcher([case.processor for case in cases], list(merged), pandas=group.form == PANDAS)
    (folder / "input").mkdir(exist_ok=True)
    reader = session.readStream.schema(struct_type(given)).option("maxFilesPerTrigger", 1)
    stream = reader.parquet(str(folder / "input"))
    key = (CASE, *group.key)

    def give(number: int) -> None:
        write_parquet(folder / "input", before + number, batches[number], struct_type(given))

    if group.times_ms:
        made = transformed(stream, key, dispatcher, output, group.form, time_mode=group.time_mode)
        found = run_clocked_query(made, folder, group.times_ms, give)
    else:
        for number in range(len(batches)):
            give(number)
        found = run_query(
            stream, key, dispatcher, output, folder, group.form, lambda frame: frame.toJSON().collect()
        )
    assert len(found) == len(batches), f"{len(found)} micro-batches"
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

    query = (
        transformed(stream, key, processor, output, form)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    return batches


def transformed(
    stream: DataFrame,
    key: Sequence[str],
    processor: StatefulProcessor,
    output: Schema,
    form: str = ROWS,
    output_mode: str = "Update",
    time_mode: str = NO_TIME,
) -> DataFrame:
    """`transformWithState` of `stream`, or `transformWithStateInPandas`, by `form`."""
    grouped = stream.groupBy(*key)
    run = grouped.transformWithStateInPandas if form == PANDAS else grouped.transformWithState
    return run(processor, struct_type(output), output_mode, time_mode)


def run_clocked_query(
    frame: DataFrame,
    folder: Path,
    times_ms: Sequence[int],
    give: Callable[[int], None],
    output_mode: str = "Update",
) -> list[list[str]]:
    """What comes out of each micro-batch, as JSON, by a clock that stands still within each: the batch which
    `give` puts into the input of `frame` begins at its time. Spark's own tests of timers do it so; `start`
    has no argument for the clock, but what stands behind it has."""
    session = frame.sparkSession
    jvm = session._jvm
    none = jvm.scala.Option.empty()
    clock = jvm.org.apache.spark.util.ManualClock(times_ms[0])
    sink = jvm.org.apache.spark.sql.execution.streaming.sources.MemorySink()
    # With timers Spark would begin micro-batches without rows for ever.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    query = session._jsparkSession.streams().startQuery(
        none,
        none,
        jvm.scala.Option.apply(str(folder / "checkpoint")),
        frame.select(functions.to_json(functions.struct("*")))._jdf,
        jvm.PythonUtils.toScalaMap({}),
        sink,
        getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode)(),
        False,  # no checkpoint that goes with the query
        True,
        jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(0),
        clock,
        none,
        none,
    )
    batches: list[list[str]] = []
    try:
        for number, time_ms in enumerate(times_ms):
            clock.setTime(time_ms)
            give(number)
            query.processAllAvailable()
            latest = sink.latestBatchId().getOrElse(None)
            assert latest == number, f"micro-batch {latest} instead of {number}"
            batches.append([row.getString(0) for row in _each(sink.dataSinceBatch(number - 1))])
    finally:
        query.stop()
        session.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    return batches


def _each(rows: Any) -> Iterator[Any]:
    return (rows.apply(number) for number in range(rows.size()))


def _of_case(lines: list[str], name: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, lines) if row[CASE] == name]


def write_parquet(folder: Path, number: int, rows: list[tuple[object, ...]], schema: StructType) -> None:
    """One file for one micro-batch; Spark takes them by age. Structs are given as dicts."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*rows, strict=True))
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, arrow, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=arrow)
    hidden = folder / f".{number}.parquet"
    pq.write_table(table, hidden)
    os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
    hidden.rename(folder / f"{number}.parquet")
