"""The peer between two topics of Kafka: Spark Structured Streaming with its own connector, and the bench's
counting processor.

`python -m bench.spark_kafka_peer RUN.json` runs one query until its stop file is there. Spark's sink writes
at least once. Neighbours: `spark_peer` has the session and the count, `kafka_sides` starts this.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bench.spark_peer import Run, batch_figures, count, session
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it
from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class KafkaRun(Run):
    """A run of the peer that reads topic `source` from its first record and writes topic `sink`."""

    bootstrap: str = ""
    source: str = ""
    sink: str = ""


def start(spark: SparkSession, run: KafkaRun) -> StreamingQuery:
    """The query, one micro-batch after the other."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", run.bootstrap)
        .option("subscribe", run.source)
        .option("startingOffsets", "earliest")
    )
    if run.settings.max_records:
        records = records.option("maxOffsetsPerTrigger", run.settings.max_records)
    rows = records.load().select(F.from_json(F.col("value").cast("string"), "key bigint").alias("row"))
    return (
        count(rows.select("row.key"))
        .select(F.col("key").cast("string").alias("key"), F.to_json(F.struct("key", "total")).alias("value"))
        .writeStream.format("kafka")
        .outputMode("append")
        .option("kafka.bootstrap.servers", run.bootstrap)
        .option("topic", run.sink)
        .option("checkpointLocation", str(run.checkpoint))
        .start()
    )


def main(path: str) -> None:
    """Run until the stop file is there. A query that fails ends the process with its error."""
    run = msgspec.json.decode(Path(path).read_bytes(), type=KafkaRun)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(run.settings)
    query = start(spark, run)
    run.started.touch()
    while not run.stop.exists():
        query.awaitTermination(0.2)
        run.batches.write_text(json.dumps([batch_figures(progress) for progress in query.recentProgress]))
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
