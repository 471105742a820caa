"""Wire rows -> pandas DataFrames, built by columns, with the types that Spark 4.3 gives pandas code.

| Spark type | column | a null in it |
|---|---|---|
| integers | int64; float64 where a null is among them | NaN |
| double, float | float64 | NaN |
| boolean | bool; object where a null is among them | None |
| string, binary, date, decimal | object: str, bytes, date, Decimal | None |
| timestamp, with and without zone | datetime64[ns], in UTC, without a zone | NaT |
| array, map, struct | object: ndarray, dict, dict | None |

Nested columns are made by pyspark's own conversion, by way of Arrow. A column's type depends on the rows of
its own DataFrame alone; in Spark also on other keys that happened to come along. Neighbours: `frame_blocks`
(DataFrames of ready arrays), `frame_rows` (the other way), `user_code.frame_form` (who calls both), `rows`
(the same in rows).
"""

from __future__ import annotations

import datetime
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as spark
from pyspark.sql.conversion import ArrowArrayToPandasConversion
from pyspark.sql.pandas.types import to_arrow_type

from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock.store.even_rows import EvenColumn, EvenTexts
from penstock_worker.values.frame_blocks import FrameBlocks
from penstock_worker.values.group_rows import GroupRows, values_of
from penstock_worker.values.rows import WireRow
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import Convert, wire_type

FRAME_ROWS_MAX = 10_000
"""Rows in one DataFrame, as `spark.sql.execution.arrow.maxRecordsPerBatch` has it; a key may come in several.
"""

_WHOLE = spark.ByteType | spark.ShortType | spark.IntegerType | spark.LongType
_PLAIN = _WHOLE | spark.StringType | spark.BinaryType | spark.BooleanType | spark.FloatType | spark.DoubleType
_NS_PER_US = 1000
_TIME_MIN_US = pd.Timestamp.min.value // _NS_PER_US + 1
_TIME_MAX_US = pd.Timestamp.max.value // _NS_PER_US

MakeColumn = Callable[[Sequence[Any]], Any]
"""Wire values of one column -> an array for pandas."""


class NoFrame(PermanentError):
    """Rows that pandas has no values for; the message names the column and the value."""


class FrameReader:
    """Makes the DataFrames of one schema."""

    def __init__(self, schema: Schema) -> None:
        # Spark builds them from named tuples, which rename what is no identifier to _0, _1, ...
        names = namedtuple("Names", schema.names, rename=True)._fields  # type: ignore[attr-defined]
        self._names = pd.Index(names, dtype=object)
        self._columns = [
            (name, _maker(column.name, spark_type(column.type)))
            for name, column in zip(names, schema.columns, strict=True)
        ]
        self._typed_by_nulls = [
            place
            for place, column in enumerate(schema.columns)
            if isinstance(spark_type(column.type), _WHOLE | spark.BooleanType)
        ]
        """Places of columns whose type is another one with a null among their values."""
        self._kinds = [_kind(spark_type(column.type)) for column in schema.columns]
        self._times = [place for place, kind in enumerate(self._kinds) if kind == _INSTANTS]
        # Within arrays, too, Arrow has one type for all that it is given together.
        self._has_nested = any(
            isinstance(spark_type(column.type), spark.ArrayType | spark.MapType | spark.StructType)
            for column in schema.columns
        )

    def frames(self, rows: Sequence[WireRow]) -> Iterator[pd.DataFrame]:
        """The rows in order, in as many DataFrames as Spark makes of them. Raises NoFrame."""
        for start in range(0, len(rows), FRAME_ROWS_MAX):
            yield self.frame(rows if len(rows) <= FRAME_ROWS_MAX else rows[start : start + FRAME_ROWS_MAX])

    def each(self, rows_by_key: Sequence[Sequence[WireRow]]) -> Iterator[Iterator[pd.DataFrame]]:
        """The same of several keys in turn. They are cut out of one DataFrame where each has the types that
        it would have by itself: that costs a quarter."""
        groups = [rows for rows in rows_by_key if isinstance(rows, GroupRows)]
        columns = self._columns_of(groups) if len(groups) == len(rows_by_key) else None
        if columns is not None:
            blocks = self._of_even(columns)
            for group in groups:
                yield _cut_in_turn(blocks, group.begin, group.end)
            return
        together = self._together(rows_by_key)
        end = 0
        for rows in rows_by_key:
            begin, end = end, end + len(rows)
            yield self.frames(rows) if together is None else iter((_cut(together, begin, end),))

    def _columns_of(self, groups: Sequence[GroupRows]) -> Sequence[EvenColumn] | None:
        """The columns that all rows are of, where their DataFrames can be cut out of one."""
        if not groups:
            return None
        columns = groups[0].columns
        if any(columns[place] is None for place in self._typed_by_nulls):
            return None
        if any(rows.columns is not columns for rows in groups):
            return None
        for place in self._times:
            column = columns[place]
            if isinstance(column, np.ndarray) and not (
                column.min() >= _TIME_MIN_US and column.max() <= _TIME_MAX_US
            ):
                return None  # one key's rows have it, and that key is to be named
        return columns

    def _of_even(self, columns: Sequence[EvenColumn]) -> FrameBlocks:
        """All rows of some columns."""
        made: list[Any] = []
        rows = _rows_in(columns)
        for (_, make), kind, column in zip(self._columns, self._kinds, columns, strict=True):
            if isinstance(column, EvenTexts) and kind == _TEXTS:
                made.append(_objects_of(column))
            elif not isinstance(column, np.ndarray) or column.dtype.kind != kind[:1]:
                made.append(make(values_of(column, 0, rows)))
            elif kind == _INSTANTS:
                made.append(column.view("datetime64[us]").astype("datetime64[ns]"))
            else:
                made.append(column)
        return FrameBlocks(self._names, made)

    def _together(self, rows_by_key: Sequence[Sequence[WireRow]]) -> pd.DataFrame | None:
        if self._has_nested or len(rows_by_key) < 2 or max(map(len, rows_by_key)) > FRAME_ROWS_MAX:
            return None
        columns = list(zip(*chain.from_iterable(rows_by_key), strict=True))
        if any(None in columns[place] for place in self._typed_by_nulls):
            return None
        try:
            return self._of_columns(columns)
        except NoFrame:
            return None  # one key's rows have it, and that key is to be named

    def frame(self, rows: Sequence[WireRow]) -> pd.DataFrame:
        """All of `rows`, which are not none, in one."""
        return self._of_columns(list(zip(*rows, strict=True)))

    def _of_columns(self, columns: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
        made = zip(self._columns, columns, strict=True)
        return pd.DataFrame({name: make(values) for (name, make), values in made}, copy=False)


def _cut(together: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    """Rows of a DataFrame as one of its own, which may be written to without a warning."""
    frame = together.iloc[begin:end].copy(deep=False)
    frame.index = pd.RangeIndex(end - begin)
    return frame


def _cut_in_turn(blocks: FrameBlocks, begin: int, end: int) -> Iterator[pd.DataFrame]:
    """The rows of one key in as many DataFrames as Spark makes of them."""
    for at in range(begin, end, FRAME_ROWS_MAX):
        yield blocks.frame(at, min(end, at + FRAME_ROWS_MAX))


class FrameKey:
    """Keys as Spark passes them beside DataFrames: what a row of one would hold."""

    def __init__(self, schema: Schema) -> None:
        self._plain = all(isinstance(spark_type(column.type), _PLAIN) for column in schema.columns)
        self._reader = FrameReader(schema)

    def read(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._plain and None not in key:
            return key
        found: tuple[Any, ...] = next(self._reader.frame([key]).itertuples(index=False, name=None))
        return found


_INSTANTS, _TEXTS = "instants", "texts"


def _kind(data_type: spark.DataType) -> str:
    """What numpy has for a type's wire values that is its column at once; "" for others."""
    match data_type:
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return "i"
        case spark.DoubleType() | spark.FloatType():
            return "f"
        case spark.BooleanType():
            return "b"
        case spark.TimestampType() | spark.TimestampNTZType():
            return _INSTANTS
        case spark.StringType() | spark.BinaryType():
            return _TEXTS
        case _:
            return ""


def _objects_of(column: EvenTexts) -> NDArray[Any]:
    """Texts, or bytes, as the column of a DataFrame."""
    array = np.empty(len(column.cells), object)
    array[:] = values_of(column, 0, len(array))
    return array


def _rows_in(columns: Sequence[EvenColumn]) -> int:
    return max(
        len(column.cells if isinstance(column, EvenTexts) else column)
        for column in columns
        if column is not None
    )


def _maker(name: str, data_type: spark.DataType) -> MakeColumn:
    to_row = wire_type(data_type).to_row
    match data_type:
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return _whole
        case spark.DoubleType() | spark.FloatType():
            return _fractions
        case spark.BooleanType():
            return _flags
        case spark.TimestampType() | spark.TimestampNTZType():
            return lambda values: _times(name, values)
        case spark.ArrayType() | spark.MapType() | spark.StructType():
            return _nested(data_type, to_row)
        case spark.StringType() | spark.BinaryType():
            return lambda values: np.array(values, dtype=object)
        case _:
            return lambda values: _objects(values, to_row)


def _whole(values: Sequence[Any]) -> Any:
    try:
        return np.array(values, dtype=np.int64)
    except TypeError:  # a null
        return _fractions(values)


def _fractions(values: Sequence[Any]) -> Any:
    return np.array(values, dtype=np.float64)


def _flags(values: Sequence[Any]) -> Any:
    return np.array(values, dtype=object if None in values else np.bool_)


def _times(name: str, values: Sequence[Any]) -> Any:
    for value in values:
        if value is not None and not _TIME_MIN_US <= value <= _TIME_MAX_US:
            when = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)  # noqa: DTZ001
            raise NoFrame(
                f"column {name!r} holds {when}, and pandas has times from {pd.Timestamp.min} to "
                f"{pd.Timestamp.max} only: leave such rows out before, or take Rows (form: Rows)"
            )
    whole = [None if value is None else int(value) for value in values]
    return np.array(whole, dtype="datetime64[us]").astype("datetime64[ns]")


def _objects(values: Sequence[Any], to_row: Convert | None) -> Any:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value if value is None or to_row is None else to_row(value)
    return array


def _nested(data_type: spark.DataType, to_row: Convert | None) -> MakeColumn:
    arrow_type = to_arrow_type(data_type, timezone="UTC")

    def make(values: Sequence[Any]) -> Any:
        array = pa.array(_objects(values, to_row).tolist(), type=arrow_type)
        made = ArrowArrayToPandasConversion.convert(array, data_type, timezone="UTC", ser_name="")
        return _objects(made.tolist(), None)

    return make
