"""Packed values of earlier schemas of a variable -> packed values of the one that its code declares.

Each schema of a variable in a shard has a number there, in the order in which they came (`declared` notes
them). A value of the first one lies as it is; one of a later schema lies in a msgpack extension whose code is
the schema's number. So nothing is rewritten when a schema changes: what is read is translated, what is
written has the newest. In the cache all is of the code's schema, and without a number. Neighbours: `cache`
and `cells` read and write by this, `penstock.dataflow.state_schema` says which schemas may follow which.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.type_names import nested, split, struct_fields
from penstock_worker.state.encoding import pack
from penstock_worker.state.stamps import stamped, unstamped

SCHEMAS_MAX = 127
"""Numbers that an extension's code can have."""

_FLOAT32 = struct.Struct("<f")
_ANY = msgspec.msgpack.Decoder()
_EXT = msgspec.msgpack.Decoder(msgspec.msgpack.Ext)
_EXT_FIRST = frozenset({0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8})

_Translate = Callable[[Any], Any]
"""A wire value that is not None, of one type -> the same of another."""


class Stored:
    """One variable of one shard whose schemas are not one. `schemas` by their numbers, as DDL; `current` is
    the number of the code's."""

    def __init__(self, schemas: Sequence[str], current: int) -> None:
        self._current = current
        self._readers = [
            None if schema == schemas[current] else _translator(schema, schemas[current])
            for schema in schemas
        ]

    def read(self, raw: bytes) -> bytes:
        """A value as it lies in the store, as one of the code's schema."""
        number = 0
        if raw[0] in _EXT_FIRST:
            tagged = _EXT.decode(raw)
            number, raw = tagged.code, bytes(tagged.data)
        translate = self._readers[number]
        return raw if translate is None else pack(translate(_ANY.decode(raw)))

    def write(self, raw: bytes) -> bytes:
        """The other way."""
        return raw if not self._current else pack(msgspec.msgpack.Ext(self._current, raw))


class StampedStored(Stored):
    """The same of a variable with a time to live: its values lie under stamps."""

    def read(self, raw: bytes) -> bytes:
        expires_ms, packed = unstamped(raw)
        return stamped(super().read(bytes(packed)), expires_ms)

    def write(self, raw: bytes) -> bytes:
        expires_ms, packed = unstamped(raw)
        return stamped(super().write(bytes(packed)), expires_ms)


Row = bytes | msgspec.Raw
"""Of a list, packed."""


def read_with(stored: Stored | None, rows: Sequence[Row]) -> Sequence[Row]:
    """Rows as they lie in the store, as such of the code's schema."""
    return rows if stored is None else [stored.read(bytes(row)) for row in rows]


def written_with(stored: Stored | None, rows: Sequence[Row]) -> list[msgspec.Raw]:
    """The other way, each to stand in a list."""
    return [msgspec.Raw(row if stored is None else stored.write(bytes(row))) for row in rows]


def _translator(before: str, now: str) -> _Translate:
    return _struct(
        [(column.name, column.type) for column in parse_schema(before).columns],
        [(column.name, column.type) for column in parse_schema(now).columns],
    )


def _struct(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> _Translate:
    places = {name: place for place, (name, _) in enumerate(before)}
    types = dict(before)
    fields = [
        (places[name], _type(types[name], type_)) if name in places else (None, None) for name, type_ in now
    ]

    def translate(values: Sequence[Any]) -> list[Any]:
        return [None if place is None else _applied(change, values[place]) for place, change in fields]

    return translate


def _type(before: str, now: str) -> _Translate | None:
    """None where the wire value stays as it is."""
    if before == now:
        return None
    (kind, inner), (_, inner_now) = nested(before), nested(now)
    if kind == "array":
        element = _type(inner, inner_now)
        return lambda values: [_applied(element, value) for value in values]
    if kind == "map":
        change = _type(split(inner)[1], split(inner_now)[1])
        return lambda pairs: [(key, _applied(change, value)) for key, value in pairs]
    if kind == "struct":
        return _struct(struct_fields(inner), struct_fields(inner_now))
    if now == "float":
        return lambda number: _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    return float if now == "double" else None


def _applied(change: _Translate | None, value: Any) -> Any:
    return value if value is None or change is None else change(value)
