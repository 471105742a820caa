"""`mapInPandas`: DataFrames in, DataFrames out. Loads pandas; `batch_steps` imports it where it is wanted.

What comes in is made by PySpark's own conversion of columns, by way of Arrow: its dtypes are others than
those of `transformWithStateInPandas` (an int is int32 here). What goes out is taken as there (`frame_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.conversion import ArrowArrayToPandasConversion

from penstock.dataflow.schema import Schema
from penstock_worker.values.arrow_columns import joined_rows
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.frame_rows import FrameShape
from penstock_worker.values.frames import NoFrame
from penstock_worker.values.rows import WireRow
from penstock_worker.values.spark_types import struct_type

_AS_THEY_ARE = (
    types.ByteType,
    types.ShortType,
    types.IntegerType,
    types.LongType,
    types.FloatType,
    types.DoubleType,
    types.BooleanType,
)
"""Types whose values Arrow and pandas have in one form, as long as none is null."""
_TIME_MIN_US = pd.Timestamp.min.value // 1000 + 1
_TIME_MAX_US = pd.Timestamp.max.value // 1000


class FrameStep:
    """Keeps the port `BatchForm`."""

    role = "mapInPandas"
    batches = "DataFrames"

    def __init__(self, given: Schema, output: Schema) -> None:
        self._rows = ArrowRows(given)
        self._columns = _conversions(given)
        self.wire_rows = FrameShape(output, first_alone=True).wire_rows
        self.joined = joined_rows

    def batch(self, rows: Sequence[WireRow]) -> pd.DataFrame:
        """Its values are the code's own: it may change them. Raises NoFrame."""
        columns = self._rows.batch(rows).columns
        made: dict[str, Any] = {}
        for (name, convert), column in zip(self._columns, columns, strict=True):
            try:
                made[name] = convert(column)
            except pa.ArrowInvalid as error:
                why = "leave such rows out before, or take record batches (mapInArrow)"
                raise NoFrame(f"column {name!r} has what pandas has no value for ({error}): {why}") from error
        return pd.DataFrame(made)


def _conversions(schema: Schema) -> list[tuple[str, Callable[[pa.Array], Any]]]:
    """By column, what Spark's worker does with it. It has two ways, and takes the quicker one where that has
    all columns' types."""
    spark = ArrowArrayToPandasConversion
    quick = spark._prefer_convert_numpy(struct_type(schema), df_for_struct=True)  # noqa: SLF001 - as it asks
    convert = spark.convert_numpy if quick else spark.convert_legacy
    return [
        (
            field.name,
            _shortened(
                partial(convert, spark_type=field.dataType, timezone="UTC", struct_in_pandas="dict"),
                field.dataType,
            ),
        )
        for field in struct_type(schema).fields
    ]


def _shortened(convert: Callable[..., pd.Series], data_type: types.DataType) -> Callable[[pa.Array], Any]:
    """The same without a Series of each column: of a thousand rows that costs more than all else."""
    whole = isinstance(data_type, _AS_THEY_ARE)
    is_text = isinstance(data_type, types.StringType)
    is_time = isinstance(data_type, types.TimestampType | types.TimestampNTZType)

    def made(column: pa.Array) -> Any:
        if is_text or (whole and not column.null_count):
            return column.to_numpy(zero_copy_only=False)
        if is_time and not column.null_count:
            times_us = column.view(pa.int64()).to_numpy()
            if times_us.min() > _TIME_MIN_US and times_us.max() < _TIME_MAX_US:
                return (times_us * 1000).view("datetime64[ns]")
        return convert(column).array

    return made
