"""Arrow columns -> columns of an entry whose rows are all equally long (`store.even_rows`).

Nothing here loads Arrow but what is given as Arrow. Neighbours: `column_rows` holds columns, `stages.steps`
packs them, `sinks.json_entries` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.store.even_rows import TEXT_BYTES_MAX, EvenColumn, EvenTexts
from penstock_worker.values.column_rows import ColumnRows

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = {"int8", "int16", "int32", "int64"}


def even_columns(rows: ColumnRows) -> list[EvenColumn] | None:
    """Of rows, which are not none, whose values take one width a column; None for others."""
    found: list[EvenColumn] = []
    for column in rows.columns:
        if not column.null_count:
            even = _even(column)
            if even is None:
                return None
            found.append(even)
        elif column.null_count == len(column):
            found.append(None)
        else:
            return None
    return found


def _even(column: pa.Array) -> EvenColumn:
    """Of a column without nulls, which is not empty; None for texts of several lengths."""
    kind = str(column.type)
    if kind in ("string", "binary"):
        return _texts(column, is_text=kind == "string")
    values: Any = column.to_numpy(zero_copy_only=False)
    if kind in ("float", "double"):
        return values.astype(np.float64, copy=False)  # type: ignore[no-any-return]  # numpy's
    if kind == "bool" or kind in _WHOLE:
        return values  # type: ignore[no-any-return]  # numpy's
    # Of times numpy has the same number that is on the wire; of dates it has days, also as 64 bits.
    return values.view(np.int64)  # type: ignore[no-any-return]  # numpy's


def _texts(column: pa.Array, *, is_text: bool) -> EvenTexts | None:
    _, offsets, data = column.buffers()
    rows = len(column)
    ends = np.frombuffer(offsets, np.int32, rows + 1, 4 * column.offset)
    first, length = int(ends[0]), int(ends[1] - ends[0])
    if length > TEXT_BYTES_MAX or not (np.diff(ends) == length).all():
        return None
    if not length:
        return EvenTexts(np.empty((rows, 0), np.uint8), is_text)
    return EvenTexts(np.ndarray((rows, length), np.uint8, data, first), is_text)
