"""What a worker learns of its resident tasks from a real Spark session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.dataflow.plan import Fanout, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.store.port import Bounds, Owner
from penstock_worker.spark.places import OnlyHome
from penstock_worker.spark.resident_tasks import ResidentTasks
from penstock_worker.task.launch import TaskLaunch

pytestmark = pytest.mark.integration

SCHEMA = Schema((Column("word", "string"),))
WITHIN_S = 120


def test_a_task_that_raises_ends_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(
        "count", Processor("code:Count", SCHEMA, (0,), 4), Tasks(1, 1, 1),
        Fanout(SCHEMA, (), (), ()),
    )  # fmt: skip
    owner = Owner("count-w0", "u/1/0", "count-w0.0.1")
    told = threading.Event()
    tasks = ResidentTasks(spark.sparkContext, OnlyHome(spark.sparkContext), told.set)
    try:
        task = tasks.start(
            TaskLaunch("no uid", "unix:///nowhere", "w0", owner, 0, stage, str(tmp_path), False, Bounds())
        )
        assert task.ended.wait(WITHIN_S)
        assert told.wait(WITHIN_S)
    finally:
        tasks.close()
    assert "topology uid 'no uid'" in task.error
    assert "Traceback" not in task.error
