"""The pandas form: DataFrames in, DataFrames out. Loads pandas; `forms` imports it where it is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from penstock.dataflow.schema import Column, Schema
from penstock_worker.values.frame_rows import FrameShape
from penstock_worker.values.frames import FrameKey, FrameReader
from penstock_worker.values.held import LOOK_ROWS, Held
from penstock_worker.values.rows import RowMismatch, WireRow
from penstock_worker.values.wire_values import shown


class FrameForm:
    """Keeps the port `Form` as Spark's worker does for `transformWithStateInPandas`."""

    takes_columns = True

    def __init__(self, given: Schema, key_columns: Sequence[Column], output: Schema) -> None:
        reader = FrameReader(given)
        self.rows = reader.frames
        self.each = reader.each
        self.key = FrameKey(Schema(tuple(key_columns))).read
        self._shape = FrameShape(output)

    def taken(self, rows: Sequence[WireRow], given: Iterable[Any]) -> None:
        """Nobody knows: a frame has many."""

    def wire_rows(self, result: Any, held: Held) -> list[tuple[Any, ...]]:
        if isinstance(result, pd.DataFrame | str | bytes | dict) or not isinstance(result, Iterable):
            raise RowMismatch(
                f"returned {shown(result)}; return an iterable of DataFrames, such as [frame], or yield them"
            )
        rows: list[tuple[Any, ...]] = []
        look_at = LOOK_ROWS
        for frame in result:
            rows += self._shape.wire_rows(frame)
            if len(rows) > look_at:
                held.check(rows)
                look_at = 2 * len(rows)
        return rows
