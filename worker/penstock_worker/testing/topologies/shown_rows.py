"""Rows as a test reads them: dicts by name, whose values are plain Python's.

A timestamp is a datetime in UTC, a timestamp_ntz one without a zone, a map a dict, a struct a dict.
Neighbour: `collected_rows` has the wire rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import types as spark

from penstock.dataflow.schema import Schema
from penstock_worker.values.rows import RowReader, WireRow
from penstock_worker.values.spark_types import spark_type

Convert = Callable[[Any], Any]


class ShownRows:
    """Of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._reader = RowReader(schema)
        self._names = schema.names
        self._converted = {
            column.name: convert
            for column in schema.columns
            if (convert := _with_dicts(spark_type(column.type))) is not None
        }

    def rows(self, wire_rows: Iterable[WireRow]) -> list[dict[str, Any]]:
        return [
            self.with_dicts(dict(zip(self._names, row, strict=True))) for row in self._reader.rows(wire_rows)
        ]

    def with_dicts(self, row: dict[str, Any]) -> dict[str, Any]:
        """`row` whose maps are lists of pairs, as dicts."""
        return {
            name: convert(value) if value is not None and (convert := self._converted.get(name)) else value
            for name, value in row.items()
        }


def _with_dicts(type_: spark.DataType) -> Convert | None:
    """What to make of a value with maps in it, which travel as pairs; None for a type without any."""
    if isinstance(type_, spark.MapType):
        if isinstance(type_.keyType, spark.StructType | spark.ArrayType | spark.MapType):
            # No key of a dict.
            return None
        of_value: Convert = _with_dicts(type_.valueType) or _same
        return lambda pairs: {key: value if value is None else of_value(value) for key, value in pairs}
    if isinstance(type_, spark.ArrayType):
        inner = _with_dicts(type_.elementType)
        if inner is None:
            return None
        return lambda values: [value if value is None else inner(value) for value in values]
    if isinstance(type_, spark.StructType):
        fields = {f.name: convert for f in type_.fields if (convert := _with_dicts(f.dataType)) is not None}
        if not fields:
            return None
        return lambda struct: {
            name: fields[name](value) if value is not None and name in fields else value
            for name, value in struct.items()
        }
    return None


def _same(value: Any) -> Any:
    return value
