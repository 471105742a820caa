"""Starts Spark once while the worker's image is built, so that the JVM writes an archive of its classes.

A JVM that maps the archive need not read, check and link them anew: a session is up in about half the time.
The options that an archive depends on are those of `penstock_worker.spark.session`; where they, or the jars,
differ from what it was made with, the JVM goes on without it. Run by images/worker/Dockerfile.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

END_S = 120
BYTES_MIN = 1_000_000


def main(archive: Path) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off"
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        "--driver-memory 512m --driver-java-options -XX:+UseSerialGC pyspark-shell"
    )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    session.sparkContext.parallelize([1, 2], 2).map(lambda number: number + 1).sum()
    gateway = session.sparkContext._gateway  # noqa: SLF001 - who waits for the JVM needs its process
    session.stop()
    # The JVM ends when nobody is at the other end of its standard input, and writes the archive last.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S)
    if archive.stat().st_size < BYTES_MIN:
        sys.exit(f"{archive} holds no classes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
