"""What the values of a state variable look like: checked and packed on the way in, read on the way out.

State is kept packed, in the cache too: what user code gets is new at each call, and what it changes
afterwards is its own. Neighbours: `wire` (single values), `clients` (who calls this for each state call).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.types import Row

from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.state.encoding import pack
from penstock_worker.values.rows import list_checker, row_class
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import Misfit, has_no_dict, nullable, shown, wire_type

Values = tuple[Any, ...]


class StateMisuse(PermanentError, PySparkRuntimeError):  # type: ignore[misc]  # pyspark carries no types here
    """A call on a state variable cannot be carried out as it is; the message says what would be right. Code
    that catches what Spark raises there catches this."""


class StateUnreadable(PermanentError):
    """What the store holds for a variable was written under another schema."""


class StateShape:
    """One schema of one variable. `what` names it in messages: "state 'total'"."""

    def __init__(self, what: str, schema: Schema) -> None:
        self._what = what
        self._schema = schema
        for column in schema.columns:
            if has_no_dict(spark_type(column.type)):
                raise StateMisuse(
                    f"{what}, column {column.name!r}, is {column.type}: state hands a map out as a dict, "
                    "which cannot have such keys; give a map with other keys, or a list of structs"
                )
        self._columns = [wire_type(spark_type(column.type)) for column in schema.columns]
        checked = tuple.__class_getitem__(tuple(nullable(column.checked) for column in self._columns))
        plain = all(column.plain for column in self._columns)
        given = [
            nullable(wire.checked) if column.nullable else wire.checked
            for wire, column in zip(self._columns, schema.columns, strict=True)
        ]
        self._check = list_checker(tuple.__class_getitem__(tuple(given)), self._columns) if plain else None
        self._decode: Callable[[bytes], Values] = msgspec.msgpack.Decoder(checked).decode
        self._readers = [
            (place, column.to_state)
            for place, column in enumerate(self._columns)
            if column.to_state is not None
        ]
        self._row_class = row_class(schema)

    @property
    def ddl(self) -> str:
        return self._schema.ddl()

    def packed(self, values: object) -> bytes:
        """A tuple, list or Row of user values, by position, packed. Raises StateMisuse."""
        if self._check is not None:
            try:
                return pack(self._check([values])[0])
            except (msgspec.ValidationError, ValueError):
                pass  # numbers of numpy, or a value to be named, such as a text that is no Unicode
        return pack(self._wire_values(values))

    def values(self, raw: bytes) -> Values:
        """Packed values as Spark's state hands them out. Raises StateUnreadable."""
        try:
            values = self._decode(raw)
        except msgspec.DecodeError as error:
            raise StateUnreadable(
                f"{self._what} was written under another schema than {self._schema.ddl()} ({error}); give "
                "the variable a new name, or start anew with --fresh"
            ) from None
        return self._converted(values) if self._readers else values

    def row(self, raw: bytes) -> Row:
        """Packed values as a Row, which is what Spark's MapState.getValue answers."""
        made: Row = tuple.__new__(self._row_class, self.values(raw))
        return made

    def _converted(self, values: Values) -> Values:
        new = list(values)
        for place, to_state in self._readers:
            if new[place] is not None:
                new[place] = to_state(new[place])
        return tuple(new)

    def _wire_values(self, values: object) -> list[Any]:
        if isinstance(values, str) and len(values) == len(self._columns):
            # Spark takes a text for the sequence of its letters, and so may who names a key by one letter.
            values = tuple(values)
        if not isinstance(values, tuple | list):
            raise StateMisuse(f"{self._what} takes a tuple ({self._schema.ddl()}), got {shown(values)}")
        if len(values) != len(self._columns):
            raise StateMisuse(
                f"{self._what} takes {len(self._columns)} values ({self._schema.ddl()}), got {shown(values)}"
            )
        return [self._wire_value(place, values) for place in range(len(values))]

    def _wire_value(self, place: int, values: Sequence[Any]) -> Any:
        value = values[place]
        if value is None and not self._schema.columns[place].nullable:
            name = self._schema.columns[place].name
            raise StateMisuse(f"{self._what}, column {name!r}, is declared as NOT NULL, got None")
        try:
            return None if value is None else self._columns[place].to_wire(value)
        except Misfit as misfit:
            name = self._schema.columns[place].name
            raise StateMisuse(f"{self._what}, column {name!r}, {misfit}") from None
