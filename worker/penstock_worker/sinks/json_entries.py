"""Entries as JSON lines: those whose rows are equally long column by column, all others row by row.

The bytes are those of `JsonRows` for the same rows: who writes an entry again may have read it the other way.
Columns are written where Arrow is loaded already, by a task that works on columns; numbers, booleans and
texts that JSON has as they are. Neighbours: `jsonl` and `console` write the lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.schema import Schema
from penstock.store.codec import decode_batch
from penstock.store.even_rows import EvenColumn, EvenTexts, read_even
from penstock_worker.values.column_rows import COLUMNS_FROM

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_BY_COLUMN = _WHOLE | {"boolean", "string", "double"}
_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')
_ENCODER = msgspec.json.Encoder()


class JsonEntries:
    """Writes entries of rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._rows = JsonRows(schema)
        self._by_column = bool(schema.columns) and all(each.type in _BY_COLUMN for each in schema.columns)
        self._names = [_ENCODER.encode(name).decode() + ":" for name in schema.names]

    def lines(self, payloads: Iterable[bytes]) -> bytes:
        """One JSON object a row, each with a newline behind it."""
        return b"".join([self._columns_of(payload) or self._rows_of(payload) for payload in payloads])

    def _rows_of(self, payload: bytes) -> bytes:
        return self._rows.lines(decode_batch(payload).rows)

    def _columns_of(self, payload: bytes) -> bytes | None:
        if not self._by_column or "pyarrow" not in sys.modules:
            return None
        batch = read_even(payload, COLUMNS_FROM)
        if batch is None or len(batch.columns) != len(self._names):
            return None
        return _lines(self._names, batch.columns)


def _lines(names: list[str], columns: list[EvenColumn]) -> bytes | None:
    """None where a value is written otherwise than by column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        if column is None:
            continue
        texts, quote = _texts(pa, column)
        if texts is None:
            return None
        parts += [pa.scalar(before + name + quote), texts]
        before = quote + ","
    if not parts:
        return None
    lines = pc.binary_join_element_wise(*parts, pa.scalar(before[:-1] + "}\n"), "")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32, len(lines) + 1, 4 * lines.offset)
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def _texts(pa: Any, column: EvenTexts | NDArray[Any]) -> tuple[Any, str]:
    """Each value of a column as JSON, and what stands around it; None where it is not to be had so."""
    if isinstance(column, EvenTexts):
        rows, length = column.cells.shape
        data = column.cells.tobytes()
        if not column.is_text or _ESCAPED.search(data) is not None:
            return None, ""
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data)), '"'
    if column.dtype.kind == "f":
        if not np.isfinite(column).all():
            return None, ""
        numbers = _ENCODER.encode(column.tolist())[1:-1].decode().split(",")
        return pa.array(numbers, pa.string()), ""
    return pa.array(column).cast(pa.string()), ""
