"""Numbers, texts and times in an expression, as Spark types them: `1` an int, `1.5` a decimal(2,1).

What Spark would read by a setting (a timestamp without a zone, escapes in texts) is refused. Neighbour:
`reading`.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from penstock.dataflow.expression_tree import InvalidExpression, Literal
from penstock.dataflow.expressions.types import INTEGRAL_BITS, PRECISION_MAX, decimal

_NUMBER = re.compile(r"(\d+\.?\d*)(e[+-]?\d+)?(bd|[lsydf])?", re.IGNORECASE)
_SUFFIXES = {"l": "bigint", "s": "smallint", "y": "tinyint", "d": "double", "f": "float"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)(Z|[+-]\d{2}:\d{2})?")


def number(text: str, *, negative: bool) -> Literal:
    """A number as it is written, with its suffix; `negative` where a sign stands before it."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidExpression(f"{text} is no number that is taken here")
    plain, exponent, suffix = match[1], match[2] or "", (match[3] or "").lower()
    value = Decimal(("-" if negative else "") + plain + exponent)
    if suffix == "bd" or (not suffix and "." in plain and not exponent):
        return _decimal(value, text)
    if suffix in ("d", "f") or exponent:
        if suffix not in ("", "d", "f"):
            raise InvalidExpression(f"{text} is no number that is taken here")
        return _fraction(float(value), _SUFFIXES[suffix or "d"], text)
    if "." in plain:
        raise InvalidExpression(f"{text} has a point and the suffix of a whole number")
    whole = int(value)
    for type_ in [_SUFFIXES[suffix]] if suffix else ["int", "bigint"]:
        half = 1 << INTEGRAL_BITS[type_] - 1
        if -half <= whole < half:
            return Literal(whole, type_)
    if suffix:
        raise InvalidExpression(f"{text} does not fit {_SUFFIXES[suffix]}")
    return _decimal(value, text)


def _decimal(value: Decimal, text: str) -> Literal:
    _, all_digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(all_digits), scale)
    if precision > PRECISION_MAX or (int(exponent) > 0):
        raise InvalidExpression(f"{text} has more than {PRECISION_MAX} digits, or an exponent of a decimal")
    return Literal(value, decimal(precision, scale))


def _fraction(value: float, type_: str, text: str) -> Literal:
    if value in (float("inf"), float("-inf")):
        raise InvalidExpression(f"{text} is beyond {type_}")
    return Literal(value, type_)


def text(source: str) -> Literal:
    """A text with its quotes."""
    inner = source[1:-1]
    if "\\" in inner or source[0] in inner:
        raise InvalidExpression(
            f"{source}: escapes are not read; a text with one kind of quotes stands in the other kind; what "
            "else it takes, code may do"
        )
    return Literal(inner, "string")


def moment(word: str, given: str) -> Literal:
    """DATE 'x', TIMESTAMP 'x', TIMESTAMP_NTZ 'x'; `word` is small. Raises InvalidExpression."""
    try:
        if word == "date":
            if not _DATE.fullmatch(given):
                raise InvalidExpression(f"DATE {given!r} is not read; write DATE 'yyyy-MM-dd'")
            return Literal(datetime.date.fromisoformat(given), "date")
        match = _TIME.fullmatch(given)
        has_zone = match is not None and match[2] is not None
        if match is None or has_zone == (word == "timestamp_ntz"):
            form = "yyyy-MM-dd HH:mm:ss" + ("" if word == "timestamp_ntz" else "Z")
            why = "" if match is None or has_zone else ": without a zone it is the session's"
            raise InvalidExpression(
                f"{word.upper()} {given!r} is not read{why}; write {word.upper()} {form!r}"
            )
        found = datetime.datetime.fromisoformat(given)
        if has_zone:
            return Literal(found.astimezone(datetime.UTC), "timestamp")
        return Literal(found, "timestamp_ntz")
    except (ValueError, OverflowError) as error:
        raise InvalidExpression(f"{word.upper()} {given!r} is no {word}: {error}") from None
