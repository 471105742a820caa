"""The process that Spark forks resident tasks from (`spark.python.daemon.module`).

It is pyspark's own daemon with everything that a task needs imported beforehand: a fork then
starts in milliseconds and shares these pages, instead of importing 40 MiB again in each task.
"""

from __future__ import annotations

import gc
import sys


def leave_archives(path: list[str]) -> None:
    """Take Spark's own archives off `sys.path`: the installed package is the same.

    Spark puts them there for machines without it. With them each fork reads the directories of a jar and
    two zips again when it connects and when it imports user code: most of what a start costs.
    """
    for part in [part for part in path if "/pyspark/" in part and part.endswith((".zip", ".jar"))]:
        path.remove(part)
        sys.path_importer_cache.pop(part, None)


def main() -> None:
    """Import what tasks need, and fork one whenever Spark asks."""
    leave_archives(sys.path)
    # What is imported stays: to look through it again and again would be a tenth of the start.
    gc.disable()
    import pyspark.daemon
    import pyspark.sql.streaming.stateful_processor
    import pyspark.worker

    import penstock_worker.spark.standby  # noqa: F401
    from penstock.dataflow.ddl import parse_schema
    from penstock_worker.spark.task_ends import report_ends

    # The first schema loads its parser, which every task needs.
    parse_schema("a long")
    # Keeps the collector from touching, and so copying, the pages that the forks share.
    gc.collect()
    gc.freeze()
    gc.enable()
    report_ends(pyspark.daemon)
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
