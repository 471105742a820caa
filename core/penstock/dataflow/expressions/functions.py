"""Functions that expressions may call, by Spark's names, with the types that they take and give.

Only those are here whose results are Spark's for every value; `tests/integration` compares them. Neighbours:
`reading` calls `called`, the worker's `expressions` works them out.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.dataflow.expression_tree import VOID, Call, Expression, InvalidExpression, Literal
from penstock.dataflow.expressions.operations import (
    BOOLEAN,
    arithmetic,
    chosen,
    compared,
    exactly_signed,
    negation,
)
from penstock.dataflow.expressions.types import INTEGRAL, common, is_number, kind_of, widened

Arguments = tuple[Expression, ...]
_Made = Callable[[str, Arguments], Expression]

_CALENDAR = {
    "year": "year",
    "month": "month",
    "day": "day",
    "dayofmonth": "day",
    "dayofweek": "day_of_week",
    "dayofyear": "day_of_year",
    "quarter": "quarter",
}
_CLOCK = ("hour", "minute", "second")


def called(name: str, arguments: Arguments) -> Expression:
    """name(arguments). Raises InvalidExpression."""
    made = FUNCTIONS.get(name.lower())
    if made is None:
        raise InvalidExpression(
            f"function {name} is not among those whose results are promised to be Spark's; there are "
            f"{', '.join(sorted(FUNCTIONS))}. Code may call it (map, mapInArrow)"
        )
    return made(name.lower(), arguments)


def _count(name: str, arguments: Arguments, least: int, most: int | None = None) -> None:
    most = least if most is None else most
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise InvalidExpression(f"{name} takes {wanted} arguments, got {len(arguments)}")


def _typed(name: str, expression: Expression, *types: str) -> Expression:
    if expression.type == VOID:
        return widened(expression, types[0])
    if expression.type not in types:
        raise InvalidExpression(f"{name} takes {' or '.join(types)}, got {expression.type}; cast it")
    return expression


def _literal(name: str, expression: Expression, type_: str) -> Expression:
    if not isinstance(expression, Literal) or expression.type != type_:
        raise InvalidExpression(f"{name} takes {type_} values that stand in the expression here, no columns")
    return expression


def _fixed(operation: str, result: str, *types: tuple[str, ...]) -> _Made:
    """A function of as many arguments as there are `types`, each the ones that it may be of."""

    def made(name: str, arguments: Arguments) -> Expression:
        _count(name, arguments, len(types))
        given = tuple(_typed(name, one, *wanted) for one, wanted in zip(arguments, types, strict=True))
        return Call(operation, given, result)

    return made


def _absolute(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    if not is_number(arguments[0].type):
        raise InvalidExpression(f"{name} takes a number, got {arguments[0].type}")
    return Call("absolute", (exactly_signed(arguments[0], name),), arguments[0].type)


def _rounded(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    (given,) = arguments
    if given.type in INTEGRAL:
        return widened(given, "bigint")
    if kind_of(given.type) != "fractional":
        raise InvalidExpression(f"{name} is promised of double and whole numbers, got {given.type}")
    return Call("ceiling" if name.startswith("ceil") else "floor", (widened(given, "double"),), "bigint")


def _square_root(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    if kind_of(arguments[0].type) not in ("integral", "fractional"):
        raise InvalidExpression(f"{name} takes a number that is no decimal, got {arguments[0].type}")
    return Call("square_root", (widened(arguments[0], "double"),), "double")


def _is_nan(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    return Call("is_nan", (_typed(name, arguments[0], "double", "float"),), BOOLEAN)


def _is_null(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    found = Call("is_null", arguments, BOOLEAN)
    return found if name == "isnull" else negation(found)


def _coalesced(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, *((1, 255) if name == "coalesce" else (2, 2)))
    type_ = common(arguments, f"the arguments of {name}")
    return Call("coalesce", tuple(widened(one, type_) for one in arguments), type_)


def _if(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 3)
    return chosen(arguments[:1], arguments[1:2], arguments[2], name)


def _null_if(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2)
    left, right = arguments
    return chosen((compared("=", left, right),), (Literal(None, VOID),), left, name)


def _modulo(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2)
    return arithmetic("%", *arguments)


def concatenated(name: str, arguments: Arguments) -> Expression:
    """concat(...), and `||`."""
    _count(name, arguments, 1, 255)
    texts = tuple(_typed(name, one, "string") for one in arguments)
    return Call("concat", texts, "string")


def _substring(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2, 3)
    text = _typed(name, arguments[0], "string")
    bounds = tuple(_literal(name, one, "int") for one in arguments[1:])
    return Call("substring", (text, *bounds), "string")


def _left(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2)
    return _substring(name, (arguments[0], Literal(1, "int"), arguments[1]))


def _searched(operation: str) -> _Made:
    def made(name: str, arguments: Arguments) -> Expression:
        _count(name, arguments, 2)
        return Call(
            operation, (_typed(name, arguments[0], "string"), _literal(name, arguments[1], "string")), BOOLEAN
        )

    return made


def like(text: Expression, pattern: Expression) -> Expression:
    """text LIKE pattern."""
    text, pattern = _typed("LIKE", text, "string"), _literal("LIKE", pattern, "string")
    return Call("like", (text, pattern), BOOLEAN)


def _replaced(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2, 3)
    found, *texts = arguments
    if len(texts) == 1:
        texts.append(Literal("", "string"))
    return Call(
        "replace",
        (_typed(name, found, "string"), *(_literal(name, one, "string") for one in texts)),
        "string",
    )


def _calendar(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    return Call(_CALENDAR[name], (_typed(name, arguments[0], "date", "timestamp_ntz"),), "int")


def _day_moved(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 2)
    days = _typed(name, arguments[1], "int", "smallint", "tinyint")
    operation = "date_subtract" if name == "date_sub" else "date_add"
    return Call(operation, (_typed(name, arguments[0], "date"), widened(days, "int")), "date")


def _of_number(name: str, arguments: Arguments) -> Expression:
    _count(name, arguments, 1)
    number = widened(_typed(name, arguments[0], *INTEGRAL), "bigint")
    return Call(name, (number,), "timestamp")


FUNCTIONS: dict[str, _Made] = {
    "abs": _absolute,
    "ceil": _rounded,
    "ceiling": _rounded,
    "floor": _rounded,
    "sqrt": _square_root,
    "mod": _modulo,
    "isnan": _is_nan,
    "isnull": _is_null,
    "isnotnull": _is_null,
    "coalesce": _coalesced,
    "nvl": _coalesced,
    "ifnull": _coalesced,
    "if": _if,
    "nullif": _null_if,
    "concat": concatenated,
    "length": _fixed("length", "int", ("string", "binary")),
    "char_length": _fixed("length", "int", ("string",)),
    "upper": _fixed("upper", "string", ("string",)),
    "ucase": _fixed("upper", "string", ("string",)),
    "lower": _fixed("lower", "string", ("string",)),
    "lcase": _fixed("lower", "string", ("string",)),
    "trim": _fixed("trim", "string", ("string",)),
    "ltrim": _fixed("trim_left", "string", ("string",)),
    "rtrim": _fixed("trim_right", "string", ("string",)),
    "substring": _substring,
    "substr": _substring,
    "left": _left,
    "replace": _replaced,
    "contains": _searched("contains"),
    "startswith": _searched("starts_with"),
    "endswith": _searched("ends_with"),
    **dict.fromkeys(_CALENDAR, _calendar),
    **{name: _fixed(name, "int", ("timestamp_ntz",)) for name in _CLOCK},
    "date_add": _day_moved,
    "dateadd": _day_moved,
    "date_sub": _day_moved,
    "datediff": _fixed("days_between", "int", ("date",), ("date",)),
    "unix_micros": _fixed("unix_micros", "bigint", ("timestamp",)),
    "unix_millis": _fixed("unix_millis", "bigint", ("timestamp",)),
    "unix_seconds": _fixed("unix_seconds", "bigint", ("timestamp",)),
    "timestamp_micros": _of_number,
    "timestamp_millis": _of_number,
    "timestamp_seconds": _of_number,
}
