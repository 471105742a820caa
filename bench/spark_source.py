"""The load as a Spark streaming source: at each micro-batch, every record that is due by then.

Spark's own `rate` source hands out whole seconds, which would add half a second to each record, so the
peer is fed by this Python data source instead. Its work per record is a slice of a table, handed over
as one Arrow batch; nothing is made record by record.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bench.load import RatePlan, ZipfKeys, read_plan
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

SCHEMA = "key bigint, at_us bigint"


@lru_cache(maxsize=1)
def _keys() -> ZipfKeys:
    return ZipfKeys()


class Range(InputPartition):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Records start..end-1."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class LoadReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offsets are record numbers. Options: plan (a path), partitions, max_records (0 is no bound)."""

    def __init__(self, options: dict[str, str]) -> None:
        self._path = Path(options["plan"])
        self._partitions = int(options.get("partitions", "1"))
        self._max_records = int(options.get("max_records", "0"))
        self._written_ns = -1
        self._plan = RatePlan(())

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # pyspark's own method name
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        written_ns = self._path.stat().st_mtime_ns
        if written_ns != self._written_ns:
            self._plan, self._written_ns = read_plan(self._path), written_ns
        end = max(start["number"], self._plan.due_before(time.time_ns() // 1000))
        return {"number": min(end, start["number"] + self._max_records) if self._max_records else end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = np.linspace(start["number"], end["number"], self._partitions + 1).astype(int).tolist()
        return [Range(a, b) for a, b in itertools.pairwise(edges) if b > a]

    def read(self, partition: Range) -> Iterator[Any]:
        keys = _keys().of(partition.start, partition.end)
        due_us = read_plan(self._path).due_us(np.arange(partition.start, partition.end, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(due_us)], names=["key", "at_us"])


class LoadSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("load")`."""

    @classmethod
    def name(cls) -> str:
        return "load"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LoadReader(dict(self.options))
