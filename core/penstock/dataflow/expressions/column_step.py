"""`filter` and `select` of a step -> `ColumnStep`: what is kept, what comes out, and its schema.

Neighbours: `api.column_steps` asks with a manifest's texts, the worker's `expressions` works it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataflow.expression_tree import Column, ColumnStep, Expression, InvalidExpression
from penstock.dataflow.expressions import operations
from penstock.dataflow.expressions.reading import read, read_named
from penstock.dataflow.schema import Column as SchemaColumn
from penstock.dataflow.schema import Schema


def read_filter(text: str, schema: Schema) -> Expression:
    """A condition over `schema`. Raises InvalidExpression."""
    return operations.truth(read(text, schema), "a filter")


def read_select(texts: Sequence[str], schema: Schema) -> ColumnStep:
    """The columns that come out, without a filter. Raises InvalidExpression, whose text begins with the place
    in `texts` and the text itself."""
    columns: list[Expression] = []
    output: list[SchemaColumn] = []
    shown: list[str] = []
    for place, text in enumerate(texts):
        try:
            found = read_named(text, schema)
            named = [(found[0], found[1])] if found is not None else _all(schema)
            for name, expression in named:
                if any(name.lower() == column.name.lower() for column in output):
                    raise InvalidExpression(f"column {name!r} comes twice (case does not count)")
                columns.append(expression)
                output.append(SchemaColumn(name, expression.type))
                shown.append(text)
        except InvalidExpression as error:
            raise InvalidExpression(f"[{place}] {text!r}: {error}") from None
    return ColumnStep(None, tuple(columns), Schema(tuple(output)), select_texts=tuple(shown))


def all_columns(schema: Schema) -> ColumnStep:
    """What goes on as it came."""
    return ColumnStep(None, tuple(expression for _, expression in _all(schema)), schema)


def _all(schema: Schema) -> list[tuple[str, Expression]]:
    return [
        (column.name, Column(place, column.type, column.name)) for place, column in enumerate(schema.columns)
    ]
