"""The peer: Spark Structured Streaming in micro-batches, running the bench's counting processor, or windows.

`python -m bench.spark_peer RUN.json` runs one query until its stop time and logs what comes out
(`sink_log`). It only runs and logs: the bench that started it counts its processes' CPU and works out the
figures. How Spark is set up is not decided here but in `spark_settings.json`, which `spark_sweep` writes.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from bench import filtering_keys, sink_log
from bench.counting import OUTPUT_SCHEMA, Count
from bench.spark_source import LoadSource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import StructType

from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.window import COUNT, Aggregate, Tumbling, WindowAggregation
from penstock_worker.values.spark_types import struct_type
from penstock_worker.windows.processors import window_processor

WINDOW_MS = 10_000
WINDOW = "10 seconds"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the sweep may turn. `conf` goes to Spark as it is."""

    cores: int = 2
    shuffle_partitions: int = 2
    source_partitions: int = 1
    sink: str = "foreach_batch"
    """foreach_batch (the driver collects) or writer (a Python data sink in the query's own tasks)."""
    max_records: int = 0
    """Most records of one micro-batch; 0 is all that is due."""
    changelog: bool = True
    """RocksDB's changes are logged at each commit; False uploads a whole snapshot each time."""
    conf: dict[str, str] = field(default_factory=dict)
    """Further configuration, passed to Spark as it is."""

    def spark_conf(self) -> dict[str, str]:
        """All of it as Spark's configuration."""
        prefix = "spark.sql.streaming.stateStore"
        return {
            "spark.master": f"local[{self.cores}]",
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions),
            f"{prefix}.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            f"{prefix}.rocksdb.changelogCheckpointing.enabled": str(self.changelog).lower(),
            "spark.ui.enabled": "false",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.log.level": "ERROR",
            **self.conf,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the peer, and the names that it shares with the bench, all below `folder`.

    The bench writes `plan.json` (`load.write_plan`) before the start and creates `stop` to end the run. The
    peer creates `started` when its query takes records, fills `log/` (`sink_log`) and leaves Spark's own
    times of the last hundred batches in `progress.json`.
    """

    folder: str
    settings: Settings
    query: str = "count"
    """count (the log has key and total), or windows, or windows_in_python (a window's end in microseconds
    and its count), or filter, or filter_in_arrow (a key and its double)."""

    @property
    def plan(self) -> Path:
        return Path(self.folder, "plan.json")

    @property
    def log(self) -> Path:
        return Path(self.folder, "log")

    @property
    def stop(self) -> Path:
        return Path(self.folder, "stop")

    @property
    def started(self) -> Path:
        return Path(self.folder, "started")

    @property
    def progress(self) -> Path:
        return Path(self.folder, "progress.json")

    @property
    def batches(self) -> Path:
        """JSON: [[when it began in s since 1970, how long it took in s, records], ...]"""
        return Path(self.folder, "batches.json")

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder, "checkpoint")


class LogWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Takes a task's output to its end, at which its state is committed, then notes the time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batches = list(iterator)
        at_us = time.time_ns() // 1000
        if batches:
            _log(Path(self._folder), at_us, pa.Table.from_batches(batches))
        return WriterCommitMessage()


class LogSink(DataSource):  # type: ignore[misc]
    """`writeStream.format("log")`. Option: log (a folder)."""

    @classmethod
    def name(cls) -> str:
        return "log"

    def streamWriter(  # noqa: N802  # pyspark's own method name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        return LogWriter(self.options["log"])


def _log(folder: Path, at_us: int, table: Any) -> None:
    sink_log.append(folder, at_us, table.column(0).to_numpy(), table.column(1).to_numpy())


def session(settings: Settings) -> SparkSession:
    """A Spark session under these settings, with the bench's source and sink."""
    builder = SparkSession.builder.appName("spark-micro-batch")
    for name, value in settings.spark_conf().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(LoadSource)
    spark.dataSource.register(LogSink)
    return spark


def count(records: DataFrame) -> DataFrame:
    """A running total per key."""
    return records.groupBy("key").transformWithState(
        statefulProcessor=Count(), outputStructType=OUTPUT_SCHEMA, outputMode="Append", timeMode="None"
    )


def timed(records: DataFrame) -> DataFrame:
    """With an event time: when a record was due. Nothing may come late."""
    return records.select("key", F.timestamp_micros("at_us").alias("at")).withWatermark("at", "0 seconds")


def windows(records: DataFrame) -> DataFrame:
    """Spark's own windows, which the JVM counts."""
    grouped = timed(records).groupBy(F.window("at", WINDOW), "key").count()
    return grouped.select(F.unix_micros("window.end"), "count")


def windows_in_python(records: DataFrame) -> DataFrame:
    """Penstock's windows as a processor in Spark."""
    given = Schema((Column("key", "bigint"), Column("at", "timestamp")))
    counted = WindowAggregation(Tumbling(WINDOW_MS), "at", (Aggregate("records", COUNT),))
    found = (
        timed(records)
        .groupBy("key")
        .transformWithState(
            window_processor(counted, given, (0,)),
            struct_type(counted.output(given, (0,))),
            "Append",
            "EventTime",
        )
    )
    return found.select(F.unix_micros("windowEnd"), "records")


def filtered(records: DataFrame) -> DataFrame:
    """Spark's own expressions, which the JVM works out."""
    return filtering_keys.in_spark(records)


def filtered_in_arrow(records: DataFrame) -> DataFrame:
    return records.mapInArrow(filtering_keys.in_arrow, "key bigint, twice bigint")


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "count": count,
    "windows": windows,
    "windows_in_python": windows_in_python,
    "filter": filtered,
    "filter_in_arrow": filtered_in_arrow,
}


def start(spark: SparkSession, run: Run) -> StreamingQuery:
    """The query, one micro-batch after the other."""
    records = (
        spark.readStream.format("load")
        .option("plan", str(run.plan))
        .option("partitions", run.settings.source_partitions)
        .option("max_records", run.settings.max_records)
        .load()
    )
    writer = (
        QUERIES[run.query](records)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(run.checkpoint))
    )
    if run.settings.sink == "writer":
        return writer.format("log").option("log", str(run.log)).start()

    def collect(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001  # Spark passes it
        table = batch.toArrow()
        _log(run.log, time.time_ns() // 1000, table)

    return writer.foreachBatch(collect).start()


def batch_figures(progress: StreamingQueryProgress) -> tuple[float, float, int]:
    began = datetime.datetime.fromisoformat(progress.timestamp)
    return began.timestamp(), progress.durationMs.get("triggerExecution", 0) / 1000, progress.numInputRows


def main(path: str) -> None:
    """Run until the stop file is there. A query that fails ends the process with its error."""
    run = msgspec.json.decode(Path(path).read_bytes(), type=Run)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(run.settings)
    query = start(spark, run)
    run.started.touch()
    while not run.stop.exists():
        query.awaitTermination(0.2)
    recent = query.recentProgress
    run.progress.write_text(json.dumps([dict(progress.durationMs) for progress in recent]))
    run.batches.write_text(json.dumps([batch_figures(progress) for progress in recent]))
    query.stop()
    spark.stop()


def write_run(path: Path, run: Run) -> None:
    """What `main` reads."""
    path.write_bytes(msgspec.json.encode(asdict(run)))


if __name__ == "__main__":
    main(sys.argv[1])
