"""What the integration tests share: one Spark session, and whole runs that are over with their test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from backends.kafka_broker import KafkaBroker
from conformance.in_spark import SETTINGS
from processes.run_harness import Run


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark in this process: two slots, no UI, loopback only, this interpreter for its Python workers."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def streaming(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with RocksDB below its state, as transformWithState asks for, and in UTC."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name in SETTINGS:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that nobody kills: tests make topics of their own."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """Runs that a test puts in here are over when it is, whatever became of it."""
    started: list[Run] = []
    yield started
    for run in started:
        run.abandon()
