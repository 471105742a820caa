"""The step of `topologies/filtering.yaml` in each form: one key of ten, and its double."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row

FILTER = "key % 10 = 0"
SELECT = ("key", "key * 2 AS twice")


def in_rows(row: Row) -> Iterator[Row]:
    if row.key % 10 == 0:
        yield Row(key=row.key, twice=row.key * 2)


def in_tuples(row: Row) -> list[tuple[int, int]]:
    return [(row.key, row.key * 2)] if row.key % 10 == 0 else []


def in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        keys = frame["key"][frame["key"] % 10 == 0]
        yield pd.DataFrame({"key": keys, "twice": keys * 2})


def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = batch["key"]
        tens = pc.multiply(pc.divide(keys, 10), 10)
        kept = keys.filter(pc.equal(keys, tens))
        yield pa.RecordBatch.from_arrays([kept, pc.multiply_checked(kept, 2)], names=["key", "twice"])


def in_spark(df: DataFrame) -> DataFrame:
    return df.where(FILTER).selectExpr(*SELECT)
