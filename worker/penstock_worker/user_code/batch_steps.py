"""Steps on batches: what is handed to their code for the rows that a task has at hand, and what comes back.

`PANDAS` is PySpark's `mapInPandas`, `ARROW` its `mapInArrow`: a function of an iterator that returns one. It
is called for each part of a task's work, whose commit holds all that came of it, so the iterator ends with
the part. Neighbours: `stages.steps` drives them, `frame_step` and `arrow_step` are the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from penstock.dataflow.plan import PANDAS
from penstock.dataflow.schema import Schema
from penstock_worker.values.held import LOOK_ROWS, Held
from penstock_worker.values.rows import RowMismatch, WireRow
from penstock_worker.values.wire_values import shown

BATCH_ROWS_MAX = 10_000
"""Rows in one batch, as `spark.sql.execution.arrow.maxRecordsPerBatch` has it."""


class BatchForm(Protocol):
    """What stands between wire rows and the code of one step."""

    role: str
    """The manifest's field,"""
    batches: str
    """and what its code takes and gives, in words."""

    def batch(self, rows: Sequence[WireRow]) -> Any:
        """Rows, which are not none, as the code is given them."""

    def wire_rows(self, batch: Any) -> Sequence[WireRow]:
        """What the code gave, as wire rows; the code may change it when this is done. Raises RowMismatch."""

    def joined(self, parts: Sequence[Sequence[WireRow]]) -> Sequence[WireRow]:
        """Several such, one behind the other."""


def batch_form(form: str, given: Schema, output: Schema) -> BatchForm:
    """The form of a step, PANDAS or ARROW. pandas and Arrow take their time and their memory: only who uses
    one pays."""
    if form == PANDAS:
        from penstock_worker.user_code.frame_step import FrameStep

        return FrameStep(given, output)
    from penstock_worker.user_code.arrow_step import ArrowStep

    return ArrowStep(given, output)


def batches_of(form: BatchForm, rows: Sequence[WireRow]) -> Iterator[Any]:
    """The rows in order, each batch made as it is asked for."""
    for start in range(0, len(rows), BATCH_ROWS_MAX):
        yield form.batch(rows[start : start + BATCH_ROWS_MAX])


def listed_batches(form: BatchForm, result: Any, held: Held) -> Sequence[WireRow]:
    """What the code returned, as wire rows; runs it to its end.

    As in Spark it is an iterator, and no list. Raises RowMismatch, and TooMuch for more rows than should be
    held.
    """
    if not isinstance(result, Iterator):
        raise RowMismatch(
            f"returned {shown(result)}; {form.role} returns an iterator of {form.batches}, as Spark asks "
            "for: yield them, or return iter([...])"
        )
    parts: list[Sequence[WireRow]] = []
    count, look_at = 0, LOOK_ROWS
    for batch in result:
        rows = form.wire_rows(batch)
        if not len(rows):
            continue
        parts.append(rows)
        count += len(rows)
        if count > look_at:
            held.check_count(count, rows[-1])
            look_at = 2 * count
    return form.joined(parts)
