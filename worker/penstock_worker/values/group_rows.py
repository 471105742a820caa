"""Rows of even entries, grouped by key: columns in the order of their keys, and a sequence of rows for each.

One sort puts the rows of a key behind each other, in the order in which they came. What takes columns
(`frames`) cuts them out of these; all others get rows, made when they are asked for. Neighbours:
`stages.keyed_part` has the groups of a part, `store.even_rows` reads the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from penstock.store.even_rows import Cells, EvenColumn, EvenTexts
from penstock_worker.values.rows import WireRow

Order = NDArray[np.int64]


def values_of(column: EvenColumn, begin: int, end: int) -> Sequence[Any]:
    """Wire values of a column from one row to another."""
    if column is None:
        return [None] * (end - begin)
    if isinstance(column, EvenTexts):
        return _texts(column.cells[begin:end], is_text=column.is_text)
    values: list[Any] = column[begin:end].tolist()
    return values


def _texts(cells: Cells, *, is_text: bool) -> list[Any]:
    rows, length = cells.shape
    if rows and (not length or (cells == cells[0]).all()):
        first = cells[0].tobytes()
        return [first.decode() if is_text else first] * rows
    data = cells.tobytes()
    if is_text and data.isascii():
        text = data.decode()
        return [text[at : at + length] for at in range(0, len(text), length)]
    found = [data[at : at + length] for at in range(0, len(data), length)]
    return [each.decode() for each in found] if is_text else found


class GroupRows(Sequence[WireRow]):
    """The rows of one key, or of an entry: those of `columns` from `begin` to `end`."""

    __slots__ = ("_rows", "begin", "columns", "end")

    def __init__(self, columns: Sequence[EvenColumn], begin: int, end: int) -> None:
        self.columns = columns
        self.begin = begin
        self.end = end
        self._rows: list[WireRow] | None = None

    @property
    def rows(self) -> list[WireRow]:
        """All of them; they are kept."""
        if self._rows is None:
            values = [values_of(column, self.begin, self.end) for column in self.columns]
            self._rows = list(zip(*values, strict=True))
        return self._rows

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[WireRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, place: int) -> WireRow: ...
    @overload
    def __getitem__(self, place: slice) -> GroupRows: ...
    def __getitem__(self, place: int | slice) -> WireRow | GroupRows:
        if not isinstance(place, slice):
            return self.rows[place]
        begin, end, step = place.indices(len(self))
        if step != 1:
            raise ValueError("rows are cut without a step")
        return GroupRows(self.columns, self.begin + begin, self.begin + max(begin, end))

    def cut(self) -> list[EvenColumn]:
        """Its own part of the columns."""
        return [
            EvenTexts(column.cells[self.begin : self.end], column.is_text)
            if isinstance(column, EvenTexts)
            else None
            if column is None
            else column[self.begin : self.end]
            for column in self.columns
        ]


@dataclass(frozen=True, slots=True)
class Grouped:
    """Groups in order of first appearance: keys, rows, and the oldest timestamps of these."""

    keys: list[tuple[Any, ...]]
    rows: list[GroupRows]
    oldest_us: list[int]


def joined_columns(parts: Sequence[Sequence[EvenColumn]]) -> list[EvenColumn] | None:
    """The columns of several entries, one behind the other; None where they are not alike."""
    found: list[EvenColumn] = []
    for pieces in zip(*parts, strict=True):
        first = pieces[0]
        if isinstance(first, EvenTexts):
            if not all(
                isinstance(piece, EvenTexts)
                and piece.cells.shape[1] == first.cells.shape[1]
                and piece.is_text == first.is_text
                for piece in pieces
            ):
                return None
            found.append(EvenTexts(np.concatenate([piece.cells for piece in pieces]), first.is_text))
        elif first is None:
            if any(piece is not None for piece in pieces):
                return None
            found.append(None)
        else:
            if not all(isinstance(piece, np.ndarray) and piece.dtype == first.dtype for piece in pieces):
                return None
            found.append(np.concatenate(pieces))
    return found


def grouped(
    columns: Sequence[EvenColumn], stamps_us: NDArray[np.int64], key_columns: Sequence[int]
) -> Grouped:
    """Rows by their keys: of integers, booleans, texts and bytes. Rows are not none."""
    codes = [_codes(columns[place]) for place in key_columns]
    if all((code == code[0]).all() for code in codes):
        keyed = [values_of(columns[place], 0, 1) for place in key_columns]
        of_all = GroupRows(columns, 0, len(stamps_us))
        return Grouped(list(zip(*keyed, strict=True)), [of_all], [int(stamps_us.min())])
    order = _order(codes[0]) if len(codes) == 1 else np.lexsort(codes[::-1])
    differs = np.zeros(len(order) - 1, np.bool_)
    for code in codes:
        ordered = code[order]
        differs |= ordered[1:] != ordered[:-1]
    begins = np.concatenate(([0], np.flatnonzero(differs) + 1))
    ends = np.append(begins[1:], len(order))
    firsts = order[begins]
    sequence = np.argsort(firsts)
    taken = [_taken(column, order) for column in columns]
    oldest_us = np.minimum.reduceat(stamps_us[order], begins)[sequence]
    keyed = [values_of(_taken(columns[place], firsts[sequence]), 0, len(firsts)) for place in key_columns]
    spans = zip(begins[sequence].tolist(), ends[sequence].tolist(), strict=True)
    return Grouped(
        list(zip(*keyed, strict=True)),
        [GroupRows(taken, begin, end) for begin, end in spans],
        oldest_us.tolist(),
    )


def _order(codes: NDArray[Any]) -> Order:
    """Where the rows are, in the order of their codes. Codes that are near each other go by a radix sort,
    which is several times as quick."""
    if codes.dtype.kind == "i":
        least = codes.min()
        if int(codes.max()) - int(least) < 1 << 16:
            codes = (codes - least).astype(np.uint16)
    return np.argsort(codes, kind="stable")


def _codes(column: EvenColumn) -> NDArray[Any]:
    """Numbers that differ where the values do."""
    if column is None:
        raise ValueError("a key without values is no column")
    if not isinstance(column, EvenTexts):
        return column
    rows, length = column.cells.shape
    if not length:
        return np.zeros(rows, np.int64)
    # numpy takes zero bytes at the end for none; of texts that are equally long it still tells all apart.
    whole = np.ascontiguousarray(column.cells).view(f"S{length}").ravel()
    return np.unique(whole, return_inverse=True)[1]


def _taken(column: EvenColumn, order: Order) -> EvenColumn:
    if column is None:
        return None
    return EvenTexts(column.cells[order], column.is_text) if isinstance(column, EvenTexts) else column[order]
