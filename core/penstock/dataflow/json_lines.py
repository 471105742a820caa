"""JSON lines as wire rows of a schema, for sources: the other way of `json_rows`.

Values are read as Spark reads them with mode FAILFAST in a session in UTC: fields go by their exact names,
one that is missing is null, one that nobody knows is passed over, and a value that is not of its column's
type refuses the line. A column of text takes every value, as its JSON. Where Spark cuts, wraps around or
turns to infinity without a word (200 for a tinyint, 1e400 for a double), the line is refused too. JSON is
taken as it is defined, where Spark lets pass more: no single quotes, no bare NaN, nothing behind the object.
So are times: none without a day, which would be that of the reading, and no names of zones but UTC.

A line is read at once by its schema; one that does not go that way is read value by value, which is slower
and says what is wrong. Wire values are described in the worker's `wire_values`.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import re
import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Optional

import msgspec

from penstock.dataflow.schema import Schema
from penstock.dataflow.type_names import nested, split, struct_fields

Read = Callable[[bytes], Any]
"""The JSON of a value that is not null -> its wire value. Raises _Unfit."""
Convert = Callable[[Any], Any]
"""What msgspec made of a value, which is not None -> its wire value. Raises _Unfit."""

_SHOWN_CHARACTERS_MAX = 80
_WHITE = " \t\r"
_BYTE_ORDER_MARK = "\ufeff"
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - all of it is UTC
_EPOCH_IN_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL_TYPE = re.compile(r"decimal\((\d+),(\d+)\)")
_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_FLOAT32 = struct.Struct("<f")
_NOT_FINITE = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
_DATE = re.compile(r"\+?([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"\+?(?P<year>[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<part>[0-9]*))?(?P<zone>.*))?)?)?)?)?",
    re.DOTALL,
)
_USUAL_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"
)
_ZONE = re.compile(r"(?:UTC|GMT|UT|)(?:([+-])([0-9]{1,2})(?::?([0-9]{1,2})(?::([0-9]{2}))?)?)?|Z")
_ZONE_SECONDS_MAX = 18 * 3600
_SECONDS_MIN = (datetime.datetime(1, 1, 1) - _EPOCH).days * 86_400  # noqa: DTZ001
_SECONDS_MAX = (datetime.datetime(9999, 12, 31) - _EPOCH).days * 86_400 + 86_399  # noqa: DTZ001


class BadLine(Exception):
    """A line is no row. `index` is its place among those that were given; the text says what is wrong, and
    begins behind "line 7"."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


class _Unfit(Exception):
    """A value is not of its type. The text says what was expected; the place is filled in on the way out."""

    def __init__(self, expected: str, found: str, place: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = found
        self.place = place

    def at(self, place: str) -> _Unfit:
        return _Unfit(self.expected, self.found, place + self.place)


def is_blank(line: str) -> bool:
    """Whether a line holds nothing: it is no row, and no fault."""
    return not line.strip(_WHITE)


def unreadable(schema: Schema) -> str | None:
    """Why no line of JSON can hold such a row; None where one can."""
    for column in schema.columns:
        if (type_ := _map_without_text(column.type)) is not None:
            return f"column {column.name}: {type_} cannot be read from JSON, whose keys are text"
    return None


class JsonLines:
    """Reads rows of one schema, of which `unreadable` says nothing."""

    def __init__(self, schema: Schema) -> None:
        kinds = [_kind(column.type) for column in schema.columns]
        line = _struct_type(schema.names, [kind.checked for kind in kinds])
        # A decimal is read as what it is, digit by digit.
        self._decoder = msgspec.json.Decoder(line, float_hook=decimal.Decimal)
        self._converted = [(place, k.convert) for place, k in enumerate(kinds) if k.convert is not None]
        self._columns = [(column.name, kind) for column, kind in zip(schema.columns, kinds, strict=True)]

    def rows(self, lines: Sequence[str]) -> list[tuple[Any, ...]]:
        """A row for each line; none may be blank. Raises BadLine for the first that is no row."""
        decode, astuple, converted = self._decoder.decode, msgspec.structs.astuple, self._converted
        rows: list[tuple[Any, ...]] = []
        for line in lines:
            try:
                row = astuple(decode(line))
                if converted:
                    row = _with_converted(row, converted)
            except (msgspec.MsgspecError, decimal.InvalidOperation, RecursionError, _Unfit):
                row = self._by_value(len(rows), line)
            rows.append(row)
        return rows

    def _by_value(self, index: int, line: str) -> tuple[Any, ...]:
        line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            raise BadLine(index, f": expects a JSON object, found {_shown(line)}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadLine(index, f": is no JSON ({_reason(error)}): {_shown(line)}") from None
        try:
            return tuple(_field(found, name, kind, name) for name, kind in self._columns)
        except _Unfit as unfit:
            told = f", column {unfit.place}: expects {unfit.expected}, found {unfit.found}"
            raise BadLine(index, told) from None


def _with_converted(row: tuple[Any, ...], converted: list[tuple[int, Convert]]) -> tuple[Any, ...]:
    values = list(row)
    for place, convert in converted:
        if values[place] is not None:
            values[place] = convert(values[place])
    return tuple(values)


def _shown(text: str) -> str:
    text = text.strip(_WHITE)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).removeprefix("JSON is malformed: ")


def _unfit(expected: str, json: bytes) -> _Unfit:
    return _Unfit(expected, _shown(json.decode()))


# --- how types are read ----------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True):
    """`checked` is msgspec's type, `convert` makes the wire value of what it gives (None: it is that one),
    and `read` makes it of the JSON itself, taking all that is right and saying what is wrong."""

    checked: Any
    convert: Convert | None
    read: Read


def _kind(type_: str) -> _Kind:
    if type_ in _INTEGER_BITS:
        return _integer(type_)
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if (digits := _DECIMAL_TYPE.fullmatch(type_)) is not None:
        return _decimal(type_, int(digits[1]), int(digits[2]))
    name, inner = nested(type_)
    if name == "array":
        return _array(type_, _kind(inner))
    if name == "map":
        return _map(type_, _kind(split(inner)[1]))
    if name == "struct":
        return _struct(type_, [(field, _kind(of)) for field, of in struct_fields(inner)])
    raise ValueError(f"{type_} is no canonical type name")


def _map_without_text(type_: str) -> str | None:
    """The first map in a type whose keys are not text."""
    name, inner = nested(type_)
    if name == "map":
        key, value = split(inner)
        return type_ if key != "string" else _map_without_text(value)
    parts = [of for _, of in struct_fields(inner)] if name == "struct" else [inner] if name == "array" else []
    return next((found for part in parts if (found := _map_without_text(part)) is not None), None)


def _nullable(checked: Any) -> Any:
    return Optional[checked]  # noqa: UP045 - made at run time


def _struct_type(names: Sequence[str], types: Sequence[Any]) -> type[msgspec.Struct]:
    """An object with these fields, each null where it is missing; others are passed over."""
    fields = [(f"c{place}", _nullable(type_), None) for place, type_ in enumerate(types)]
    rename = {f"c{place}": name for place, name in enumerate(names)}
    return msgspec.defstruct("Line", fields, rename=rename)


def _field(found: dict[str, msgspec.Raw], name: str, kind: _Kind, place: str) -> Any:
    return _read_at(place, kind.read, found[name]) if name in found else None


def _read_at(place: str, read: Read, raw: msgspec.Raw) -> Any:
    json = bytes(raw)
    if json == b"null":
        return None
    try:
        return read(json)
    except _Unfit as unfit:
        raise unfit.at(place) from None


def _text_in(json: bytes) -> str | None:
    """The text that a value is; None for a value of another type."""
    if not json.startswith(b'"'):
        return None
    return msgspec.json.decode(json, type=str)


# --- simple types ----------------------------------------------------------------------------------


def _read_string(json: bytes) -> str:
    text = _text_in(json)
    return json.decode() if text is None else text


def _read_boolean(json: bytes) -> bool:
    if json not in (b"true", b"false"):
        raise _unfit("boolean (true or false)", json)
    return json == b"true"


def _integer(type_: str) -> _Kind:
    bits = _INTEGER_BITS[type_]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(json: bytes) -> int:
        if _INTEGER.fullmatch(json) is None:
            raise _unfit(type_, json)
        if len(json) > len(str(low)) or not low <= int(json) <= high:
            raise _unfit(f"{type_}, {low} to {high}", json)
        return int(json)

    return _Kind(Annotated[int, msgspec.Meta(ge=low, le=high)], None, read)


def _read_double(json: bytes) -> float:
    if _NUMBER.fullmatch(json) is not None:
        number = float(json)
        if number in (float("inf"), float("-inf")):
            raise _unfit("double, which this is out of the range of", json)
        return number
    text = _text_in(json)
    if text not in _NOT_FINITE:
        raise _unfit('double (a number, "NaN", "Infinity" or "-Infinity")', json)
    return _NOT_FINITE[text]


def _as_float(number: float) -> float:
    """The nearest 32-bit number."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        raise _Unfit("float, which this is out of the range of", repr(number)) from None
    return rounded


def _read_float(json: bytes) -> float:
    try:
        return _as_float(_read_double(json))
    except _Unfit as unfit:
        raise _unfit(unfit.expected.replace("double", "float"), json) from None


def _as_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _Unfit("binary in base64", _shown(text)) from None


def _as_date(text: str) -> int:
    match = _DATE.fullmatch(text.strip())
    if match is not None:
        year, month, day = match.groups(default="1")
        try:
            return datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
        except (ValueError, OverflowError):
            pass
    raise _Unfit("date such as 2026-01-31, of the years 1 to 9999", _shown(text))


def _as_timestamp(value: str | int) -> int:
    if isinstance(value, int):
        if not _SECONDS_MIN <= value <= _SECONDS_MAX:
            raise _Unfit("timestamp in seconds since 1970, of the years 1 to 9999", str(value))
        return value * 1_000_000
    microseconds = _microseconds(value.strip())
    if microseconds is None:
        raise _Unfit("timestamp such as 2026-01-31T12:30:00Z, of the years 1 to 9999", _shown(value))
    return microseconds


def _as_timestamp_ntz(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text.strip())
    microseconds = _microseconds(text.strip()) if match is not None and not match["zone"] else None
    if microseconds is None:
        raise _Unfit("timestamp without a zone, such as 2026-01-31T12:30:00", _shown(text))
    return microseconds


def _microseconds(text: str) -> int | None:
    if _USUAL_TIMESTAMP.fullmatch(text) is not None:
        try:
            instant = datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
        microseconds = (instant - (_EPOCH if instant.tzinfo is None else _EPOCH_IN_UTC)) // _MICROSECOND
        return microseconds if _SECONDS_MIN <= microseconds // 1_000_000 <= _SECONDS_MAX else None
    return _unusual_microseconds(text)


def _unusual_microseconds(text: str) -> int | None:
    """The same, of all forms that Spark takes; it is slower."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    zone = _ZONE.fullmatch((match["zone"] or "").strip())
    if zone is None:
        return None
    year, month, day = (int(match[name] or 1) for name in ("year", "month", "day"))
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    microsecond = int((match["part"] or "").ljust(6, "0")[:6])
    hours, minutes, seconds = (int(zone[place] or 0) for place in (2, 3, 4))
    ahead_s = hours * 3600 + minutes * 60 + seconds
    if ahead_s > _ZONE_SECONDS_MAX or minutes > 59 or seconds > 59:
        return None
    ahead = datetime.timedelta(seconds=-ahead_s if zone[1] == "-" else ahead_s)
    try:
        there = datetime.datetime(year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001
        return (there - ahead - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def _read_timestamp(json: bytes) -> Any:
    if _INTEGER.fullmatch(json) is not None:
        return _as_timestamp(int(json))
    return _read_timestamp_text(json)


def _from_text(expected: str, convert: Convert) -> Read:
    """Reads values that JSON has as text."""

    def read(json: bytes) -> Any:
        text = _text_in(json)
        if text is None:
            raise _unfit(expected, json)
        try:
            return convert(text)
        except _Unfit as unfit:
            raise _unfit(unfit.expected, json) from None

    return read


_read_timestamp_text = _from_text("timestamp such as 2026-01-31T12:30:00Z", _as_timestamp)
_read_timestamp_ntz = _from_text("timestamp without a zone, such as 2026-01-31T12:30:00", _as_timestamp_ntz)
_SIMPLE = {
    "string": _Kind(str, None, _read_string),
    "boolean": _Kind(bool, None, _read_boolean),
    "double": _Kind(float, None, _read_double),
    "float": _Kind(float, _as_float, _read_float),
    "binary": _Kind(str, _as_binary, _from_text("binary, as text in base64", _as_binary)),
    "date": _Kind(str, _as_date, _from_text("date such as 2026-01-31", _as_date)),
    "timestamp": _Kind(str | int, _as_timestamp, _read_timestamp),
    "timestamp_ntz": _Kind(str, _as_timestamp_ntz, _read_timestamp_ntz),
}


def _decimal(type_: str, precision: int, scale: int) -> _Kind:
    quantum = decimal.Decimal(1).scaleb(-scale)
    limit = decimal.Decimal(10) ** (precision - scale)

    def fitted(number: decimal.Decimal) -> str:
        """Digits behind the scale are rounded half up."""
        fits = not number or number.adjusted() < precision
        rounded = (number or decimal.Decimal(0)).quantize(quantum, context=_EXACT) if fits else limit
        if not -limit < rounded < limit:
            raise _Unfit(type_, str(number))
        return f"{rounded or abs(rounded):f}"

    def convert(value: Any) -> str:
        if isinstance(value, str):
            value = value.replace(",", "")
            if _DECIMAL_TEXT.fullmatch(value) is None:
                raise _Unfit(type_, _shown(value))
        elif isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise _Unfit(type_, "")
        try:
            return fitted(decimal.Decimal(value))
        except decimal.InvalidOperation:
            raise _Unfit(type_, str(value)) from None

    def read(json: bytes) -> str:
        try:
            return convert(json.decode() if _NUMBER.fullmatch(json) is not None else _text_in(json))
        except _Unfit:
            raise _unfit(type_, json) from None

    return _Kind(Any, convert, read)


# --- nested types ----------------------------------------------------------------------------------


def _array(type_: str, element: _Kind) -> _Kind:
    convert = element.convert

    def convert_all(values: list[Any]) -> list[Any]:
        return [None if value is None or convert is None else convert(value) for value in values]

    def read(json: bytes) -> list[Any]:
        if not json.startswith(b"["):
            raise _unfit(type_, json)
        raws = msgspec.json.decode(json, type=list[msgspec.Raw])
        return [_read_at(f"[{place}]", element.read, raw) for place, raw in enumerate(raws)]

    checked: Any = list.__class_getitem__(_nullable(element.checked))
    return _Kind(checked, None if convert is None else convert_all, read)


def _map(type_: str, value: _Kind) -> _Kind:
    convert = value.convert

    def convert_all(found: dict[str, Any]) -> list[Any]:
        return [(k, v if v is None or convert is None else convert(v)) for k, v in found.items()]

    def read(json: bytes) -> list[Any]:
        if not json.startswith(b"{"):
            raise _unfit(type_, json)
        found = msgspec.json.decode(json, type=dict[str, msgspec.Raw])
        return [(k, _read_at(f"[{k!r}]", value.read, raw)) for k, raw in found.items()]

    checked: Any = dict.__class_getitem__((str, _nullable(value.checked)))
    return _Kind(checked, convert_all, read)


def _struct(type_: str, fields: Sequence[tuple[str, _Kind]]) -> _Kind:
    converted = [(place, k.convert) for place, (_, k) in enumerate(fields) if k.convert is not None]

    def convert_all(found: msgspec.Struct) -> tuple[Any, ...]:
        return _with_converted(msgspec.structs.astuple(found), converted)

    def read(json: bytes) -> tuple[Any, ...]:
        if not json.startswith(b"{"):
            raise _unfit(type_, json)
        found = msgspec.json.decode(json, type=dict[str, msgspec.Raw])
        return tuple(_field(found, name, kind, f".{name}") for name, kind in fields)

    names = [name for name, _ in fields]
    return _Kind(_struct_type(names, [kind.checked for _, kind in fields]), convert_all, read)
