"""Schemas as pyspark's types and back, without a JVM.

`penstock.dataflow.schema` names types as Spark SQL does; this module turns the names into pyspark's
`DataType` objects, which user code knows and `wire` walks. Neighbours: `wire` (values), `rows` (rows).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from pyspark.sql import types as spark

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.schema import Column, Schema
from penstock.errors import PermanentError

_SIMPLE: dict[str, Callable[[], spark.DataType]] = {
    "string": spark.StringType,
    "int": spark.IntegerType,
    "bigint": spark.LongType,
    "smallint": spark.ShortType,
    "tinyint": spark.ByteType,
    "double": spark.DoubleType,
    "float": spark.FloatType,
    "boolean": spark.BooleanType,
    "date": spark.DateType,
    "timestamp": spark.TimestampType,
    "timestamp_ntz": spark.TimestampNTZType,
    "binary": spark.BinaryType,
}
_WORD = re.compile(r"[a-z_]+")
_DECIMAL = re.compile(r"\((\d+),(\d+)\)")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_NAME = re.compile(r"`((?:[^`]|``)+)`")


class UnknownType(PermanentError):
    """A type that is not carried yet; the message names it."""


@cache
def spark_type(name: str) -> spark.DataType:
    """The pyspark type called `name` (canonical, as in `Column.type`). Raises UnknownType."""
    reader = _TypeReader(name)
    read = reader.type()
    reader.end()
    return read


def struct_type(schema: Schema) -> spark.StructType:
    """The schema as pyspark's StructType, all columns nullable."""
    return spark.StructType(
        [spark.StructField(column.name, spark_type(column.type), nullable=True) for column in schema.columns]
    )


def schema_of(declared: object) -> Schema:
    """What a state variable was declared with, a DDL string or a StructType, as a `Schema`.

    Raises UnknownType, or InvalidSchema for a text that is no schema.
    """
    if isinstance(declared, str):
        return parse_schema(declared, of_state=True)
    if not isinstance(declared, spark.StructType):
        raise UnknownType(
            f"{declared!r} is no schema; give a DDL string such as 'total long', or a StructType"
        )
    if not declared.fields:
        raise UnknownType("a schema without columns holds nothing")
    return Schema(
        tuple(Column(field.name, type_name(field.dataType), field.nullable) for field in declared.fields)
    )


def type_name(data_type: spark.DataType) -> str:
    """The canonical name of a pyspark type. Raises UnknownType for one that is not carried."""
    match data_type:
        case spark.DecimalType():
            return f"decimal({data_type.precision},{data_type.scale})"
        case spark.ArrayType():
            return f"array<{type_name(data_type.elementType)}>"
        case spark.MapType():
            return f"map<{type_name(data_type.keyType)},{type_name(data_type.valueType)}>"
        case spark.StructType():
            fields = (f"{_quoted(field.name)}:{type_name(field.dataType)}" for field in data_type.fields)
            return f"struct<{','.join(fields)}>"
        case _:
            name: str = data_type.simpleString()
            if type(data_type) is not _SIMPLE.get(name):
                raise UnknownType(f"type {name} is not carried yet")
            return name


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _TypeReader:
    """Recursive descent over one canonical type name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self) -> spark.DataType:
        word = self._match(_WORD)[0]
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word == "decimal":
            precision, scale = self._match(_DECIMAL).groups()
            return spark.DecimalType(int(precision), int(scale))
        self._take("<")
        read: spark.DataType
        if word == "array":
            read = spark.ArrayType(self.type())
        elif word == "map":
            key = self.type()
            self._take(",")
            read = spark.MapType(key, self.type())
        elif word == "struct":
            read = self._struct()
        else:
            raise UnknownType(f"type {self._text} is not carried yet")
        self._take(">")
        return read

    def _struct(self) -> spark.StructType:
        fields = []
        while True:
            name = self._name()
            self._take(":")
            fields.append(spark.StructField(name, self.type(), nullable=True))
            if not self._text.startswith(",", self._at):
                return spark.StructType(fields)
            self._at += 1

    def _name(self) -> str:
        if self._text.startswith("`", self._at):
            return self._match(_QUOTED_NAME)[1].replace("``", "`")
        return self._match(_PLAIN_NAME)[0]

    def end(self) -> None:
        if self._at != len(self._text):
            raise UnknownType(f"type {self._text!r} is not a canonical type name")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise UnknownType(f"type {self._text!r} is not a canonical type name")
        self._at = match.end()
        return match

    def _take(self, text: str) -> None:
        if not self._text.startswith(text, self._at):
            raise UnknownType(f"type {self._text!r} is not a canonical type name")
        self._at += len(text)
