"""The worker's one Spark session: `local[slots]`, small, quiet, and with our daemon for tasks.

A slot is no core: it only admits a resident task. The JVM's settings are for a driver that schedules a
handful of long tasks: serial collector, client compiler, small stacks and code cache. With the
defaults the JVM alone is about 200 MiB larger.
"""

from __future__ import annotations

import os
import sys

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.dataflow.plan import Plan
from penstock.errors import PermanentError
from penstock_worker.spark_environment import nameless_user_options

DATAFRAME_JOBS_MAX = 2
"""Slots beside those of resident tasks, for jobs on DataFrames."""
TASK_SLOTS_MIN = 256
"""More than a worker's cores are worth: `tasks` and `cores` of a topology change, the session stays."""
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-Xss512k",
    # The JVM begins with a 64th of the machine's memory, and Spark's start touches all of its young part.
    "-Xms64m",
    "-XX:MaxNewSize=32m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
)
HEAP_MIB = 512
"""Spark refuses a heap under 450 MiB; what the driver really touches is about 100."""


def slots(plan: Plan) -> int:
    """How many tasks the session must admit at once."""
    return max(TASK_SLOTS_MIN, sum(stage.tasks.max for stage in plan.stages)) + DATAFRAME_JOBS_MAX


def start_session(plan: Plan, worker: str) -> SparkSession:
    """Start the JVM and the session; takes about 6 s on two cores. Raises PermanentError without a JVM."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = (*_JVM_OPTIONS, *nameless_user_options())
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-memory {HEAP_MIB}m --driver-java-options '{' '.join(options)}' pyspark-shell"
    )
    builder = (
        SparkSession.builder.master(f"local[{slots(plan)}]")
        .appName(f"penstock {plan.topology} {worker}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "penstock_worker.task_daemon")
        .config("spark.python.worker.reuse", "false")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.shuffle.partitions", "1")
    )
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise PermanentError(f"Spark does not start; what it wrote stands above ({error})") from error
    session.sparkContext.setLogLevel("ERROR")
    return session
