"""Operators of expressions with their types: what `+` makes of an int and a decimal, what `=` compares.

Each takes typed expressions and gives one, with Spark's casts in it. Neighbours: `reading` calls these as it
reads, `functions` has what is called by name, `types` the rules.
"""

from __future__ import annotations

from penstock.dataflow.expression_tree import VOID, Call, Expression, InvalidExpression, Literal
from penstock.dataflow.expressions.types import (
    INTEGRAL,
    adjusted,
    as_decimal,
    common,
    common_number,
    decimal,
    digits,
    is_number,
    kind_of,
    literal_as_decimal,
    widened,
)

BOOLEAN = "boolean"
_DIGITS_EXACT_MAX = 76
_DIGITS_SIGNED_MAX = 34
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}
_COMPARED = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")


def arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    """`+`, `-`, `*`, `/`, `%`, `div`. Raises InvalidExpression."""
    left, right = _of_void(left, right), _of_void(right, left)
    for side in (left, right):
        if not is_number(side.type):
            raise InvalidExpression(f"{sign} takes numbers, got {side.type}; {_not_a_number(side.type)}")
    if sign == "div":
        if left.type not in INTEGRAL or right.type not in INTEGRAL:
            raise InvalidExpression(
                f"div is promised of whole numbers, got {left.type} and {right.type}; cast them to bigint"
            )
        return Call("integral_divide", (widened(left, "bigint"), widened(right, "bigint")), "bigint")
    left, right = literal_as_decimal(left, right), literal_as_decimal(right, left)
    has_decimal = any(digits(side.type) for side in (left, right))
    has_fraction = any(kind_of(side.type) == "fractional" for side in (left, right))
    if has_decimal and not has_fraction:
        return _of_decimals(sign, left, right)
    type_ = "double" if sign == "/" else common_number(left.type, right.type)
    name = {"/": "divide", "%": "remainder"}.get(sign) or _ARITHMETIC[sign]
    return Call(name, (widened(left, type_), widened(right, type_)), type_)


def _of_decimals(sign: str, left: Expression, right: Expression) -> Expression:
    """The exact result, and Spark's cast of it to what has room."""
    if sign not in _ARITHMETIC:
        raise InvalidExpression(
            f"{sign} of decimals is not promised to be rounded as Spark does; cast one side to double"
        )
    left, right = widened(left, as_decimal(left.type)), widened(right, as_decimal(right.type))
    (p1, s1), (p2, s2) = (digits(side.type) or (0, 0) for side in (left, right))
    if sign == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > _DIGITS_EXACT_MAX:
        raise InvalidExpression(f"{left.type} {sign} {right.type} needs {precision} digits; cast to fewer")
    exact = Call(_ARITHMETIC[sign], (left, right), decimal(precision, scale))
    fitting = adjusted(precision, scale)
    return exact if exact.type == fitting else Call("cast", (exact,), fitting)


def negated(expression: Expression) -> Expression:
    """-x."""
    if not is_number(expression.type):
        raise InvalidExpression(f"- takes a number, got {expression.type}; {_not_a_number(expression.type)}")
    return Call("negate", (exactly_signed(expression, "-"),), expression.type)


def exactly_signed(expression: Expression, what: str) -> Expression:
    """A number whose sign Spark changes without more: of decimals it keeps 34 digits. Raises
    InvalidExpression."""
    found = digits(expression.type)
    if found is not None and found[0] > _DIGITS_SIGNED_MAX:
        raise InvalidExpression(
            f"{what} of {expression.type} is rounded by Spark to {_DIGITS_SIGNED_MAX} digits; cast to fewer"
        )
    return expression


def compared(sign: str, left: Expression, right: Expression) -> Expression:
    """`=`, `<>`, `<`, `<=`, `>`, `>=`, `<=>`. Raises InvalidExpression."""
    left, right = literal_as_decimal(left, right), literal_as_decimal(right, left)
    type_ = common((left, right), f"the sides of {sign}")
    if type_ != VOID and not is_number(type_) and type_ not in _COMPARED:
        raise InvalidExpression(f"{sign} of {type_} is not among those that are promised")
    sides = (widened(left, type_), widened(right, type_))
    if type_ == VOID:
        return Literal(True if sign == "<=>" else None, BOOLEAN)
    match sign:
        case "<>":
            return negation(Call("equal", sides, BOOLEAN))
        case ">" | ">=":
            return Call("less" if sign == ">" else "less_or_equal", (sides[1], sides[0]), BOOLEAN)
        case _:
            name = {"=": "equal", "<": "less", "<=": "less_or_equal", "<=>": "same"}[sign]
            return Call(name, sides, BOOLEAN)


def truth(expression: Expression, what: str) -> Expression:
    """`expression`, which is a boolean. Raises InvalidExpression."""
    if expression.type not in (BOOLEAN, VOID):
        raise InvalidExpression(f"{what} takes booleans, got {expression.type}; compare it with something")
    return widened(expression, BOOLEAN)


def junction(name: str, left: Expression, right: Expression) -> Expression:
    """`and`, `or`."""
    word = name.upper()
    return Call(name, (truth(left, word), truth(right, word)), BOOLEAN)


def negation(expression: Expression) -> Expression:
    return Call("not", (truth(expression, "NOT"),), BOOLEAN)


def among(value: Expression, options: tuple[Expression, ...]) -> Expression:
    """value IN (options)."""
    type_ = common((value, *options), "what IN compares")
    if type_ == VOID:
        return Literal(None, BOOLEAN)
    if not is_number(type_) and type_ not in _COMPARED:
        raise InvalidExpression(f"IN of {type_} is not among those that are promised")
    first, *others = (widened(one, type_) for one in (value, *options))
    return Call("in", (first, *others), BOOLEAN)


def chosen(
    conditions: tuple[Expression, ...], values: tuple[Expression, ...], otherwise: Expression, what: str
) -> Expression:
    """The value behind the first condition that is true; `what` is CASE or if."""
    type_ = common((*values, otherwise), f"the values of {what}")
    parts: list[Expression] = []
    for condition, value in zip(conditions, values, strict=True):
        parts += (truth(condition, f"a condition of {what}"), widened(value, type_))
    return Call("choose", (*parts, widened(otherwise, type_)), type_)


def _of_void(expression: Expression, other: Expression) -> Expression:
    """A bare NULL is of the other side's type."""
    if expression.type != VOID:
        return expression
    return widened(expression, other.type if other.type != VOID else "double")


def _not_a_number(type_: str) -> str:
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        return "date_add, datediff and unix_micros work on times"
    return "cast it, such as CAST(x AS double)" if type_ == "string" else "code may do it"
