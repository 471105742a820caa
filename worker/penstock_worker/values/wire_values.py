"""Values of Spark's types on the wire: what user code gives and gets, and what msgpack carries.

| Spark type | on the wire | in a row | in state |
|---|---|---|---|
| string, boolean, integers, double | itself | itself | itself |
| float | the nearest 32-bit number | itself | itself |
| binary | bytes | bytes | bytes |
| date | days since 1970 | date | date |
| timestamp | microseconds since 1970, UTC | datetime with UTC | datetime without a zone, in UTC |
| timestamp_ntz | the same, as if the clock were UTC's | datetime without a zone | the same |
| decimal(p,s) | text with exactly s decimals | Decimal | Decimal |
| array | list | list | list |
| map | list of (key, value) | list of (key, value) | dict |
| struct | list of the fields' values | dict | Row |

The two right columns are what Spark 4.3 hands to `transformWithState` in rows and from state variables when
the session's time zone is UTC. The other way every form is taken, and every value that Spark takes without
loss: 4.0 or Decimal(4) for a long, a datetime at midnight for a date, a struct that lacks fields or has
others. What Spark would cut, turn to null or wrap around without a word (4.5 for a long, 300 for a tinyint)
is a `Misfit`, and so is all that could be written and not be read again (NaT, a time whose year in UTC is
10000, half of a surrogate pair). Numbers and texts of numpy count as Python's. Neighbours: `rows` and
`state.shapes` put columns together.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import msgspec
from pyspark.sql import types as spark
from pyspark.sql.types import Row

from penstock_worker.values.spark_types import type_name

Convert = Callable[[Any], Any]
"""A value that is not None -> a value."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_TIMESTAMP_MIN = (datetime.datetime.min.replace(tzinfo=datetime.UTC) - _EPOCH) // _MICROSECOND
_TIMESTAMP_MAX = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // _MICROSECOND
_ZERO = decimal.Decimal(0)
_FLOAT32 = struct.Struct("<f")
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_INTEGER_BITS = {spark.ByteType: 8, spark.ShortType: 16, spark.IntegerType: 32, spark.LongType: 64}
_SHOWN_CHARACTERS_MAX = 120


class Misfit(Exception):
    """A value is not of its column's type. The text goes behind the column's name:
    "expects bigint, got str 'x'"."""


@dataclass(frozen=True, slots=True)
class WireType:
    """How values of one Spark type travel. No function is ever given None.

    `checked` is msgspec's type of the wire value; where `plain`, msgspec's check of the user's value is
    all that there is to do. `to_row` and `to_state` are None where the wire value can be handed out as it
    is; what they make is new, so that nobody can change what is kept.
    """

    name: str
    checked: Any
    plain: bool
    to_wire: Convert
    to_row: Convert | None = None
    to_state: Convert | None = None


def wire_type(data_type: spark.DataType) -> WireType:
    """How values of `data_type` travel. Raises UnknownType."""
    name = type_name(data_type)
    match data_type:
        case spark.StringType():
            return WireType(name, str, True, _text)
        case spark.BooleanType():
            return WireType(name, bool, True, _boolean)
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return _integer(name, _INTEGER_BITS[type(data_type)])
        case spark.DoubleType():
            return WireType(name, float, True, _double)
        case spark.FloatType():
            return WireType(name, float, False, _float)
        case spark.BinaryType():
            return WireType(name, bytes, True, _binary)
        case spark.DateType():
            return WireType(name, int, False, _date, _date_of, _date_of)
        case spark.TimestampType():
            return WireType(name, int | float, False, _timestamp, _instant_of, _timestamp_of)
        case spark.TimestampNTZType():
            return WireType(name, int | float, False, _timestamp_ntz, _timestamp_of, _timestamp_of)
        case spark.DecimalType():
            return _decimal(name, data_type.precision, data_type.scale)
        case spark.ArrayType():
            return _array(name, wire_type(data_type.elementType))
        case spark.MapType():
            return _map(name, wire_type(data_type.keyType), wire_type(data_type.valueType))
        case _:
            fields = data_type.fields
            return _struct(name, [f.name for f in fields], [wire_type(f.dataType) for f in fields])


def has_no_dict(data_type: spark.DataType) -> bool:
    """Whether values have a map in them whose keys cannot be those of a dict: state has no form for these."""
    if isinstance(data_type, spark.MapType):
        return _unhashable(data_type.keyType) or has_no_dict(data_type.valueType)
    return any(map(has_no_dict, _inner_types(data_type)))


def _unhashable(data_type: spark.DataType) -> bool:
    is_list_or_dict = isinstance(data_type, spark.ArrayType | spark.MapType)
    return is_list_or_dict or any(map(_unhashable, _inner_types(data_type)))


def _inner_types(data_type: spark.DataType) -> list[spark.DataType]:
    if isinstance(data_type, spark.ArrayType):
        return [data_type.elementType]
    return [field.dataType for field in data_type.fields] if isinstance(data_type, spark.StructType) else []


def nullable(checked: Any) -> Any:
    """msgspec's type for a column: every column may be null."""
    return Optional[checked]  # noqa: UP045 - made at run time


def shown(value: object) -> str:
    """A value for a message: type and text, cut."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
    return text if value is None or isinstance(value, Row) else f"{type(value).__name__} {text}"


NO_UNICODE = "has half of a surrogate pair and is no Unicode text: leave that out or replace it"
"""Why a text that Python has and UTF-8 has not cannot be written."""


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: Python's may hold half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def by_name(names: list[str], given: dict[Any, Any]) -> list[Any]:
    """The values of `given` in the order of `names`, as Spark takes a row by its names: what is missing is
    null, what nobody knows is dropped. Raises Misfit where not one name is known."""
    if not any(name in given for name in names):
        has = f"it has {', '.join(map(str, given))}" if given else "it has none"
        raise Misfit(f"expects the names {', '.join(names)}; {has}")
    return [given.get(name) for name in names]


def names_of(row: Row) -> list[str] | None:
    """The column names that a pyspark Row carries; None for one made of values alone."""
    # Asking an unnamed Row for its names makes pyspark build an error message, which is slow.
    fields = row.__dict__.get("__fields__") or type(row).__dict__.get("__fields__")
    return None if fields is None else list(fields)


# --- simple types -----------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit(f"expects string, got {shown(value)}")
    text = str.__str__(value)
    if not is_unicode(text):
        raise Misfit(f"expects string, got {shown(text)}, which {NO_UNICODE}")
    return text


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if _of_numpy(value, "bool"):
        return bool(value)
    raise Misfit(f"expects boolean, got {shown(value)}")


def _integer(name: str, bits: int) -> WireType:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def to_wire(value: Any) -> int:
        if isinstance(value, bool) or _of_numpy(value, "bool"):
            raise Misfit(f"expects {name}, got {shown(value)}")
        try:
            number = operator.index(value)
        except TypeError:
            number = _whole(name, value)
        if not low <= number <= high:
            raise Misfit(f"expects {name}, {low} to {high}, got {shown(value)}")
        return number

    return WireType(name, Annotated[int, msgspec.Meta(ge=low, le=high)], True, to_wire)


def _whole(name: str, value: Any) -> int:
    """A whole number of a type that holds others too."""
    given: Any = value
    if isinstance(value, numbers.Real | decimal.Decimal):
        try:
            number = int(given)
        except (OverflowError, ValueError):  # infinite, or no number
            number = None
        if number is not None and number == value:
            return number
    raise Misfit(f"expects {name}, got {shown(value)}")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
        raise Misfit(f"expects {name}, got {shown(value)}")
    try:
        return float(value)
    except (OverflowError, ValueError):  # too large, or a Decimal that signals
        raise Misfit(f"expects {name}, got {shown(value)}, which is out of its range") from None


def _double(value: Any) -> float:
    return _number("double", value)


def _float(value: Any) -> float:
    number = _number("float", value)
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        raise Misfit(f"expects float, got {shown(value)}, which is out of its range") from None
    return rounded


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Misfit(f"expects binary, got {shown(value)}")
    return bytes(value)


def _date(value: Any) -> int:
    if not isinstance(value, datetime.date) or value != value:
        raise Misfit(f"expects date, got {shown(value)}")
    if isinstance(value, datetime.datetime) and value.time() != datetime.time.min:
        raise Misfit(f"expects date, got {shown(value)}, which has a time of day; give its date()")
    return value.toordinal() - _EPOCH_DAY


def _date_of(days: int) -> datetime.date:
    return datetime.date.fromordinal(days + _EPOCH_DAY)


def _timestamp(value: Any) -> int:
    if not isinstance(value, datetime.datetime):
        raise Misfit(f"expects timestamp, got {shown(value)}")
    if value != value:  # pandas' NaT is a datetime that is no point in time
        raise Misfit(f"expects timestamp, got {shown(value)}; give None for a time that is missing")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    try:
        microseconds = int((aware - _EPOCH) // _MICROSECOND)
    except OverflowError:
        microseconds = _TIMESTAMP_MAX + 1
    if not _TIMESTAMP_MIN <= microseconds <= _TIMESTAMP_MAX:
        raise Misfit(f"expects timestamp, got {shown(value)}, whose year in UTC is not within 1 to 9999")
    return microseconds


def _timestamp_ntz(value: Any) -> int:
    if isinstance(value, datetime.datetime) and value == value and value.tzinfo is not None:
        raise Misfit(
            f"expects timestamp_ntz, got {shown(value)}, which has a zone; give its time there, "
            "value.replace(tzinfo=None)"
        )
    return _timestamp(value)


def _instant_of(microseconds: float) -> datetime.datetime | None:
    """None for NaT and for years beyond 9999: entries from before these were refused hold some."""
    if not _TIMESTAMP_MIN <= microseconds <= _TIMESTAMP_MAX:
        return None
    return _EPOCH + datetime.timedelta(microseconds=microseconds)


def _timestamp_of(microseconds: float) -> datetime.datetime | None:
    instant = _instant_of(microseconds)
    return None if instant is None else instant.replace(tzinfo=None)


def _decimal(name: str, precision: int, scale: int) -> WireType:
    quantum = decimal.Decimal(1).scaleb(-scale)
    limit = decimal.Decimal(10) ** (precision - scale)

    def to_wire(value: Any) -> str:
        """As Spark's state does, digits behind the scale are rounded half up."""
        if isinstance(value, bool) or not isinstance(value, decimal.Decimal | int):
            raise Misfit(f"expects {name}, got {shown(value)}")
        number = decimal.Decimal(value)
        if number.is_finite():
            fits = not number or number.adjusted() < precision
            number = (number or _ZERO).quantize(quantum, context=_EXACT) if fits else limit
        if not (number.is_finite() and -limit < number < limit):
            raise Misfit(f"expects {name}, got {shown(value)}, which does not fit")
        return f"{number or abs(number):f}"

    return WireType(name, str, False, to_wire, decimal.Decimal, decimal.Decimal)


def _of_numpy(value: Any, name: str) -> bool:
    """Whether `value` is a numpy scalar whose type's name begins with `name`; does not import numpy."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__.startswith(name)


def items_of(array: Any) -> list[Any]:
    """The items of a numpy array; its times as datetimes."""
    return array.astype("datetime64[us]").tolist() if array.dtype.kind == "M" else list(array)


# --- nested types -----------------------------------------------------------------------------------


def _array(name: str, element: WireType) -> WireType:
    def to_wire(value: Any) -> list[Any]:
        if _of_numpy(value, "ndarray"):
            value = items_of(value)
        if not isinstance(value, list | tuple | set | frozenset):
            raise Misfit(f"expects {name}, got {shown(value)}")
        return [_inside(element.to_wire, item, f"element {i}") for i, item in enumerate(value)]

    return WireType(
        name,
        list[nullable(element.checked)],  # type: ignore[misc]  # a type made at run time
        element.plain,
        to_wire,
        _each(element.to_row),
        _each(element.to_state),
    )


def _each(convert: Convert | None) -> Convert:
    if convert is None:
        return list

    def convert_all(values: list[Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in values]

    return convert_all


def _map(name: str, key: WireType, value: WireType) -> WireType:
    def to_wire(given: Any) -> list[Any]:
        pairs = list(given.items()) if isinstance(given, dict) else given
        if not isinstance(pairs, list | tuple) or not all(
            isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
        ):
            raise Misfit(f"expects {name}, got {shown(given)}")
        if any(k is None for k, _ in pairs):
            raise Misfit(f"expects {name}, got one with a null key")
        return [
            (_inside(key.to_wire, k, "a key"), _inside(value.to_wire, v, f"the value of {k!r}"))
            for k, v in pairs
        ]

    def pairs_of(k_of: Convert | None, v_of: Convert | None) -> Convert:
        return lambda pairs: [(_converted(k_of, k), _converted(v_of, v)) for k, v in pairs]

    def dict_of(pairs: list[Any]) -> dict[Any, Any]:
        return {_converted(key.to_state, k): _converted(value.to_state, v) for k, v in pairs}

    return WireType(
        name,
        list[tuple[key.checked, nullable(value.checked)]],  # type: ignore[name-defined,misc]  # as above
        False,
        to_wire,
        pairs_of(key.to_row, value.to_row),
        dict_of,
    )


def _struct(name: str, names: list[str], fields: list[WireType]) -> WireType:
    make_row = Row(*names)

    def to_wire(given: Any) -> tuple[Any, ...]:
        values = given
        if isinstance(given, Row) and (row_names := names_of(given)) is not None:
            values = by_name(names, dict(zip(row_names, given, strict=True)))
        elif isinstance(given, dict):
            values = by_name(names, given)
        if not isinstance(values, list | tuple) or len(values) != len(fields):
            raise Misfit(f"expects {name}, got {shown(given)}")
        return tuple(
            _inside(field.to_wire, value, f"field {field_name!r}")
            for field_name, field, value in zip(names, fields, values, strict=True)
        )

    def dict_of(values: list[Any]) -> dict[str, Any]:
        return {
            field_name: _converted(field.to_row, value)
            for field_name, field, value in zip(names, fields, values, strict=True)
        }

    def row_of(values: list[Any]) -> Row:
        return make_row(*[_converted(f.to_state, v) for f, v in zip(fields, values, strict=True)])

    checked = tuple.__class_getitem__(tuple(nullable(field.checked) for field in fields))
    return WireType(name, checked, False, to_wire, dict_of, row_of)


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _inside(to_wire: Convert, value: Any, place: str) -> Any:
    """`to_wire` of a part of a value; a Misfit says which part."""
    if value is None:
        return None
    try:
        return to_wire(value)
    except Misfit as misfit:
        raise Misfit(f"has {place} that {misfit}") from None
