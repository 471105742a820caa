"""CAST over columns, as Spark does it in ANSI mode: what does not fit raises, and never becomes null.

Whole numbers are cut towards zero, decimals rounded half up. Neighbour: `evaluation`.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow.expressions.types import FRACTIONAL, INTEGRAL, INTEGRAL_BITS, digits
from penstock_worker.expressions.arrow_types import arrow_type


class Refused(Exception):
    """A value that Spark raises for, too; the text says why."""


_EXACT_DIGITS = 15
"""A decimal of so many digits is a double's whole number over a power of ten, both exact."""
_POWER_EXACT_MAX = 22
_WIDE = 76
_SPACE = "".join(map(chr, range(0x21))) + "\x7f"
"""What Spark takes off both ends of a text that should be a number."""
_JAVA_SPACE = "".join(map(chr, range(0x21)))
_WHOLE = r"^[+-]?[0-9]+$"
_PLAIN = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+")
_SPECIAL = {"inf": "inf", "infinity": "inf", "nan": "nan"}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DAY_US = 86_400_000_000


def cast(column: pa.Array, given: str, wanted: str) -> pa.Array:
    """`column` of the type `given` as `wanted`. Raises Refused, pa.ArrowInvalid."""
    if digits(wanted):
        return _to_decimal(column, wanted)
    if digits(given):
        return _from_decimal(column, given, wanted)
    if given in FRACTIONAL and wanted in INTEGRAL:
        return truncated(column, wanted)
    if wanted == "boolean" and given != "string":
        return pc.not_equal(column, pa.scalar(0, column.type))
    if given == "string":
        return _from_text(column, wanted)
    if given == "date" and wanted == "timestamp_ntz":
        return pc.multiply(column.view(pa.int32()).cast(pa.int64()), _DAY_US).view(pa.timestamp("us"))
    if given == "timestamp_ntz" and wanted == "date":
        days = np.floor_divide(filled(column.view(pa.int64()), 0), _DAY_US).astype(np.int32)
        return pa.array(days, mask=nulls(column)).view(pa.date32())
    return column.cast(arrow_type(wanted), safe=wanted not in FRACTIONAL)


def filled(column: pa.Array, value: object) -> np.ndarray:
    """As numbers of numpy, `value` where there is null."""
    found: np.ndarray = column.fill_null(value).to_numpy(zero_copy_only=False)
    return found


def nulls(column: pa.Array) -> np.ndarray | None:
    """Where there is null; None for nowhere."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def truncated(column: pa.Array, wanted: str) -> pa.Array:
    """Fractions as whole numbers, cut towards zero. Raises Refused."""
    # As in Java, where the least and the greatest whole number are doubles before they are compared, the
    # greatest bigint rounded up: 2^63 is not refused, and becomes what is there below it.
    values = filled(column, 0).astype(np.float64)
    high = (1 << INTEGRAL_BITS[wanted] - 1) - 1
    low = -high - 1
    fits = (np.floor(values) <= float(high)) & (np.ceil(values) >= float(low))
    if not fits.all():
        raise Refused(f"{values[~fits][0]} does not fit {wanted}")
    beyond = values >= 2.0**63
    whole = np.trunc(np.where(beyond, 0, values)).astype(np.int64)
    whole = np.where(beyond, high, whole)
    return pa.array(whole, mask=nulls(column)).cast(arrow_type(wanted))


# --- decimals ---------------------------------------------------------------------------------------


def _to_decimal(column: pa.Array, wanted: str) -> pa.Array:
    precision, scale = digits(wanted) or (0, 0)
    if pa.types.is_decimal(column.type):
        wide = column.cast(pa.decimal256(_WIDE, column.type.scale))
        if column.type.scale > scale:
            # To the nearest, and a half away from zero.
            wide = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    else:
        wide = column.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal256(_WIDE, 0))
    return wide.cast(pa.decimal256(precision, scale)).cast(arrow_type(wanted))


def _from_decimal(column: pa.Array, given: str, wanted: str) -> pa.Array:
    precision, scale = digits(given) or (0, 0)
    if wanted in INTEGRAL:
        cut = pc.CastOptions(arrow_type(wanted), allow_decimal_truncate=True, allow_int_overflow=False)
        return pc.cast(column, options=cut)
    if precision <= _EXACT_DIGITS and scale <= _POWER_EXACT_MAX and wanted == "double":
        whole = pc.multiply(column, pa.scalar(Decimal(10) ** scale, pa.decimal128(scale + 1, 0)))
        number = filled(pc.cast(whole, pa.int64(), safe=False), 0).astype(np.float64)
        return pa.array(number / 10.0**scale, mask=nulls(column))
    numbers = [None if value is None else float(value) for value in column.to_pylist()]
    return pa.array(numbers, pa.float64()).cast(arrow_type(wanted), safe=False)


# --- texts ------------------------------------------------------------------------------------------


def _from_text(column: pa.Array, wanted: str) -> pa.Array:
    match wanted:
        case "boolean":
            return _truth_of_text(column)
        case "binary":
            return column.cast(pa.binary())
        case _:
            return (_whole_of_text if wanted in INTEGRAL else _fraction_of_text)(column, wanted)


def _whole_of_text(column: pa.Array, wanted: str) -> pa.Array:
    texts = pc.utf8_trim(column, characters=_SPACE)
    _all_like(texts, _WHOLE, column, wanted)
    return pc.replace_substring_regex(texts, r"^\+", "").cast(arrow_type(wanted))


def _fraction_of_text(column: pa.Array, wanted: str) -> pa.Array:
    texts = pc.utf8_trim(column, characters=_JAVA_SPACE)
    plain = pc.match_substring_regex(texts, _PLAIN)
    if pc.all(plain).as_py() is False:
        numbers = [None if text is None else _java_double(text, wanted) for text in texts.to_pylist()]
        return pa.array(numbers, arrow_type(wanted))
    return pc.replace_substring_regex(texts, r"^\+", "").cast(arrow_type(wanted))


def _java_double(text: str, wanted: str) -> float:
    """As Java reads a double, and Spark its words for what is no number."""
    sign, name = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if (special := _SPECIAL.get(name.lower())) is not None and (special == "inf" or not sign):
        return float(sign + special)
    number = text[:-1] if text[-1:] in ("d", "D", "f", "F") and not _HEXADECIMAL.fullmatch(text) else text
    if _HEXADECIMAL.fullmatch(number):
        found = float.fromhex(number)
    elif re.match(_PLAIN, number) and number.isascii():
        found = float(number)
    else:
        raise Refused(f"{text!r} is no {wanted}")
    return found


def _truth_of_text(column: pa.Array) -> pa.Array:
    texts = pc.ascii_lower(pc.utf8_trim(column, characters=_SPACE))
    is_true = pc.is_in(texts, pa.array(_TRUE))
    unclear = pc.invert(pc.or_(is_true, pc.is_in(texts, pa.array(_FALSE))))
    unclear = pc.and_(unclear, texts.is_valid())
    if pc.any(unclear).as_py():
        raise Refused(f"{column.filter(unclear)[0].as_py()!r} is no boolean")
    return pc.if_else(texts.is_valid(), is_true, pa.scalar(None, pa.bool_()))


def _all_like(texts: pa.Array, pattern: str, column: pa.Array, wanted: str) -> None:
    unlike = pc.invert(pc.match_substring_regex(texts, pattern))
    if pc.any(unlike).as_py():
        raise Refused(f"{column.filter(unlike)[0].as_py()!r} is no {wanted}")
