"""Rows that are columns: a sequence of wire rows over Arrow arrays, of which rows are made on demand.

Whoever knows columns takes `columns`; to all others it is the rows, made once. So a part of the work has one
form from a source to a sink, and what needs rows (a row step, a dead letter) pays for them there. Only
schemas whose types Arrow and the wire have in one form are columns (`is_columnar`); others go as rows from
the start. Nothing here loads Arrow: tasks without columns do without. Neighbours: `arrow_columns` reads and
checks columns, `even_columns` packs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from penstock.dataflow.schema import Schema
from penstock_worker.values.rows import WireRow

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_FROM = 512
"""Fewer rows go as rows: what a column costs by itself is more than theirs."""

_COLUMNAR = frozenset(
    {
        "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date",
        "timestamp", "timestamp_ntz",
    }
)  # fmt: skip


def is_columnar(schema: Schema) -> bool:
    """Whether rows of a schema may be columns."""
    return bool(schema.columns) and all(column.type in _COLUMNAR for column in schema.columns)


class ColumnShape(Protocol):
    """What the columns are (`arrow_columns.ArrowShape`)."""

    arrow_schema: pa.Schema

    @property
    def read(self) -> Sequence[Callable[[pa.Array], list[Any]]]:
        """Of each column, its wire values."""


class ColumnRows(Sequence[WireRow]):
    """`columns` are of exactly the types of `shape.arrow_schema`, and all as long."""

    __slots__ = ("_rows", "columns", "shape")

    def __init__(self, shape: ColumnShape, columns: Sequence[pa.Array]) -> None:
        self.shape = shape
        self.columns = columns
        self._rows: list[WireRow] | None = None

    @property
    def rows(self) -> list[WireRow]:
        """All rows; they are kept."""
        if self._rows is None:
            values = [read(column) for read, column in zip(self.shape.read, self.columns, strict=True)]
            self._rows = list(zip(*values, strict=True))
        return self._rows

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[WireRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, place: int) -> WireRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[WireRow]: ...
    def __getitem__(self, place: int | slice) -> WireRow | Sequence[WireRow]:
        if self._rows is not None:
            return self._rows[place]
        if isinstance(place, slice):
            return ColumnRows(self.shape, [column[place] for column in self.columns])
        count = len(self)
        if not -count <= place < count:
            raise IndexError(place)
        place %= count
        return ColumnRows(self.shape, [column[place : place + 1] for column in self.columns]).rows[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __repr__(self) -> str:
        return f"ColumnRows({self.rows})"

    def taken(self, mask: pa.Array) -> ColumnRows:
        """Those where `mask`, which has no nulls, is true."""
        return ColumnRows(self.shape, [column.filter(mask) for column in self.columns])
