"""Wire rows -> Arrow, of exactly the types that Spark has for the schema: a batch of records, or a stream.

Times are instants in UTC, or have no zone where their type has none. Neighbours: `frames` (the same for
pandas), `arrow_columns` (the other way), `user_code.arrow_step` and `user_code.frame_step` make batches for
code of users', `stages.batch_stage` packs, `spark.batch_door` unpacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from penstock.dataflow.schema import Schema
from penstock_worker.values.column_rows import ColumnRows
from penstock_worker.values.rows import WireRow
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import Convert, wire_type


class ArrowRows:
    """Packs rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        types = [spark_type(column.type) for column in schema.columns]
        arrow_types = [to_arrow_type(type_, timezone="UTC") for type_ in types]
        self._schema = pa.schema(
            [pa.field(name, type_) for name, type_ in zip(schema.names, arrow_types, strict=True)]
        )
        self._columns = list(zip(arrow_types, map(_conversion, types), strict=True))

    def batch(self, rows: Sequence[WireRow]) -> pa.RecordBatch:
        """All of `rows`, which are not none."""
        if isinstance(rows, ColumnRows):
            return pa.RecordBatch.from_arrays(list(rows.columns), schema=self._schema)
        return pa.RecordBatch.from_arrays(self.arrays(zip(*rows, strict=True)), schema=self._schema)

    def arrays(self, columns: Iterable[Sequence[Any]]) -> list[pa.Array]:
        """The same of columns of wire values, each by itself."""
        return [
            _array(column, arrow_type, convert)
            for column, (arrow_type, convert) in zip(columns, self._columns, strict=True)
        ]

    def packed(self, rows: Sequence[WireRow]) -> bytes:
        """An Arrow stream of one batch of records; `rows` are not none."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_batch(self.batch(rows))
        packed: bytes = sink.getvalue().to_pybytes()
        return packed


def packed_table(table: pa.Table) -> bytes:
    """A table of any columns as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpacked(packed: bytes) -> pa.Table:
    """What `ArrowRows.packed` or `packed_table` packs."""
    with pa.ipc.open_stream(packed) as stream:
        return stream.read_all()


def _array(values: Sequence[Any], arrow_type: pa.DataType, convert: Convert | None) -> pa.Array:
    if convert is int:
        try:
            return pa.array(values, type=arrow_type)  # as nearly all entries have them
        except pa.ArrowTypeError:
            pass
    return pa.array(_converted(values, convert), type=arrow_type)


def _conversion(data_type: spark.DataType) -> Convert | None:
    """What a wire value needs before Arrow takes it."""
    if isinstance(data_type, spark.TimestampType | spark.TimestampNTZType):
        return int
    if isinstance(data_type, spark.DateType):
        return None
    return wire_type(data_type).to_row


def _converted(values: Sequence[Any], convert: Convert | None) -> Sequence[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]
