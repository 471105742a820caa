"""Wire rows as JSON lines, for sinks that people and other programs read.

The form is that of Spark's `to_json` in a session in UTC: null columns and fields are left out (nulls in
arrays and maps are not), decimals are numbers with all their digits, binary is base64, NaN and Infinity
are text. Two things are more exact than there: timestamps keep microseconds where they have any, and keys
of maps have the form that values have. The bytes are a function of schema and rows alone, never of the
machine's time zone: the sinks rely on that. Wire values are described in the worker's `wire` module.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from penstock.dataflow.schema import Schema
from penstock.dataflow.type_names import nested, split, struct_fields

Convert = Callable[[Any], Any]
"""A wire value that is not None -> what msgspec writes as its JSON."""

_ENCODER = msgspec.json.Encoder()
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_AS_THEY_ARE = frozenset({"string", "int", "bigint", "smallint", "tinyint", "boolean", "binary"})
_TIMES_KEPT = 64
_FLOAT32 = struct.Struct("<f").pack
_FLOAT32_DIGITS = range(6, 10)


class JsonRows:
    """Writes rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._names = schema.names
        self._converted = [
            (place, convert)
            for place, column in enumerate(schema.columns)
            if (convert := _converter(column.type)) is not None
        ]

    def lines(self, rows: Iterable[Sequence[Any]]) -> bytes:
        """One JSON object a row, each with a newline behind it."""
        if self._converted:
            rows = map(self._with_converted, rows)
        names = self._names
        return _ENCODER.encode_lines(
            [
                dict(zip(names, row)) if None not in row else _without_nulls(names, row)  # noqa: B905 - hot
                for row in rows
            ]
        )

    def _with_converted(self, row: Sequence[Any]) -> Sequence[Any]:
        values = list(row)
        for place, convert in self._converted:
            if values[place] is not None:
                values[place] = convert(values[place])
        return values


def _without_nulls(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _converter(type_: str) -> Convert | None:
    """How wire values of a type are written; None where they are written as they are."""
    if type_ in _AS_THEY_ARE:
        return None
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if type_.startswith("decimal("):
        return _decimal
    kind, inner = nested(type_)
    if kind == "array":
        return _array(_converter(inner))
    if kind == "map":
        key, value = split(inner)
        return _map(_converter(key), _converter(value))
    if kind == "struct":
        return _struct([(name, _converter(field)) for name, field in struct_fields(inner)])
    raise ValueError(f"{type_} is no canonical type name")


# --- simple types -----------------------------------------------------------------------------------


def _date(days: int) -> str:
    return datetime.date.fromordinal(days + _EPOCH_DAY).isoformat()


def _timestamp(microseconds: float) -> str | None:
    """None for NaT and for years beyond 9999, as the worker's `wire` reads them."""
    try:
        instant = _EPOCH + datetime.timedelta(microseconds=microseconds)
    except (OverflowError, ValueError):
        return None
    timespec = "microseconds" if microseconds % 1000 else "milliseconds"
    return instant.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def _timestamp_ntz(microseconds: float) -> str | None:
    text = _timestamp(microseconds)
    return None if text is None else text.removesuffix("Z")


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> float | str:
    """With as many digits as tell it from its neighbours in 32 bits, as Spark writes it."""
    if not math.isfinite(value):
        return _double(value)
    for digits in _FLOAT32_DIGITS:
        shorter = float(f"{value:.{digits}g}")
        if _packs_as(shorter, value):
            return shorter
    return value


def _packs_as(shorter: float, value: float) -> bool:
    try:
        return _FLOAT32(shorter) == _FLOAT32(value)
    except OverflowError:
        return False


def _decimal(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


_SIMPLE: dict[str, Convert] = {
    "date": _date,
    # Times come again: of a window's bounds there are as many as keys.
    "timestamp": lru_cache(_TIMES_KEPT)(_timestamp),
    "timestamp_ntz": lru_cache(_TIMES_KEPT)(_timestamp_ntz),
    "double": _double,
    "float": _float,
}

# --- nested types -----------------------------------------------------------------------------------


def _applied(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _array(element: Convert | None) -> Convert | None:
    if element is None:
        return None
    return lambda values: [_applied(element, value) for value in values]


def _map(key: Convert | None, value: Convert | None) -> Convert:
    return lambda pairs: {_key_text(_applied(key, k)): _applied(value, v) for k, v in pairs}


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else _ENCODER.encode(key).decode().strip('"')


def _struct(fields: Sequence[tuple[str, Convert | None]]) -> Convert:
    names = [name for name, _ in fields]
    converters = [convert for _, convert in fields]

    def write(values: Sequence[Any]) -> dict[str, Any]:
        return _without_nulls(names, map(_applied, converters, values))

    return write
