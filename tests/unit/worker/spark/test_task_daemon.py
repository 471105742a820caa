"""What tasks are forked from: with the archives on its path that Spark puts there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

from penstock_worker.spark.task_daemon import leave_archives


def test_only_sparks_own_archives_are_left() -> None:
    spark = "/x/site-packages/pyspark"
    path = [
        "",
        f"{spark}/python/lib/pyspark.zip",
        f"{spark}/jars/spark-core_2.13-4.3.0.jar",
        "/app/mine.zip",
        spark,
    ]
    leave_archives(path)
    assert path == ["", "/app/mine.zip", spark]


def test_pyspark_is_imported_from_where_it_is_installed() -> None:
    parts = [str(file.locate()) for file in files("pyspark") or () if file.match("python/lib/*.zip")]
    assert len(parts) == 2, "as Spark has them on its workers' path"
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from penstock_worker.spark.task_daemon import leave_archives\n"
            "leave_archives(sys.path)\n"
            "import py4j, pyspark.worker\n"
            "print(py4j.__file__, pyspark.worker.__file__, *sys.path_importer_cache)",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*parts, *sys.path])},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert {Path(file).suffix for file in told[:2]} == {".py"}
    assert not [part for part in told if ".zip" in part and "pyspark" in part]
