"""A Spark SQL expression that is understood: each part has its type, and all casts that Spark adds are there.

`expressions` makes them from text, the worker's `expressions` works them out over columns. What is not
understood for certain never becomes one. Types are those of `schema`, and "void" for NULL alone; a decimal
that only a cast is given may have more than 38 digits.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError

VOID = "void"

Value = None | bool | int | float | str | Decimal | datetime.date | datetime.datetime


class InvalidExpression(PermanentError):
    """A text is no expression, or one whose results cannot be promised to be Spark's; the message says why,
    and what would do."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input, by its place."""

    place: int
    type: str
    name: str
    """As it was written, which a column that comes out is called by."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in its Python form: a timestamp has UTC, a timestamp_ntz no zone."""

    value: Value
    type: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that `expressions` names; for a cast `type` says to what."""

    function: str
    arguments: tuple[Expression, ...]
    type: str


Expression = Column | Literal | Call


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """What a step with `filter` and `select` does: rows for which `kept` is true (None: all), and of each the
    `columns`, with their names in `output`. The texts are those of the manifest, for messages."""

    kept: Expression | None
    columns: tuple[Expression, ...]
    output: Schema
    filter_text: str = ""
    select_texts: tuple[str, ...] = ()
    """One a column; none where all go on as they came."""


def columns_of(expression: Expression) -> Iterator[Column]:
    """Each place where a column is asked for."""
    match expression:
        case Column():
            yield expression
        case Call():
            for argument in expression.arguments:
                yield from columns_of(argument)
        case Literal():
            pass
