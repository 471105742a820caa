"""An expression over the columns of some rows: what it comes to for each, as an Arrow array.

AND, OR, CASE and coalesce work their later parts out only for the rows that need them, as Spark does, where
these parts may raise: `x <> 0 AND 10 / x > 1` raises for no row. Neighbours: `operations` and `casts` do the
rest, `column_step` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow.expression_tree import Call, Column, Expression, Literal
from penstock.dataflow.expressions.types import FRACTIONAL, INTEGRAL
from penstock_worker.expressions.arrow_types import arrow_type
from penstock_worker.expressions.operations import work_out

_NEVER_RAISES = frozenset(
    {
        "and", "or", "not", "equal", "less", "less_or_equal", "same", "in", "is_null", "is_nan",
        "choose", "coalesce", "square_root", "length", "upper", "lower", "trim", "trim_left",
        "trim_right", "substring", "concat", "replace", "like", "contains", "starts_with", "ends_with",
        "year", "month", "day", "day_of_week", "day_of_year", "quarter", "hour", "minute", "second",
        "days_between", "unix_micros", "unix_millis", "unix_seconds",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows, and of those columns that are asked for, by their places, the arrays."""

    columns: Mapping[int, pa.Array]
    count: int

    def taken(self, mask: pa.Array) -> Rows:
        """Those where `mask`, which has no nulls, is true."""
        return Rows(
            {place: column.filter(mask) for place, column in self.columns.items()},
            int(pc.sum(mask).as_py() or 0),
        )


def evaluated(expression: Expression, rows: Rows) -> pa.Array:
    """`rows.count` values of the expression's type. Raises Refused, pa.ArrowInvalid."""
    match expression:
        case Column(place):
            return rows.columns[place]
        case Literal():
            return pa.repeat(_scalar(expression), rows.count)
        case Call("and" | "or"):
            return _junction(expression, rows)
        case Call("choose"):
            return _chosen(expression, rows)
        case Call("coalesce"):
            return _coalesced(expression, rows)
        case _:
            return work_out(expression, [evaluated(argument, rows) for argument in expression.arguments])


@cache
def _scalar(literal: Literal) -> pa.Scalar:
    return pa.scalar(literal.value, arrow_type(literal.type))


@cache
def may_raise(expression: Expression) -> bool:
    """Whether some value may raise."""
    if not isinstance(expression, Call):
        return False
    if any(map(may_raise, expression.arguments)):
        return True
    if expression.function in _NEVER_RAISES:
        return False
    if expression.function in ("add", "subtract", "multiply", "negate", "absolute"):
        return expression.type not in FRACTIONAL
    if expression.function == "cast":
        return not _widens(expression.arguments[0].type, expression.type)
    return True


def _widens(given: str, wanted: str) -> bool:
    if given in INTEGRAL and wanted in INTEGRAL:
        return INTEGRAL.index(given) <= INTEGRAL.index(wanted)
    return wanted in FRACTIONAL and given != "string"


def _only_where(needed: pa.Array, expression: Expression, rows: Rows) -> pa.Array:
    """The expression's values where `needed`, which has no nulls, is true; null elsewhere."""
    if not may_raise(expression) or pc.all(needed).as_py():
        return evaluated(expression, rows)
    some = rows.taken(needed)
    none = pa.nulls(rows.count, arrow_type(expression.type))
    return pc.replace_with_mask(none, needed, evaluated(expression, some)) if some.count else none


def _junction(call: Call, rows: Rows) -> pa.Array:
    first, second = call.arguments
    left = evaluated(first, rows)
    join: Callable[..., pa.Array] = pc.and_kleene if call.function == "and" else pc.or_kleene
    if not may_raise(second):
        return join(left, evaluated(second, rows))
    decided = pc.equal(left, pa.scalar(call.function == "or"))
    return join(left, _only_where(pc.invert(pc.fill_null(decided, False)), second, rows))


def _chosen(call: Call, rows: Rows) -> pa.Array:
    *pairs, otherwise = call.arguments
    open_rows = pa.repeat(pa.scalar(True), rows.count)
    conditions, values = [], []
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        holds = pc.fill_null(_only_where(open_rows, condition, rows), False)
        holds = pc.and_(holds, open_rows)
        conditions.append(holds)
        values.append(_only_where(holds, value, rows))
        open_rows = pc.and_(open_rows, pc.invert(holds))
    names = [str(number) for number in range(len(conditions))]
    cases = pa.StructArray.from_arrays(conditions, names=names)
    return pc.case_when(cases, *values, _only_where(open_rows, otherwise, rows))


def _coalesced(call: Call, rows: Rows) -> pa.Array:
    first, *others = call.arguments
    found = evaluated(first, rows)
    for other in others:
        found = pc.coalesce(found, _only_where(found.is_null(), other, rows))
    return found
