"""Which type Spark gives to what is made of two, in ANSI mode: of numbers, of decimals, of branches.

Spark puts casts where types differ, and so does this; what it would turn from or to a text without a word is
refused, since the text may not be read as one thinks. Neighbours: `operations`, the tree.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

from penstock.dataflow.expression_tree import VOID, Call, Expression, InvalidExpression, Literal

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FRACTIONAL = ("float", "double")
INTEGRAL_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
PRECISION_MAX = 38
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_SCALE_KEPT = 6
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")

_CASTS = {
    "integral": {"integral", "fractional", "decimal", "string", "boolean"},
    "fractional": {"integral", "fractional", "boolean"},
    "decimal": {"integral", "fractional", "decimal"},
    "boolean": {"integral", "fractional", "string"},
    "string": {"integral", "fractional", "boolean", "binary"},
    "date": {"string", "timestamp_ntz"},
    "timestamp_ntz": {"date"},
}
"""Kinds of types -> those that they are cast to, each as Spark does it for every value."""


def digits(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal; None of other types."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def adjusted(precision: int, scale: int) -> str:
    """Spark's rule where more than 38 digits would be needed: those before the point are kept, and at least
    six behind it."""
    if precision <= PRECISION_MAX:
        return decimal(precision, scale)
    least = min(scale, _SCALE_KEPT)
    return decimal(PRECISION_MAX, max(PRECISION_MAX - (precision - scale), least))


def kind_of(type_: str) -> str:
    """integral, fractional, decimal, or the type's own first word."""
    if type_ in INTEGRAL:
        return "integral"
    if type_ in FRACTIONAL:
        return "fractional"
    return re.split(r"[(<]", type_, maxsplit=1)[0]


def is_number(type_: str) -> bool:
    return kind_of(type_) in ("integral", "fractional", "decimal")


def as_decimal(type_: str) -> str:
    """The decimal that holds every value of an integral type; a decimal as it is."""
    return decimal(_DIGITS[type_], 0) if type_ in _DIGITS else type_


def common_number(left: str, right: str) -> str:
    """What both numbers become. Raises InvalidExpression where no decimal holds both."""
    if left == right:
        return left
    if left in INTEGRAL and right in INTEGRAL:
        return max(left, right, key=INTEGRAL.index)
    if left in FRACTIONAL or right in FRACTIONAL:
        return "double"
    (p1, s1), (p2, s2) = (digits(as_decimal(type_)) or (0, 0) for type_ in (left, right))
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    if precision > PRECISION_MAX:
        raise InvalidExpression(
            f"{left} and {right} meet in {precision} digits, of which Spark would cut some; cast one of them"
        )
    return decimal(precision, scale)


def common(expressions: tuple[Expression, ...], what: str) -> str:
    """The one type of values that may take each other's place. Raises InvalidExpression."""
    found = VOID
    for expression in expressions:
        type_ = expression.type
        if found in (VOID, type_):
            found = type_
        elif type_ == VOID:
            continue
        elif is_number(found) and is_number(type_):
            found = common_number(found, type_)
        else:
            raise InvalidExpression(f"{what} are {found} and {type_}; cast one of them")
    if kind_of(found) in ("array", "map", "struct"):
        raise InvalidExpression(f"{what} are {found}: of nested values only IS NULL is asked here")
    return found


def literal_as_decimal(expression: Expression, other: Expression) -> Expression:
    """A whole number that meets a decimal is one of its own digits alone, as Spark has it."""
    if isinstance(expression, Literal) and expression.type in INTEGRAL and digits(other.type):
        value = Decimal(int(str(expression.value)))
        return Literal(value, decimal(len(str(abs(value))), 0))
    return expression


def widened(expression: Expression, type_: str) -> Expression:
    """`expression` as a `type_` that holds all its values."""
    if expression.type == type_:
        return expression
    if not isinstance(expression, Literal):
        return Call("cast", (expression,), type_)
    value = expression.value
    if expression.type == VOID:
        return replace(expression, type=type_)
    if type_ in FRACTIONAL and isinstance(value, int | Decimal):
        return Literal(float(value), type_) if type_ == "double" else Call("cast", (expression,), type_)
    if digits(type_) and isinstance(value, int | Decimal):
        return Literal(Decimal(value), type_)
    if type_ in INTEGRAL:
        return replace(expression, type=type_)
    return Call("cast", (expression,), type_)


def cast(expression: Expression, type_: str) -> Expression:
    """CAST(expression AS type). Raises InvalidExpression for one whose result depends on more than the value,
    such as the session's time zone, or on how Java writes a number."""
    given = expression.type
    if given in (type_, VOID):
        return widened(expression, type_)
    if kind_of(type_) not in _CASTS.get(kind_of(given), ()):
        raise InvalidExpression(
            f"CAST from {given} to {type_} is not among those that are promised{_hint(given, type_)}"
        )
    return Call("cast", (expression,), type_)


def _hint(given: str, type_: str) -> str:
    if given == "timestamp" and type_ in INTEGRAL:
        return "; unix_seconds, unix_millis and unix_micros give numbers of a timestamp"
    if type_ == "timestamp" and given in INTEGRAL:
        return "; timestamp_seconds, timestamp_millis and timestamp_micros make timestamps of numbers"
    if "timestamp" in (given, type_):
        return ": it depends on the session's time zone"
    return ""
