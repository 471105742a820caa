"""pandas DataFrames that user code yields -> wire rows, checked column by column.

Columns go by name, as in Spark's `transformWithStateInPandas`: one that is missing is refused, one that
nobody knows is dropped; a DataFrame whose columns have no names goes by position. NaN, NaT, None and pd.NA
are null, inside of arrays, maps and structs too. What a column's dtype says at once is not looked at value by
value; all else goes by `wire_values`, as rows do, with the same refusals. Text in a column of numbers or of
booleans is read as Arrow reads it. Neighbours: `frames` (the other way), `rows` (the same of rows).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import Row

from penstock.dataflow.schema import Schema
from penstock_worker.values.frame_blocks import column_array
from penstock_worker.values.rows import RowMismatch, list_checker
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import (
    Convert,
    Misfit,
    items_of,
    names_of,
    nullable,
    shown,
    wire_type,
)

_BITS = {spark.ByteType: 8, spark.ShortType: 16, spark.IntegerType: 32, spark.LongType: 64}
_NO_TIME = np.iinfo(np.int64).min
_MISSING = (None, pd.NaT, pd.NA)

Array = NDArray[Any]
Quick = Callable[[Array], list[Any] | None]
"""A column as numpy has it -> its wire values; None where that needs a look at each value."""


class FrameShape:
    """What user code yields for one schema -> wire rows."""

    def __init__(self, schema: Schema, *, first_alone: bool = False) -> None:
        """`first_alone`: as in `mapInPandas` the columns of the schema come first, in any order, and what
        stands behind them is dropped."""
        self._first_alone = first_alone
        self._who = "mapInPandas" if first_alone else "a processor of form Pandas"
        self._names = list(schema.names)
        types = [spark_type(column.type) for column in schema.columns]
        self._columns = [(_one(data_type), _quick(data_type)) for data_type in types]

    def wire_rows(self, frame: Any) -> list[tuple[Any, ...]]:
        """Rows of wire values, in order. Raises RowMismatch."""
        if not isinstance(frame, pd.DataFrame):
            raise RowMismatch(
                f"yielded {shown(frame)}; {self._who} yields DataFrames, such as "
                f"pd.DataFrame({{{self._names[0]!r}: [...]}})"
            )
        given = frame.columns.tolist()
        if not given:
            return [(None,) * len(self._names)] * len(frame)
        places: Sequence[int] = range(len(self._names))
        if given != self._names:
            places = self._places(given)
        columns = [self._values(place, at, frame) for place, at in enumerate(places)]
        return list(zip(*columns, strict=True))

    def _places(self, given: list[Any]) -> Sequence[int]:
        """Where the columns are among those of a DataFrame."""
        if any(isinstance(name, str) for name in given):
            self._check_names(given)
            return [given.index(name) for name in self._names]
        if len(given) < len(self._names):
            raise RowMismatch(
                f"a DataFrame has {len(given)} columns without names; {len(self._names)} are wanted: "
                f"{', '.join(self._names)}"
            )
        return range(len(self._names))

    def _check_names(self, given: list[Any]) -> None:
        missing = [name for name in self._names if name not in given]
        twice = [name for name in self._names if given.count(name) > 1]
        if missing or twice:
            what = f"lacks {', '.join(map(repr, missing))}" if missing else f"has {twice[0]!r} twice"
            raise RowMismatch(f"a DataFrame {what}; its columns are {', '.join(map(str, given))}")
        unknown = [name for name in given[: len(self._names)] if name not in self._names]
        if self._first_alone and unknown:
            raise RowMismatch(
                f"a DataFrame has {unknown[0]!r} among its first {len(self._names)} columns, which are to be "
                f"{', '.join(self._names)}; its columns are {', '.join(map(str, given))}"
            )

    def _values(self, place: int, at: int, frame: pd.DataFrame) -> list[Any]:
        """The column at `place` of the schema, which is at `at` in the DataFrame."""
        to_wire, quick = self._columns[place]
        array = _in_numpy(column_array(frame, at))
        values = None if array is None else quick(array)
        if values is not None:
            return values
        values = []
        for number, value in enumerate(frame.iloc[:, at].tolist()):
            try:
                values.append(None if _is_missing(value) else to_wire(value))
            except Misfit as misfit:
                where = f"column {self._names[place]!r} ({place + 1} of {len(self._names)})"
                row = shown(frame.iloc[number].to_dict())
                raise RowMismatch(f"{where} {misfit}; row {number} of the DataFrame is {row}") from None
        return values


def _is_missing(value: Any) -> bool:
    return any(value is missing for missing in _MISSING) or (isinstance(value, float) and value != value)


# --- single values ----------------------------------------------------------------------------------


def _one(data_type: spark.DataType) -> Convert:
    """What is done to a value of which the dtype does not say enough."""
    column = wire_type(data_type)
    match data_type:
        case spark.ArrayType() | spark.MapType() | spark.StructType():
            return lambda value: column.to_wire(_with_none(value))
        case spark.DecimalType():
            return lambda value: column.to_wire(_not_cut(column.name, data_type.scale, value))
        case spark.DoubleType() | spark.FloatType() | spark.IntegralType() | spark.BooleanType():
            arrow_type = to_arrow_type(data_type)
            return lambda value: column.to_wire(_read_in(value, arrow_type))
        case _:
            return column.to_wire


def _with_none(value: Any) -> Any:
    """A nested value with None for all that pandas takes for missing."""
    if isinstance(value, np.ndarray):
        return [_with_none(item) for item in items_of(value)]
    if isinstance(value, Row) and (names := names_of(value)) is not None:
        value = dict(zip(names, value, strict=True))
    if isinstance(value, dict):
        return {key: _with_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_none(item) for item in value]
    return None if _is_missing(value) else value


def _not_cut(name: str, scale: int, value: Any) -> Any:
    if isinstance(value, decimal.Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        beyond = -int(exponent) - scale
        if beyond <= 0 or not any(digits[-beyond:]):
            return value
        raise Misfit(f"expects {name}, got {shown(value)}, which has more digits behind the point; round it")
    return value


def _read_in(value: Any, arrow_type: pa.DataType) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return pa.scalar(value).cast(arrow_type).as_py()
    except pa.ArrowInvalid:
        return value


# --- columns ----------------------------------------------------------------------------------------


def _quick(data_type: spark.DataType) -> Quick:
    match data_type:
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return _whole(_BITS[type(data_type)])
        case spark.DoubleType():
            return _doubles
        case spark.FloatType():
            return _floats
        case spark.BooleanType():
            return _flags
        case spark.TimestampType() | spark.TimestampNTZType():
            return _times
        case spark.StringType():
            return _texts()
        case _:
            return _never


def _never(_: Array) -> None:
    """Each value is looked at."""


def _in_numpy(array: Any) -> Array | None:
    """A DataFrame's column; None for what pandas alone has."""
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array.dtype, pd.DatetimeTZDtype):
        array = array.tz_convert("UTC").tz_localize(None)
    if not isinstance(array.dtype, np.dtype):
        return None
    found: Array = array.to_numpy()
    return found


def _whole(bits: int) -> Quick:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(array: Array) -> list[Any] | None:
        dtype = array.dtype
        if dtype.kind == "i" and 8 * dtype.itemsize <= bits:
            return array.tolist()  # type: ignore[no-any-return]
        if dtype.kind not in ("i", "u", "b"):
            return None
        values: list[Any] = list(map(int, array.tolist()))
        return values if not values or (min(values) >= low and max(values) <= high) else None

    return read


def _flags(array: Array) -> list[Any] | None:
    if array.dtype.kind not in ("b", "i", "u"):
        return None
    values: list[Any] = array.tolist()
    return list(map(bool, values)) if set(values) <= {0, 1} else None


def _doubles(array: Array) -> list[Any] | None:
    if array.dtype.kind not in ("f", "i", "u", "b"):
        return None
    return _with_nulls(array.astype(np.float64))


def _floats(array: Array) -> list[Any] | None:
    if array.dtype.kind not in ("f", "i", "u"):
        return None
    given = array.astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = given.astype(np.float32).astype(np.float64)
    if (np.isinf(rounded) != np.isinf(given)).any():
        return None  # one is out of range, and is to be named
    return _with_nulls(rounded)


def _with_nulls(array: Array) -> list[Any]:
    values: list[Any] = array.tolist()
    if np.isnan(array).any():
        return [None if value != value else value for value in values]
    return values


def _times(array: Array) -> list[Any] | None:
    if array.dtype.kind != "M" or np.datetime_data(array.dtype)[0] != "ns":
        return None
    # Arrow cuts the nanoseconds, before 1970 too.
    values: list[Any] = array.astype(np.int64).tolist()
    return [None if value == _NO_TIME else _cut_to_us(value) for value in values]


def _cut_to_us(nanoseconds: int) -> int:
    return nanoseconds // 1000 if nanoseconds >= 0 else -(-nanoseconds // 1000)


def _texts() -> Quick:
    check = list_checker(nullable(str), ())

    def read(array: Array) -> list[Any] | None:
        if array.dtype.kind != "O":
            return None
        try:
            values: list[Any] = check(array.tolist())
        except (msgspec.ValidationError, ValueError):
            return None
        return values

    return read
