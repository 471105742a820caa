"""Users' functions for `foreachBatch`: idempotent writers of Parquet and PostgreSQL, which note each call.

They find their folder in BATCHES, and the database in BATCHES_URL and BATCHES_JDBC. Called as a module beside
a manifest, as a user's is.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, functions

FOLDER = Path(os.environ.get("BATCHES", "."))
JDBC = {"driver": "org.postgresql.Driver"}


def to_parquet(df: DataFrame, batch_id: int) -> None:
    """A folder for each batch, which a second call writes over."""
    _noted("parquet", batch_id, "begins", df)
    df.write.mode("overwrite").parquet(str(FOLDER / "parquet" / f"batch={batch_id}"))
    _noted("parquet", batch_id, "ends", df)


def to_postgres(df: DataFrame, batch_id: int) -> None:
    """Spark's writer fills a table beside, one transaction takes it over: what is there already stays."""
    _noted("postgres", batch_id, "begins", df)
    _hold(batch_id)
    beside = f"incoming_{batch_id}"
    rows = df.withColumn("batch", functions.lit(batch_id))
    rows.write.jdbc(os.environ["BATCHES_JDBC"], beside, mode="overwrite", properties=JDBC)
    _psql(
        f"begin; insert into totals (batch, word, n) select batch, word, n from {beside} "
        f"on conflict do nothing; drop table {beside}; commit"
    )
    _noted("postgres", batch_id, "ends", df)


def letters_to_postgres(df: DataFrame, batch_id: int) -> None:
    """The same of a topology's dead letters."""
    _noted("letters", batch_id, "begins", df)
    _hold(batch_id)
    beside = f"incoming_letters_{batch_id}"
    df.write.jdbc(os.environ["BATCHES_JDBC"], beside, mode="overwrite", properties=JDBC)
    columns = ", ".join(df.columns)
    _psql(
        f"begin; insert into letters ({columns}) select {columns} from {beside} on conflict do nothing; "
        f"drop table {beside}; commit"
    )
    _noted("letters", batch_id, "ends", df)


def fails(df: DataFrame, batch_id: int) -> None:
    if batch_id == 1:
        raise ValueError(f"no room for {df.count()} rows")


def _hold(batch_id: int) -> None:
    """While the file `hold` is there."""
    hold = FOLDER / "hold"
    if hold.exists():
        (FOLDER / "held").write_text(str(batch_id))
    while hold.exists():
        time.sleep(0.05)


def _noted(sink: str, batch_id: int, step: str, df: DataFrame) -> None:
    given: list[Any] = [list(row) for row in df.collect()] if step == "begins" else []
    with (FOLDER / "calls.log").open("a") as file:
        file.write(json.dumps([sink, batch_id, step, given], default=str) + "\n")


def _psql(sql: str) -> None:
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", os.environ["BATCHES_URL"], "-c", sql]
    subprocess.run(command, check=True)
