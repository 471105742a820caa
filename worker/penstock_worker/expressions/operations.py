"""What each operation of an expression does to whole columns, as Spark does it for each row.

Numbers are checked: what overflows raises, and so does a division by zero. NaN equals NaN and is greater than
all else. Neighbours: `evaluation` calls these, with what must not be worked out for every row left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow.expression_tree import Call
from penstock.dataflow.expressions.types import PRECISION_MAX
from penstock_worker.expressions.arrow_types import arrow_type
from penstock_worker.expressions.casts import Refused, cast, filled, nulls, truncated

OfColumns = Callable[..., pa.Array]
"""Takes the arguments' columns."""

_INT_MAX = (1 << 31) - 1


def work_out(call: Call, columns: Sequence[pa.Array]) -> pa.Array:
    """`call` over its arguments' columns, equally long. Raises Refused, pa.ArrowInvalid."""
    of_columns = _OF_COLUMNS.get(call.function)
    return of_columns(*columns) if of_columns is not None else _OF_CALL[call.function](call, *columns)


# --- numbers ----------------------------------------------------------------------------------------


def _checked(function: OfColumns) -> OfColumns:
    def worked_out(call: Call, *columns: pa.Array) -> pa.Array:
        if not pa.types.is_decimal(columns[0].type):
            return function(*columns)
        wanted = arrow_type(call.type)
        if wanted is not None and wanted.precision > PRECISION_MAX:
            wide = [
                column.cast(pa.decimal256(column.type.precision, column.type.scale)) for column in columns
            ]
            return function(*wide).cast(wanted)
        return function(*columns).cast(wanted)

    return worked_out


def _remainder(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    both = pc.and_(left.is_valid(), right.is_valid())
    divisors = filled(right, 1)
    if pc.any(pc.and_(both, pa.array(divisors == 0))).as_py():
        raise Refused("division by zero")
    with np.errstate(all="ignore"):
        found = np.fmod(filled(left, 0), np.where(divisors == 0, divisors.dtype.type(1), divisors))
    return pa.array(found, arrow_type(call.type), mask=~both.to_numpy(zero_copy_only=False))


# --- comparisons ------------------------------------------------------------------------------------


def _has_nan(*columns: pa.Array) -> bool:
    return pa.types.is_floating(columns[0].type) and any(pc.any(pc.is_nan(one)).as_py() for one in columns)


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    found = pc.equal(left, right)
    return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right))) if _has_nan(left, right) else found


def _less(left: pa.Array, right: pa.Array) -> pa.Array:
    found = pc.less(left, right)
    if not _has_nan(left, right):
        return found
    return pc.or_(found, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _less_or_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    found = pc.less_equal(left, right)
    if not _has_nan(left, right):
        return found
    return pc.or_(pc.and_(found, pc.invert(pc.is_nan(left))), pc.is_nan(right))


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    both_null = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both_null, pc.fill_null(_equal(left, right), False))


def _in(value: pa.Array, *options: pa.Array) -> pa.Array:
    return reduce(pc.or_kleene, [_equal(value, option) for option in options])


# --- texts ------------------------------------------------------------------------------------------


def _literal(call: Call, place: int) -> Any:
    """The value of an argument that stands in the expression."""
    return getattr(call.arguments[place], "value", None)


def _with_literal(function: OfColumns) -> OfColumns:
    """A function of texts and of one that stands in the expression."""
    return lambda call, texts, _: function(texts, _literal(call, 1))


def _substring(call: Call, texts: pa.Array, *_: pa.Array) -> pa.Array:
    position = _literal(call, 1)
    length = _literal(call, 2) if len(call.arguments) > 2 else _INT_MAX
    start = position - 1 if position > 0 else position
    stop = start + length
    if length <= 0:
        stop = start
    elif start < 0 <= stop or stop > _INT_MAX:
        stop = None
    return pc.utf8_slice_codeunits(texts, start=start, stop=stop)


def _cased(ascii_only: OfColumns, each: Callable[[str], str]) -> OfColumns:
    def worked_out(texts: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(texts)).as_py() in (True, None):
            return ascii_only(texts)
        return pa.array([None if text is None else each(text) for text in texts.to_pylist()], pa.string())

    return worked_out


def _length(given: pa.Array) -> pa.Array:
    return (pc.binary_length if pa.types.is_binary(given.type) else pc.utf8_length)(given)


def _replace(call: Call, texts: pa.Array, *_: pa.Array) -> pa.Array:
    searched = _literal(call, 1)
    if not searched:
        return texts
    return pc.replace_substring(texts, pattern=searched, replacement=_literal(call, 2))


def _concat(*texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


# --- times ------------------------------------------------------------------------------------------


def _part(function: OfColumns) -> OfColumns:
    return lambda times: function(times).cast(pa.int32())


def _days(column: pa.Array) -> pa.Array:
    return column.view(pa.int32())


def _date_moved(function: OfColumns) -> OfColumns:
    return lambda dates, days: function(_days(dates), days).view(pa.date32())


def _of_micros(divisor: int) -> OfColumns:
    def worked_out(times: pa.Array) -> pa.Array:
        micros = times.view(pa.int64())
        return pa.array(np.floor_divide(filled(micros, 0), divisor), mask=nulls(micros))

    return worked_out


def _of_number(factor: int) -> OfColumns:
    return lambda numbers: pc.multiply_checked(numbers, factor).view(pa.timestamp("us", "UTC"))


_OF_CALL: dict[str, OfColumns] = {
    "cast": lambda call, column: cast(column, call.arguments[0].type, call.type),
    "add": _checked(pc.add_checked),
    "subtract": _checked(pc.subtract_checked),
    "multiply": _checked(pc.multiply_checked),
    "negate": _checked(pc.negate_checked),
    "absolute": _checked(pc.abs_checked),
    "remainder": _remainder,
    "substring": _substring,
    "replace": _replace,
    "like": _with_literal(pc.match_like),
    "contains": _with_literal(pc.match_substring),
    "starts_with": _with_literal(pc.starts_with),
    "ends_with": _with_literal(pc.ends_with),
}
"""Those that ask for more than the columns: the call comes first."""
_OF_COLUMNS: dict[str, OfColumns] = {
    "divide": pc.divide_checked,
    "integral_divide": pc.divide_checked,
    "floor": lambda numbers: truncated(pc.floor(numbers), "bigint"),
    "ceiling": lambda numbers: truncated(pc.ceil(numbers), "bigint"),
    "square_root": pc.sqrt,
    "equal": _equal,
    "less": _less,
    "less_or_equal": _less_or_equal,
    "same": _same,
    "in": _in,
    "not": pc.invert,
    "is_null": pc.is_null,
    "is_nan": lambda numbers: pc.fill_null(pc.is_nan(numbers), False),
    "length": _length,
    "upper": _cased(pc.ascii_upper, str.upper),
    "lower": _cased(pc.ascii_lower, str.lower),
    "trim": partial(pc.utf8_trim, characters=" "),
    "trim_left": partial(pc.utf8_ltrim, characters=" "),
    "trim_right": partial(pc.utf8_rtrim, characters=" "),
    "concat": _concat,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "day_of_week": _part(partial(pc.day_of_week, count_from_zero=False, week_start=7)),
    "day_of_year": _part(pc.day_of_year),
    "quarter": _part(pc.quarter),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "date_add": _date_moved(pc.add_checked),
    "date_subtract": _date_moved(pc.subtract_checked),
    "days_between": lambda end, start: pc.subtract(_days(end), _days(start)),
    "unix_micros": lambda times: times.view(pa.int64()),
    "unix_millis": _of_micros(1_000),
    "unix_seconds": _of_micros(1_000_000),
    "timestamp_micros": _of_number(1),
    "timestamp_millis": _of_number(1_000),
    "timestamp_seconds": _of_number(1_000_000),
}
