"""Key -> shard: the only look-up of where a row goes.

The override table of hot keys first, else `pmod(xxhash64(key columns), shards)` as Spark SQL computes it
(XXH64, seed 42, each column's hash the next one's seed, a null leaves the seed as it is; a struct is
its fields). Values are Python's for Spark's types, as user code yields them; a date may also come as days and
a timestamp as microseconds since 1970, and a struct is the sequence of its values. Neighbours:
`plan.KeyedEdge` says which columns; the worker routes with it.
"""

from __future__ import annotations

import calendar
import datetime
import decimal
import math
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from xxhash import xxh64_intdigest

from penstock.dataflow.type_names import nested, struct_fields

SEED = 42
CACHED_KEYS_MAX = 1 << 15
CACHED_KEY_BYTES_MAX = 256
"""Longer keys are hashed each time, so that a full cache stays in the megabytes."""

Key = tuple[object, ...]
Encode = Callable[[object], bytes]
"""A value that is not None -> the bytes that Spark hashes. Raises TypeError, ValueError or struct.error
for a value that is not of the column's type."""

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LONG_DIGITS = 18
"""Decimals of up to so many digits are longs to Spark."""
_EXACT = decimal.Context(prec=1000)
_int32 = struct.Struct("<i").pack
_int64 = struct.Struct("<q").pack
_float32 = struct.Struct("<f").pack
_float64 = struct.Struct("<d").pack
_NAN_32 = b"\x00\x00\xc0\x7f"
_NAN_64 = b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
_ZERO_32 = bytes(4)
_MINUS_ZERO_32 = b"\x00\x00\x00\x80"


class Router:
    """Routes the keys of one edge. Not thread safe; each task has its own.

    `types` are the key columns' types (`Column.type`), `overrides` the shards of single keys,
    `table_version` the version of that table, which a commit carries. ValueError for a
    type that cannot be part of a key, and for an override out of bounds.
    """

    __slots__ = ("_cache", "_convert", "_encoders", "_overrides", "shards", "table_version")

    def __init__(
        self,
        types: Sequence[str],
        shards: int,
        overrides: Mapping[Key, int] | None = None,
        table_version: int = 0,
    ) -> None:
        self.shards = shards
        self.table_version = table_version
        leaves = [leaf for type_ in types for leaf in _leaves(type_)]
        self._encoders = tuple(_encoder(leaf) for leaf in leaves)
        self._convert = _conversion(types, leaves)
        self._overrides: dict[Key, int] = {}
        for key, shard in (overrides or {}).items():
            if not 0 <= shard < shards or len(key) != len(types):
                raise ValueError(f"override {key!r} -> {shard} does not fit {shards} shards of {types!r}")
            self._overrides[key if self._convert is None else self._convert(key)] = shard
        self._cache: dict[Key, int] = {}

    def route(self, key: Key) -> int:
        """The shard, from 0 to shards - 1, of a key: its columns' values in keyBy's order."""
        if self._convert is not None:
            key = self._convert(key)
        try:
            return self._cache[key]
        except KeyError:
            return self._look_up(key)

    def _look_up(self, key: Key) -> int:
        # Dict keys that compare equal (1 and True, 0.0 and -0.0) have equal bytes in a column of one type.
        hashed, size = SEED, 0
        shard = self._overrides.get(key) if self._overrides else None
        if shard is None:
            for value, encode in zip(key, self._encoders, strict=True):
                if value is not None:
                    data = encode(value)
                    hashed = xxh64_intdigest(data, hashed)
                    size += len(data)
            shard = _signed(hashed) % self.shards
        if size <= CACHED_KEY_BYTES_MAX:
            if len(self._cache) >= CACHED_KEYS_MAX:
                self._cache.clear()
            self._cache[key] = shard
        return shard


def spark_xxhash64(values: Sequence[object], types: Sequence[str]) -> int:
    """Spark SQL's `xxhash64(values...)`, a signed 64-bit number. The two are equally long.

    ValueError for a type that cannot be part of a key.
    """
    hashed = SEED
    leaves = [leaf for type_ in types for leaf in _leaves(type_)]
    for value, type_ in zip(_flat(tuple(values), types), leaves, strict=True):
        encode = _encoder(type_)
        if value is not None:
            hashed = xxh64_intdigest(encode(value), hashed)
    return _signed(hashed)


def routable(type_: str) -> bool:
    """Whether a column of this type may be part of a key."""
    return all(leaf in _ENCODERS or _DECIMAL.fullmatch(leaf) is not None for leaf in _leaves(type_))


def _signed(unsigned: int) -> int:
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


# --- values -> the bytes that Spark hashes ---------------------------------------------------------


def _encoder(type_: str) -> Encode:
    if type_ in _ENCODERS:
        return _ENCODERS[type_]
    if match := _DECIMAL.fullmatch(type_):
        return _decimal_encoder(int(match[1]), int(match[2]))
    raise ValueError(f"a column of type {type_} cannot be part of a key")


def _string(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value.encode()


def _binary(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{value!r} is not binary")
    return bytes(value)


def _boolean(value: object) -> bytes:
    return _int32(1 if value else 0)


def _date(value: object) -> bytes:
    return _int32(value.toordinal() - _EPOCH_DAY if isinstance(value, datetime.date) else value)


def _timestamp(value: object) -> bytes:
    return _int64(_timestamp_us(value))


def _timestamp_us(value: object) -> object:
    """As pyspark's TimestampType does it: without a time zone it is the machine's local time."""
    if not isinstance(value, datetime.datetime):
        return value
    if value.tzinfo is None:
        seconds = int(time.mktime(value.timetuple()))
    else:
        seconds = calendar.timegm(value.utctimetuple())
    return seconds * 1_000_000 + value.microsecond


def _timestamp_ntz(value: object) -> bytes:
    """A clock's time and date, wherever the clock hangs."""
    if isinstance(value, datetime.datetime):
        value = calendar.timegm(value.timetuple()) * 1_000_000 + value.microsecond
    return _int64(value)


def _number(value: object) -> float:
    if not isinstance(value, float | int):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _float(value: object) -> bytes:
    number = _number(value)
    if math.isnan(number):
        return _NAN_32
    try:
        data = _float32(number)
    except OverflowError:
        data = _float32(math.copysign(math.inf, number))
    return _ZERO_32 if data == _MINUS_ZERO_32 else data


def _double(value: object) -> bytes:
    number = _number(value)
    return _NAN_64 if math.isnan(number) else _float64(number + 0.0)  # -0.0 + 0.0 is 0.0


def _decimal_encoder(precision: int, scale: int) -> Encode:
    limit = 10**precision

    def encode(value: object) -> bytes:
        if not isinstance(value, decimal.Decimal | int):
            raise TypeError(f"{value!r} is not a decimal")
        number = decimal.Decimal(value)
        if not number.is_finite():
            raise ValueError(f"{value!r} is not a decimal({precision},{scale})")
        scaled = number.scaleb(scale, _EXACT)
        unscaled = int(scaled.to_integral_value(decimal.ROUND_HALF_UP, _EXACT))
        if not -limit < unscaled < limit:
            raise ValueError(f"{value!r} does not fit decimal({precision},{scale})")
        if precision <= _LONG_DIGITS:
            return _int64(unscaled)
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)

    return encode


_ENCODERS: dict[str, Encode] = {
    "string": _string,
    "int": _int32,
    "smallint": _int32,
    "tinyint": _int32,
    "bigint": _int64,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "float": _float,
    "double": _double,
    "binary": _binary,
}


# --- values that a dict cannot tell apart as Spark does ----------------------------------------------


def _conversion(types: Sequence[str], leaves: Sequence[str]) -> Callable[[Key], Key] | None:
    """What to make of a key before it is looked up, or None where it can stay as it is.

    A struct is laid open into its fields, the `leaves`: Spark hashes it as these, and a null one as none. A
    bytearray has no hash; two datetimes with a time zone that differ in `fold` alone are equal to a dict.
    """
    has_structs = list(types) != list(leaves)
    if not has_structs and not _COMPARABLE.keys() & set(leaves):
        return None
    converters = tuple(_COMPARABLE.get(leaf) for leaf in leaves)

    def convert(key: Key) -> Key:
        pairs = zip(_flat(key, types) if has_structs else key, converters, strict=True)
        return tuple(v if v is None or comparable is None else comparable(v) for v, comparable in pairs)

    return convert


def _leaves(type_: str) -> list[str]:
    """The types that a struct is made of; of any other type itself."""
    kind, inner = nested(type_)
    if kind != "struct":
        return [type_]
    return [leaf for _, field in struct_fields(inner) for leaf in _leaves(field)]


def _flat(values: Key, types: Sequence[str]) -> Iterator[object]:
    for value, type_ in zip(values, types, strict=True):
        kind, inner = nested(type_)
        if kind != "struct":
            yield value
        elif value is None:
            yield from [None] * len(_leaves(type_))
        elif isinstance(value, list | tuple):
            yield from _flat(tuple(value), [field for _, field in struct_fields(inner)])
        else:
            raise TypeError(f"{value!r} is no sequence of a struct's values")


def _comparable_timestamp(value: object) -> object:
    aware = isinstance(value, datetime.datetime) and value.tzinfo is not None
    return _timestamp_us(value) if aware else value


_COMPARABLE: dict[str, Callable[[object], object]] = {"binary": _binary, "timestamp": _comparable_timestamp}
