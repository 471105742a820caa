"""The worker's own Spark standalone master with one Spark worker beside it, for `remoteTasks: Allowed`.

Both run in the driver's JVM (as Spark's `local-cluster` has them), so that they cost no process of their own
and end with it; the Spark worker starts one executor, the process that tasks at home run in. Spark workers of
other nodes (`spark_worker`) join the same master. Neighbours: `spark.session` starts the session on it,
`spark.places` says which executor is where.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext

from penstock.errors import PermanentError
from penstock_worker.spark.places import ENV_PLACE

EXECUTOR_HEAP_MIB = 512
WORKER_MEMORY_MIB = 1024
"""What a Spark worker offers: one executor, no two."""


@dataclass(frozen=True, slots=True)
class OwnMaster:
    """What a session needs of it. `url` is spark://host:port."""

    url: str
    host: str
    secret: str

    def settings(self, executor_options: str) -> Mapping[str, str]:
        """Of the session. A task that fails is started by us, on purpose, and never by Spark. The waits are
        how a task is pinned to an executor; the timeouts are how long the loss of a node may go unnoticed."""
        return {
            **network_settings(self.secret),
            "spark.driver.bindAddress": self.host,
            "spark.driver.host": self.host,
            "spark.executor.memory": f"{EXECUTOR_HEAP_MIB}m",
            "spark.executor.extraJavaOptions": executor_options,
            "spark.executor.heartbeatInterval": "3s",
            "spark.executor.logs.rolling.maxRetainedFiles": "2",
            "spark.executor.logs.rolling.maxSize": str(16 << 20),
            "spark.executor.logs.rolling.strategy": "size",
            "spark.locality.wait": "30d",
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s",
            "spark.task.maxFailures": "1",
        }


def network_settings(secret: str) -> dict[str, str]:
    """Of everybody who takes part: who has not the secret is refused, and what is sent is encrypted."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }


def start_master(host: str, port: int, secret: str, slots: int, folder: str) -> OwnMaster:
    """Start the driver's JVM, the master and the Spark worker of this node. Raises PermanentError.

    `slots` is how many tasks each Spark worker may hold; `folder` is for its executor's files.
    """
    os.environ[ENV_PLACE] = ""
    # The settings come later: what is given to the JVM as it starts stands in its command line.
    SparkContext._ensure_initialized()  # noqa: SLF001 - the only way to a JVM without a session
    gateway = SparkContext._gateway  # noqa: SLF001
    try:
        jvm = gateway.jvm
        settings = jvm.org.apache.spark.SparkConf()
        for name, value in network_settings(secret).items():
            settings.set(name, value)
        settings.set("spark.master.rest.enabled", "false")
        settings.set("spark.deploy.maxExecutorRetries", "-1")
        settings.set("spark.worker.timeout", "20")
        master = jvm.org.apache.spark.deploy.master.Master
        network = master.startRpcEnvAndEndpoint(host, port, 0, settings).productElement(0)
        url = network.address().toSparkURL()
        urls = gateway.new_array(jvm.java.lang.String, 1)
        urls[0] = url
        nothing = jvm.scala.Option.empty()
        jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, slots, WORKER_MEMORY_MIB, urls, folder, nothing, settings, nothing
        )
    except Py4JError as error:
        raise PermanentError(f"the worker's Spark master does not start: {error}") from error
    return OwnMaster(url, host, secret)
