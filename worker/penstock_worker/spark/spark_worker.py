"""`python -m penstock_worker.spark.spark_worker [LAUNCH.json]`: a Spark worker for one worker's remote tasks.

It becomes Spark's own process: joins that worker's master, and starts the executor in which the tasks run.
When the master is gone for good it ends. Neighbours: `spark.cluster` is the other end, `spark.places` sends
tasks here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pyspark

from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch, spark_secret, spark_worker_launch_from
from penstock.errors import PenstockError
from penstock_worker.spark.cluster import WORKER_MEMORY_MIB, network_settings
from penstock_worker.spark.environment import (
    JVM_OPTIONS,
    nameless_user_options,
    prepare,
    scratch_folder,
)
from penstock_worker.spark.places import ENV_PLACE

SLOTS = 4096
"""A slot is no core: how many tasks run here the schedule says."""
_HEAP_MIB = 128


def main(arguments: list[str]) -> NoReturn:
    try:
        environment = prepare()
        launch = _launch(arguments, environment)
        secret = spark_secret(launch.key_file, launch.home_uid)
    except PenstockError as error:
        sys.exit(f"Spark worker: {error}")
    command = spark_command(launch)
    os.execve(  # noqa: S606 - this process becomes Spark's
        command[0], command, spark_environment(launch, secret, environment)
    )


def _launch(arguments: list[str], environment: Mapping[str, str]) -> SparkWorkerLaunch:
    if not arguments:
        return spark_worker_launch_from(environment)
    return SparkWorkerLaunch.model_validate_json(Path(arguments[0]).read_text(encoding="utf-8"))


def spark_command(launch: SparkWorkerLaunch) -> list[str]:
    """Spark's own program, and what it is told; its folder is made."""
    return [
        str(Path(pyspark.__path__[0]) / "bin" / "spark-class"),
        *("org.apache.spark.deploy.worker.Worker", "--host", launch.host, "--webui-port", "0"),
        *(
            "--cores",
            str(SLOTS),
            "--memory",
            f"{WORKER_MEMORY_MIB}m",
            "--work-dir",
            scratch_folder(launch.folder),
        ),
        launch.master,
    ]


def spark_environment(launch: SparkWorkerLaunch, secret: str, given: Mapping[str, str]) -> dict[str, str]:
    """The secret goes by the variable that Spark itself uses: command lines are for everybody to read."""
    settings = network_settings(secret)
    del settings["spark.authenticate.secret"]
    options = [
        *JVM_OPTIONS,
        *nameless_user_options(),
        *(f"-D{name}={value}" for name, value in settings.items()),
    ]
    return {
        **given,
        ENV_PLACE: launch.node,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": " ".join(options),
        "SPARK_DAEMON_MEMORY": f"{_HEAP_MIB}m",
        # Its web page stays off the network; where it listens for Spark stands in its arguments.
        "SPARK_LOCAL_IP": given.get("SPARK_LOCAL_IP", "127.0.0.1"),
        "_SPARK_AUTH_SECRET": secret,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
