"""The rows of a zipf source as columns. Loads Arrow; `zipf` imports it where columns are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow.schema import Schema
from penstock.store.stamps import Stamps
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.column_rows import ColumnRows


class Block(Protocol):
    keys: NDArray[np.int64]
    times_us: NDArray[np.int64]
    numbers: NDArray[np.int64]


class ZipfColumns:
    """`payload` is every row's."""

    def __init__(self, schema: Schema, payload: str) -> None:
        self._shape = ArrowShape(schema)
        self._has_time = len(schema.columns) > 4
        self._payload = pa.scalar(payload)
        self._payloads = pa.repeat(self._payload, 0)

    def rows(self, spans: Iterable[tuple[Block, int, int]], due_us: Stamps) -> ColumnRows:
        """Of each block the rows from here to there; when all of them are due."""
        parts = [
            (block.keys[begin:end], block.times_us[begin:end], block.numbers[begin:end])
            for block, begin, end in spans
        ]
        keys, times_us, numbers = (pa.array(np.concatenate(columns)) for columns in zip(*parts, strict=True))
        count = len(due_us)
        if len(self._payloads) < count:
            self._payloads = pa.repeat(self._payload, count)
        columns = [keys, self._payloads[:count], times_us, numbers]
        if self._has_time:
            columns.append(pa.array(due_us.array).view(self._shape.arrow_schema.types[4]))
        return ColumnRows(self._shape, columns)
