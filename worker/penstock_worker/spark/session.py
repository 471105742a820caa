"""The worker's one Spark session: small, quiet, and with our daemon for tasks. It is `local[slots]`, or with
remote tasks on the worker's own standalone master.

A slot is no core: it only admits a resident task. Neighbours: `spark.cluster` is that master, `spark.places`
says where tasks run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.api.launch.spark_worker_launch import MASTER_PORT, spark_secret
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.plan import Plan
from penstock.errors import PermanentError
from penstock_worker.spark.cluster import OwnMaster, start_master
from penstock_worker.spark.environment import JVM_OPTIONS, nameless_user_options, scratch_folder
from penstock_worker.spark.jvm_watch import ending
from penstock_worker.spark.places import OnlyHome, Places, SparkPlaces

DATAFRAME_JOBS_MAX = 2
"""Slots beside those of resident tasks, for jobs on DataFrames."""
TASK_SLOTS_MIN = 256
"""More than a worker's cores are worth: `tasks` and `cores` of a topology change, the session stays."""
_TELL_ENDS = (
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
_LOOPBACK = "127.0.0.1"
_END_S = 1.0
HEAP_MIB = 512
"""Spark refuses a heap under 450 MiB; what the driver really touches is about 100."""


def slots(plan: Plan) -> int:
    """How many tasks the session must admit at once."""
    return max(TASK_SLOTS_MIN, sum(stage.tasks.max for stage in plan.stages)) + DATAFRAME_JOBS_MAX


@dataclass(frozen=True, slots=True)
class WorkerSession:
    """`jvm` is the process that it lives in. `master` is None for a session that is all in one process."""

    spark: SparkSession
    jvm: subprocess.Popen[bytes]
    places: Places
    master: OwnMaster | None = None

    def stop(self) -> None:
        """End the session; a JVM that has gone before has ended it already."""
        with suppress(Py4JError, OSError):
            self.spark.stop()


def start_session(plan: Plan, launch: WorkerLaunch) -> WorkerSession:
    """Start the JVM and the session; takes about 6 s on two cores. Raises PermanentError without a JVM."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    options = " ".join((*JVM_OPTIONS, *nameless_user_options()))
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-memory {HEAP_MIB}m --driver-java-options '{options}' pyspark-shell"
    )
    name = f"penstock {plan.topology} {launch.worker}"
    folder = scratch_folder(launch.spark_folder) if launch.spark_folder or plan.remote_tasks else ""
    try:
        if not plan.remote_tasks:
            local = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
            spark = _session(f"local[{slots(plan)}]", name, local, folder)
            return WorkerSession(spark, _jvm(), OnlyHome(spark.sparkContext))
        port = MASTER_PORT if launch.runtime == "cluster" else 0
        secret = spark_secret(launch.spark_key_file, launch.uid)
        master = start_master(launch.spark_host, port, secret, slots(plan), folder)
        spark = _session(master.url, name, master.settings(options), folder)
    except PySparkRuntimeError as error:
        raise PermanentError(f"Spark does not start; what it wrote stands above ({error})") from error
    except (Py4JError, OSError) as error:
        jvm = _jvm()
        with suppress(subprocess.TimeoutExpired):
            raise PermanentError(f"its JVM {ending(jvm.wait(_END_S))} as Spark started") from error
        raise
    places = SparkPlaces(spark.sparkContext)
    places.await_home(_jvm())
    return WorkerSession(spark, _jvm(), places, master)


def _jvm() -> subprocess.Popen[bytes]:
    """The process that Spark's driver has started; pyspark keeps it with its gateway."""
    process: subprocess.Popen[bytes] = SparkContext._gateway.proc  # noqa: SLF001 - and has no other way to it
    return process


@contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """pyspark makes a folder as it starts the JVM. Who is killed meanwhile leaves it where the worker's next
    start clears it away."""
    before, tempfile.tempdir = tempfile.tempdir, folder or tempfile.tempdir
    try:
        yield
    finally:
        tempfile.tempdir = before


def _session(master: str, name: str, settings: Mapping[str, str], folder: str) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.python.daemon.module", "penstock_worker.spark.task_daemon")
        .config("spark.python.worker.reuse", "false")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.shuffle.partitions", "1")
        # What users' functions make of a list: Spark would cut it into as many parts as there are slots.
        .config("spark.default.parallelism", "1")
        .config(map=dict(settings))
    )
    with _temporary_files_in(folder):
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _silence(session.sparkContext)
    return session


def _silence(context: SparkContext) -> None:
    """Spark says nothing of a task's end: the main process tells it, in a sentence, to whom it concerns."""
    log4j = context._jvm.org.apache.logging.log4j  # noqa: SLF001 - pyspark has one level for all
    for name in _TELL_ENDS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
