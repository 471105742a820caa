"""A step with `filter` and `select` on wire rows: which are kept, and what comes out of each.

Of rows only columns that something is worked out of become Arrow's; all others go on as the values that they
are. What comes as columns goes on as columns.
Neighbours: `stages.steps` drives it, `evaluation` works expressions out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.dataflow.expression_tree import Column, ColumnStep, Expression, columns_of
from penstock.dataflow.schema import Schema
from penstock.store.stamps import Stamps, as_array
from penstock_worker.expressions.casts import Refused
from penstock_worker.expressions.evaluation import Rows, evaluated
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows
from penstock_worker.values.rows import RowMismatch, WireRow
from penstock_worker.values.wire_values import shown

_RAISED = (Refused, pa.ArrowInvalid, RowMismatch)


class ColumnStepWork:
    """Does one `ColumnStep` of the operator `name` on rows of `given`."""

    def __init__(self, step: ColumnStep, given: Schema, name: str) -> None:
        self._name = name
        self._step = step
        self._filter = _Asking([step.kept] if step.kept is not None else [], given)
        made = [expression for expression in step.columns if not isinstance(expression, Column)]
        self._select = _Asking(made, given)
        self._shape = ArrowShape(step.output)
        self._goes_on = not made and [column.place for column in _places(step)] == list(
            range(len(given.columns))
        )
        self._project: Callable[[WireRow], Any] | None = None
        if not made:
            self._project = _projecting([column.place for column in _places(step)])

    def work(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int]
    ) -> tuple[Sequence[WireRow], Sequence[int]]:
        """The rows that come out, and their timestamps. Raises UserCodeError where an expression raises,
        as it does in Spark."""
        step = self._step
        if step.kept is not None:
            try:
                kept = evaluated(step.kept, self._filter.of(rows))
            except _RAISED:
                raise self._raised("filter", step.filter_text, step.kept, rows, None) from None
            rows, timestamps_us = _kept(rows, timestamps_us, kept.fill_null(False))
        if self._goes_on or not len(rows):
            return rows, timestamps_us
        if isinstance(rows, ColumnRows) and self._shape.columnar:
            asked = self._select.of(rows)
            arrays = [self._array(place, one, asked, rows) for place, one in enumerate(step.columns)]
            return ColumnRows(self._shape, arrays), timestamps_us
        if self._project is not None:
            return list(map(self._project, rows)), timestamps_us
        asked = self._select.of(rows)
        columns = [
            self._column(place, expression, asked, rows) for place, expression in enumerate(step.columns)
        ]
        return list(zip(*columns, strict=True)), timestamps_us

    def _array(self, place: int, expression: Expression, asked: Rows, rows: ColumnRows) -> pa.Array:
        if isinstance(expression, Column):
            return rows.columns[expression.place]
        try:
            return self._shape.array(place, evaluated(expression, asked))
        except _RAISED:
            raise self._raised("select", self._step.select_texts[place], expression, rows, place) from None

    def _column(self, place: int, expression: Expression, asked: Rows, rows: Sequence[WireRow]) -> list[Any]:
        if isinstance(expression, Column):
            return list(map(itemgetter(expression.place), rows))
        try:
            return self._shape.column(place, evaluated(expression, asked))
        except _RAISED:
            raise self._raised("select", self._step.select_texts[place], expression, rows, place) from None

    def _raised(
        self, field: str, text: str, expression: Expression, rows: Sequence[WireRow], place: int | None
    ) -> UserCodeError:
        """The first row that raises is found by halves."""
        asking = self._filter if place is None else self._select

        def why(some: Sequence[WireRow]) -> str | None:
            try:
                found = evaluated(expression, asking.of(some))
                if place is not None:
                    self._shape.column(place, found)
            except _RAISED as error:
                return str(error)
            return None

        while len(rows) > 1:
            half = len(rows) // 2
            rows = rows[:half] if why(rows[:half]) is not None else rows[half:]
        what = f"{field} {text!r} raised on {shown(tuple(rows[0]))}:"
        return UserCodeError(self._name, what, why(rows) or "of these rows together")


class _Asking:
    """Makes those columns that some expressions ask for."""

    def __init__(self, expressions: Sequence[Expression], given: Schema) -> None:
        self._places = sorted({column.place for one in expressions for column in columns_of(one)})
        self._arrays = ArrowRows(Schema(tuple(given.columns[place] for place in self._places)))

    def of(self, rows: Sequence[WireRow]) -> Rows:
        if isinstance(rows, ColumnRows):
            return Rows({place: rows.columns[place] for place in self._places}, len(rows))
        values = [list(map(itemgetter(place), rows)) for place in self._places]
        return Rows(dict(zip(self._places, self._arrays.arrays(values), strict=True)), len(rows))


def _kept(
    rows: Sequence[WireRow], timestamps_us: Sequence[int], mask: pa.Array
) -> tuple[Sequence[WireRow], Sequence[int]]:
    """Rows and timestamps where `mask` is true; of columns what few rows are left go as rows."""
    found = mask.to_numpy(zero_copy_only=False)
    if isinstance(rows, ColumnRows):
        taken = rows.taken(mask)
        stamps_us = Stamps(as_array(timestamps_us)[found])
        return (taken, stamps_us) if len(taken) >= COLUMNS_FROM else (taken.rows, list(stamps_us))
    chosen = found.tolist()
    return list(compress(rows, chosen)), list(compress(timestamps_us, chosen))


def _places(step: ColumnStep) -> list[Column]:
    return [expression for expression in step.columns if isinstance(expression, Column)]


def _projecting(places: list[int]) -> Callable[[WireRow], Any]:
    if len(places) == 1:
        (place,) = places
        return lambda row: (row[place],)
    return itemgetter(*places)
