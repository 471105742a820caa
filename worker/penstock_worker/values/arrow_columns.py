"""Record batches that user code yields -> wire rows or columns, checked column by column.

Columns go by their place, as in Spark's `mapInArrow`: what they are called does not matter, and further ones
are dropped. Types are those that Spark's own reader takes for the schema's; nothing is cast. Neighbours:
`arrow_rows` (the other way), `frame_rows` (the same of pandas), `user_code.arrow_step` (who calls).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from penstock.dataflow.schema import Schema
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows, is_columnar
from penstock_worker.values.rows import RowMismatch, WireRow
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import Misfit, shown, wire_type

Read = Callable[[pa.Array], list[Any]]
"""A column -> its wire values. Raises Misfit, ArrowInvalid."""


class ArrowShape:
    """What user code yields for one schema -> wire rows. Keeps the port `ColumnShape`."""

    def __init__(self, schema: Schema) -> None:
        self._names = schema.names
        types = [spark_type(column.type) for column in schema.columns]
        self._columns = [(type_, to_arrow_type(type_, timezone="UTC"), _reader(type_)) for type_ in types]
        self.columnar = is_columnar(schema)
        self.arrow_schema = pa.schema(
            [pa.field(name, wanted) for name, (_, wanted, _) in zip(self._names, self._columns, strict=True)]
        )
        self.read = [read for _, _, read in self._columns]

    def wire_rows(self, batch: Any) -> Sequence[WireRow]:
        """Rows of wire values, in order; of many, columns. Raises RowMismatch."""
        if not isinstance(batch, pa.RecordBatch):
            raise RowMismatch(
                f"yielded {shown(batch)}; mapInArrow yields record batches, such as those of its input or "
                f"pa.RecordBatch.from_pydict({{{self._names[0]!r}: [...]}})"
            )
        if batch.num_columns < len(self._names):
            raise RowMismatch(
                f"a batch has the columns {', '.join(batch.schema.names) or 'none'}; wanted are "
                f"{', '.join(self._names)}, by their places"
            )
        given = batch.columns[: len(self._names)]
        if self.columnar and batch.num_rows >= COLUMNS_FROM:
            # Copied: an array may stand on memory that the code writes to once it goes on.
            return ColumnRows(
                self, [_copied(self.array(place, column)) for place, column in enumerate(given)]
            )
        columns = [self.column(place, column) for place, column in enumerate(given)]
        return list(zip(*columns, strict=True))

    def column(self, place: int, column: pa.Array) -> list[Any]:
        """Wire values of the column at `place`. Raises RowMismatch."""
        if column.null_count == len(column):
            return [None] * len(column)
        read = self._columns[place][2]
        self._see_type(place, column)
        try:
            return read(column)
        except Misfit as misfit:
            raise RowMismatch(f"{self._where(place)} {misfit}") from None

    def array(self, place: int, column: pa.Array) -> pa.Array:
        """The column at `place` of a schema that is columnar, of exactly its type, with values that `column`
        would read. Raises RowMismatch, ArrowInvalid."""
        data_type, wanted, _ = self._columns[place]
        if column.null_count == len(column):
            return pa.nulls(len(column), wanted)
        self._see_type(place, column)
        try:
            _see_values(column, data_type)
        except Misfit as misfit:
            raise RowMismatch(f"{self._where(place)} {misfit}") from None
        if column.type.equals(wanted):
            return column
        if pa.types.is_string(wanted) or pa.types.is_binary(wanted):
            return column.cast(wanted)
        return column.view(wanted)

    def _see_type(self, place: int, column: pa.Array) -> None:
        data_type, wanted, _ = self._columns[place]
        if not _is_type(column.type, wanted):
            raise RowMismatch(
                f"{self._where(place)} expects {data_type.simpleString()}, in Arrow {wanted}, got "
                f"{column.type}; cast it, such as column.cast(pa.{_made(wanted)})"
            )

    def _where(self, place: int) -> str:
        return f"column {self._names[place]!r} ({place + 1} of {len(self._names)})"


def joined_rows(parts: Sequence[Sequence[WireRow]]) -> Sequence[WireRow]:
    """All of some parts, which are of one shape, one behind the other: columns where all of them are."""
    if len(parts) == 1:
        return parts[0]
    columnar = [part for part in parts if isinstance(part, ColumnRows)]
    if not parts or len(columnar) < len(parts):
        return [row for part in parts for row in part]
    columns = zip(*(part.columns for part in columnar), strict=True)
    return ColumnRows(columnar[0].shape, [pa.concat_arrays(pieces) for pieces in columns])


def _is_type(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads the one as it reads the other: a time is its microseconds, whatever its zone."""
    if given.equals(wanted) or pa.types.is_null(given):
        return True
    if _is_long(wanted):
        return _is_long(given)
    if pa.types.is_int32(wanted) or pa.types.is_date32(wanted):
        return bool(pa.types.is_int32(given) or pa.types.is_date32(given))
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_decimal128(given))
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(given))
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_large_binary(given))
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(given)
            and _is_type(given.key_type, wanted.key_type)
            and _is_type(given.item_type, wanted.item_type)
        )
    if pa.types.is_list(wanted):
        return pa.types.is_list(given) and _is_type(given.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        return (
            pa.types.is_struct(given)
            and given.num_fields >= wanted.num_fields
            and all(_is_type(one.type, other.type) for one, other in zip(given, wanted, strict=False))
        )
    return False


def _is_long(type_: pa.DataType) -> bool:
    return bool(pa.types.is_int64(type_) or (pa.types.is_timestamp(type_) and type_.unit == "us"))


def _made(wanted: pa.DataType) -> str:
    return f"{wanted}()" if str(wanted).isidentifier() else str(wanted)


# --- columns ----------------------------------------------------------------------------------------


def _reader(data_type: spark.DataType) -> Read:
    match data_type:
        case spark.ByteType() | spark.ShortType() | spark.DoubleType() | spark.FloatType():
            return _numbers
        case spark.LongType():
            return lambda column: _numbers(column.view(pa.int64()))
        case spark.IntegerType():
            return lambda column: _numbers(column.view(pa.int32()))
        case spark.StringType() | spark.BinaryType() | spark.BooleanType():
            return _objects
        case spark.TimestampType() | spark.TimestampNTZType():
            return _within(*_TIMES)
        case spark.DateType():
            return _within(*_DAYS)
        case _:
            return _each(data_type)


_TIME_MIN_US, _TIME_MAX_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_DAY_MIN, _DAY_MAX = -719_162, 2_932_896
"""What Python has datetimes and dates for."""
_TIMES = pa.int64(), _TIME_MIN_US, _TIME_MAX_US, "whose year in UTC is not within 1 to 9999"
_DAYS = pa.int32(), _DAY_MIN, _DAY_MAX, "whose year is not within 1 to 9999"


def _see_values(column: pa.Array, data_type: spark.DataType) -> None:
    """Raises Misfit, ArrowInvalid for a column with a value that its reader would raise for."""
    match data_type:
        case spark.TimestampType() | spark.TimestampNTZType():
            _see_within(column, *_TIMES)
        case spark.DateType():
            _see_within(column, *_DAYS)
        case spark.StringType():
            column.validate(full=True)


def _copied(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column[:0]])


def _numbers(column: pa.Array) -> list[Any]:
    if not column.null_count:
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    values: list[Any] = column.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    for place in pc.indices_nonzero(column.is_null()).to_numpy().tolist():
        values[place] = None
    return values


def _objects(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _within(whole: pa.DataType, least: int, most: int, why: str) -> Read:
    def read(column: pa.Array) -> list[Any]:
        return _numbers(_see_within(column, whole, least, most, why))

    return read


def _see_within(column: pa.Array, whole: pa.DataType, least: int, most: int, why: str) -> pa.Array:
    numbers = column.view(whole)
    found = pc.min_max(numbers).as_py()
    for value in (found["min"], found["max"]):
        if value is not None and not least <= value <= most:
            raise Misfit(f"holds {value} ({column.type}), {why}")
    return numbers


def _each(data_type: spark.DataType) -> Read:
    to_wire = wire_type(data_type).to_wire

    def read(column: pa.Array) -> list[Any]:
        try:
            given = column.to_pylist()
        except (OverflowError, ValueError) as error:  # a time that Python has not
            raise Misfit(f"cannot be read: {error}") from None
        return [None if value is None else to_wire(_by_place(value, data_type)) for value in given]

    return read


def _by_place(value: Any, data_type: spark.DataType) -> Any:
    """A value with the fields of its structs in their order, without names."""
    if value is None:
        return None
    match data_type:
        case spark.ArrayType():
            return [_by_place(item, data_type.elementType) for item in value]
        case spark.MapType():
            return [(_by_place(k, data_type.keyType), _by_place(v, data_type.valueType)) for k, v in value]
        case spark.StructType():
            fields = zip(value.values(), data_type.fields, strict=False)
            return tuple(_by_place(inner, field.dataType) for inner, field in fields)
        case _:
            return value
