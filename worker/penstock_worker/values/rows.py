"""Rows between the wire and user code: pyspark Rows in, whatever user code yields out, checked.

A wire row is a list or tuple of wire values (`wire`) in the schema's order. Neighbours: `steps` and
`user_code.running` call this for every batch, so that both ways have a quick path for schemas whose values
need no conversion.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import Row

from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import (
    NO_UNICODE,
    Convert,
    Misfit,
    WireType,
    by_name,
    is_unicode,
    names_of,
    nullable,
    shown,
    wire_type,
)

WireRow = Sequence[Any]
_NESTED = (spark.ArrayType, spark.MapType, spark.StructType)


class RowMismatch(PermanentError):
    """A row that user code made does not fit its schema; the message names column, type and value."""


def row_class(schema: Schema) -> type[Row]:
    """A Row class whose instances know the schema's names: `tuple.__new__(cls, values)` makes one.

    They equal, pickle, print and answer as a `Row(name=value, ...)` does; only attributes are quicker.
    """
    namespace: dict[str, Any] = {"__fields__": list(schema.names), "__module__": "pyspark.sql.types"}
    # namedtuple's C getters read a place of any tuple 20 times faster than Row's own __getattr__.
    places = [f"c{place}" for place in range(len(schema.names))]
    getters = namedtuple("_Getters", places)  # type: ignore[misc]  # names known at run time only
    for place, name in enumerate(schema.names):
        if not hasattr(Row, name) and not name.startswith("__"):
            namespace[name] = getattr(getters, f"c{place}")
    return type("Row", (Row,), namespace)


class RowReader:
    """Wire rows -> pyspark Rows of one schema, as user code gets them.

    `collected`: as `collect` and `foreach` give them, and not as a processor gets them: maps are dicts,
    structs Rows, and times have no zone.
    """

    def __init__(self, schema: Schema, *, collected: bool = False) -> None:
        make = partial(tuple.__new__, row_class(schema))
        types = [wire_type(spark_type(column.type)) for column in schema.columns]
        converted = [
            (place, to_row)
            for place, type_ in enumerate(types)
            if (to_row := type_.to_state if collected else type_.to_row) is not None
        ]

        def convert(wire_row: WireRow) -> Row:
            values = list(wire_row)
            for place, to_row in converted:
                if values[place] is not None:
                    values[place] = to_row(values[place])
            return make(values)

        self._read: Callable[[WireRow], Row] = convert if converted else make

    def rows(self, wire_rows: Iterable[WireRow]) -> Iterator[Row]:
        """The Rows, made one by one as they are asked for."""
        return map(self._read, wire_rows)


def is_converted(type_: str) -> bool:
    """Whether Rows hold another value than wire rows do, of a Spark type."""
    return wire_type(spark_type(type_)).to_row is not None


KeyReader = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def key_reader(types: Sequence[str]) -> KeyReader | None:
    """Wire key -> key as Spark passes it to a processor; None where the two are the same."""
    return _key_reader([wire_type(spark_type(type_)).to_row for type_ in types])


def timer_key_reader(types: Sequence[str]) -> KeyReader | None:
    """The same for a timer's key. Spark reads that from its state, in both forms: structs are Rows there, and
    times have no zone."""
    return _key_reader([wire_type(spark_type(type_)).to_state for type_ in types])


def _key_reader(readers: Sequence[Convert | None]) -> KeyReader | None:
    if not any(readers):
        return None

    def read(key: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(key, readers, strict=True)
        return tuple(v if v is None or to_row is None else to_row(v) for v, to_row in pairs)

    return read


class OutputShape:
    """What user code yields for one schema -> wire rows.

    A row may be a Row, a tuple, a list, a dict by name, or the bare value where the schema has one
    column (and that is not itself nested). Rows with names go by name, as in Spark's own
    `transformWithState`: a column that is missing is null, one that nobody knows is dropped. All others go by
    position. Every value is checked against its column's type.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._names = list(schema.names)
        self._columns: list[WireType] = [wire_type(spark_type(column.type)) for column in schema.columns]
        self._bare = len(self._columns) == 1 and not isinstance(spark_type(schema.columns[0].type), _NESTED)
        self._named: object = self._names
        plain = all(column.plain for column in self._columns)
        types = tuple(nullable(column.checked) for column in self._columns)
        self._check = list_checker(tuple.__class_getitem__(types), self._columns) if plain else None
        self._check_bare = list_checker(types[0], self._columns) if plain and self._bare else None

    def wire_rows(self, rows: list[Any]) -> list[tuple[Any, ...]]:
        """All of `rows` as tuples of wire values. Raises RowMismatch."""
        if not rows:
            return []
        if self._check is not None:
            try:
                if self._all_by_position(rows):
                    checked: list[tuple[Any, ...]] = self._check(rows)
                    return checked
                if self._check_bare is not None:
                    return list(zip(self._check_bare(rows), strict=True))
            except (msgspec.ValidationError, ValueError):
                pass  # the slow way takes more (numbers of numpy), or says what is wrong
        return [self._wire_row(row) for row in rows]

    def _all_by_position(self, rows: list[Any]) -> bool:
        """Whether all are tuples and lists, and all names that they carry are ours in our order."""
        for row in rows:
            kind = type(row)
            if kind is tuple or kind is list:
                continue
            if not issubclass(kind, Row):
                if issubclass(kind, tuple | list):
                    continue
                return False
            fields = row.__dict__.get("__fields__") or kind.__dict__.get("__fields__")
            if fields is None or fields is self._named:
                continue
            if list(fields) != self._names:
                return False
            self._named = fields  # the rows of one Row(...) factory share it
        return True

    def _wire_row(self, row: Any) -> tuple[Any, ...]:
        try:
            values = self._values(row)
        except Misfit as misfit:
            raise RowMismatch(f"row {shown(row)} {misfit}") from None
        return tuple(
            None if value is None else self._wire_value(place, value, row)
            for place, value in enumerate(values)
        )

    def _values(self, row: Any) -> Sequence[Any]:
        """The row's values in the schema's order."""
        if isinstance(row, Row) and (names := names_of(row)) is not None:
            return row if names == self._names else by_name(self._names, dict(zip(names, row, strict=True)))
        if isinstance(row, dict):
            return by_name(self._names, row)
        if isinstance(row, list | tuple):
            if len(row) != len(self._names):
                raise Misfit(
                    f"has {len(row)} values; the schema has {len(self._names)}: {self._schema.ddl()}"
                )
            return row
        if self._bare:
            return (row,)
        raise Misfit(f"is no row of the schema {self._schema.ddl()}; {_rows_wanted(row)}")

    def _wire_value(self, place: int, value: Any, row: Any) -> Any:
        try:
            return self._columns[place].to_wire(value)
        except Misfit as misfit:
            column = f"column {self._names[place]!r} ({place + 1} of {len(self._names)})"
            raise RowMismatch(f"{column} {misfit}; the row is {shown(row)}") from None


def _rows_wanted(given: Any) -> str:
    if type(given).__name__ == "DataFrame":
        return "give Rows, such as Row(**record); only a processor of form Pandas yields DataFrames"
    return "give a Row, a tuple or a dict by name"


def no_unicode(rows: Iterable[WireRow], names: Sequence[str]) -> str:
    """Which row and column hold a text that cannot be written, in a sentence; `names` are the columns'."""
    for row in rows:
        for name, value in zip(names, row, strict=True):
            if (text := _no_unicode_in(value)) is not None:
                column = f"column {name!r} ({names.index(name) + 1} of {len(names)})"
                return f"{column} holds {shown(text)}, which {NO_UNICODE}; the row is {shown(tuple(row))}"
    raise ValueError("every text of these rows can be written")


def _no_unicode_in(value: Any) -> str | None:
    if isinstance(value, str):
        return None if is_unicode(value) else value
    if isinstance(value, list | tuple):
        return next((text for part in value if (text := _no_unicode_in(part)) is not None), None)
    return None


def list_checker(entry: Any, columns: Sequence[WireType]) -> Callable[[list[Any]], Any]:
    """list -> the same list, every entry checked as msgspec's type `entry`. Raises msgspec.ValidationError.

    msgspec prepares a type anew at each call, but keeps what it knows of a Struct: hence the wrapper.
    Where `columns` hold binary it is told that bytes come as they are, or it would take text in base64.
    """
    wrapper: Any = msgspec.defstruct("Rows", [("rows", list[entry])], array_like=True, gc=False)
    if any("binary" in column.name for column in columns):
        convert: Any = partial(msgspec.convert, builtin_types=(bytes, bytearray))
    else:
        convert = msgspec.convert
    return lambda rows: convert((rows,), wrapper).rows
