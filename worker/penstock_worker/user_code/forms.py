"""The forms of a processor: what it is handed for a key, and what its outputs become.

`RowForm` is `transformWithState`, `FrameForm` `transformWithStateInPandas`, `WireForm` that of processors
which come with Penstock and know wire rows; all keep the port `Form`.
Neighbours: `running` drives them, `form_signs` says which one a class wants, `values.rows` and
`values.frames` make and read what is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import GeneratorType
from typing import Any, Protocol

from pyspark.sql.types import Row

from penstock.dataflow.plan import PANDAS
from penstock.dataflow.schema import Schema
from penstock_worker.state.cache import Key
from penstock_worker.values.held import LOOK_ROWS, Held
from penstock_worker.values.rows import OutputShape, RowMismatch, RowReader, WireRow, key_reader
from penstock_worker.values.wire_values import shown

WIRE = "Wire"
"""No manifest says it: users' code knows nothing of wire rows."""


class Form(Protocol):
    """What stands between wire rows and one processor."""

    takes_columns: bool
    """Whether rows that are columns (`values.group_rows`) are handed over sooner than others."""

    def key(self, key: Key) -> Key:
        """A key of wire values as the processor is given it."""

    def rows(self, rows: Sequence[WireRow]) -> Iterable[Any]:
        """The rows of one key as the processor is given them."""

    def each(self, rows_by_key: Sequence[Sequence[WireRow]]) -> Iterable[Iterable[Any]]:
        """The same for several keys, in turn; what one of them raises comes when its own are asked for."""

    def taken(self, rows: Sequence[WireRow], given: Iterable[Any]) -> int | None:
        """How many of `rows` the processor has taken of `given`, which was made of them; None where nobody
        knows. Nothing is left of `given` then."""

    def wire_rows(self, result: Any, held: Held) -> list[tuple[Any, ...]]:
        """What the processor returned, as wire rows; runs a generator to its end.

        Raises RowMismatch, and TooMuch for more rows than should be held.
        """


def form_for(name: str, given: Schema, key_columns: Sequence[int], output: Schema) -> Form:
    """The form called `name`, PANDAS, ROWS or WIRE, for an operator's schemas."""
    if name == WIRE:
        return WireForm()
    key_types = [given.columns[column].type for column in key_columns]
    if name == PANDAS:
        # pandas takes its time and its memory: only who uses it pays.
        from penstock_worker.user_code.frame_form import FrameForm

        return FrameForm(given, [given.columns[column] for column in key_columns], output)
    return RowForm(given, key_types, output)


class WireForm:
    """Wire rows in, and wire rows out that nobody looks at again: who takes this form answers for them."""

    takes_columns = False

    def key(self, key: Key) -> Key:
        return key

    def rows(self, rows: Sequence[WireRow]) -> Sequence[WireRow]:
        return rows

    def each(self, rows_by_key: Sequence[Sequence[WireRow]]) -> Sequence[Sequence[WireRow]]:
        return rows_by_key

    def taken(self, rows: Sequence[WireRow], given: Iterable[Any]) -> None:
        """Nobody knows: they are handed over as a list."""

    def wire_rows(self, result: list[tuple[Any, ...]], held: Held) -> list[tuple[Any, ...]]:
        if len(result) > LOOK_ROWS:
            held.check(result)
        return result


class RowForm:
    """pyspark Rows in; rows of any kind out."""

    takes_columns = False

    def __init__(self, given: Schema, key_types: Sequence[str], output: Schema) -> None:
        self.rows = RowReader(given).rows
        self._shape = OutputShape(output)
        self._read_key = key_reader(key_types)

    def key(self, key: Key) -> Key:
        return key if self._read_key is None else self._read_key(key)

    def each(self, rows_by_key: Sequence[Sequence[WireRow]]) -> Iterable[Iterator[Any]]:
        return map(self.rows, rows_by_key)

    def taken(self, rows: Sequence[WireRow], given: Iterable[Any]) -> int | None:
        try:
            return len(rows) - sum(1 for _ in given)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            # One that is left is no Row, which is told when it is handed over.
            return None

    def wire_rows(self, result: Any, held: Held) -> list[tuple[Any, ...]]:
        return self._shape.wire_rows(listed_rows(result, held))


def listed_rows(result: Any, held: Held) -> list[Any]:
    """What user code returned, as a list of its rows; runs a generator to its end.

    Raises RowMismatch, and TooMuch for more rows than should be held.
    """
    kind = type(result)
    if kind is GeneratorType:
        rows = list(islice(result, LOOK_ROWS))
        return rows if len(rows) < LOOK_ROWS else held.listed(result, rows)
    if kind is list:
        if len(result) > LOOK_ROWS:
            held.check(result)
        return list(result)
    # Most of these can be iterated over too, but what comes out would be no rows.
    is_one = isinstance(result, Row | dict | str | bytes | bytearray) or type(result).__name__ == "DataFrame"
    if is_one or not isinstance(result, Iterable):
        raise RowMismatch(
            f"returned {shown(result)}; return an iterable of rows, such as [row], or yield them"
        )
    return held.listed(iter(result), [])
