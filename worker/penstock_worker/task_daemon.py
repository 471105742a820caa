"""The process that Spark forks resident tasks from (`spark.python.daemon.module`).

It is pyspark's own daemon with everything that a task needs imported beforehand: a fork then
starts in milliseconds and shares these pages, instead of importing 40 MiB again in each task.
"""

from __future__ import annotations

import gc

import pyspark.sql.streaming.stateful_processor
import pyspark.worker
from pyspark.daemon import manager

import penstock_worker.standby
from penstock.dataflow.ddl import parse_schema

__all__ = ["penstock_worker", "pyspark"]

if __name__ == "__main__":
    # The first schema loads its parser, which every task needs.
    parse_schema("a long")
    # Keeps the collector from touching, and so copying, the pages that the forks share.
    gc.collect()
    gc.freeze()
    manager()
