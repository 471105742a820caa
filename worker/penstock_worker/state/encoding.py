"""How state lies in the node store: names of fields and collections, packed keys, values in parts.

A shard's value hash holds, for every grouping key that has it, one field per state variable:

    v + name + key -> value                 a value state
    l + name + key -> [chunks, [row, ...]]  a list state: full chunks elsewhere, and the rows behind them
    m + name + key -> count                 a map state: how many entries it has
    V, L, M + name + key                    the same with a time to live (`expiring`)
    t + key -> [expiry, ...] or null        timers, or that they lie in the collection (`timers`)
    s -> {name: [kind, schemas, history]}   what its variables were declared as (`declared`)

A list's chunks and a map's entries lie in a collection of their own, which is called like the field; so
the value hash names everything that a shard holds. In a collection a chunk's field is its packed
number, an entry's its packed user key. Names, keys and values are msgpack: deterministic, and 1, 1.0,
True and "1" differ. A value over `PART_BYTES` lies in parts beside its field, which then holds a header
that begins with 0xC1, a byte that msgpack never uses. How a value tells that it was written under a later
schema than its variable's first says `evolution`. Neighbours: `cells` and `cache` read and write by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.dataflow import state_schema
from penstock.store import codec
from penstock.store.port import StateWrite

VALUE, EXPIRING_VALUE = state_schema.VALUE, state_schema.EXPIRING_VALUE
LIST, EXPIRING_LIST = state_schema.LIST, state_schema.EXPIRING_LIST
MAP, EXPIRING_MAP = state_schema.MAP, state_schema.EXPIRING_MAP
EXPIRING = (EXPIRING_VALUE, EXPIRING_LIST, EXPIRING_MAP)
TIMERS = b"t"
FRAGMENTS = b"f"
"""Collections that hold rows which come in fragments; the rest of the name is their producer's."""
LARGE_COMMIT = b"x"
"""The collection of a commit that is written in parts (`large_commit`)."""
PART_BYTES = 256 << 10
LIST_CHUNK_BYTES = 1024
"""A commit rewrites at most about this much of a list that was appended to."""

_SPLIT = b"\xc1"
_HEADER = msgspec.msgpack.Decoder(int)

pack = codec.pack
"""Plain values -> msgpack. Raises UnicodeEncodeError for a text that is no Unicode."""


def field_prefix(kind: bytes, name: str) -> bytes:
    """What the fields of a state variable begin with in the value hash."""
    return kind + pack(name)


def key_packer(types: Sequence[str]) -> Callable[[tuple[Any, ...]], bytes]:
    """Packs grouping keys (wire values) with columns of these types, equal keys to equal bytes."""
    if any(type_.startswith("struct<") and ("double" in type_ or "float" in type_) for type_ in types):
        return lambda key: pack(_with_one_zero(key))
    floats = [type_ in ("double", "float") for type_ in types]
    if not any(floats):
        return pack

    def pack_floats(key: tuple[Any, ...]) -> bytes:
        # 0.0 and -0.0 are one group; adding 0.0 makes them one number.
        pairs = zip(key, floats, strict=True)
        return pack([v + 0.0 if is_float and v is not None else v for v, is_float in pairs])

    return pack_floats


def _with_one_zero(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_with_one_zero(part) for part in value]
    return value + 0.0 if isinstance(value, float) else value


def chunk_field(number: int) -> bytes:
    """The field of a list's chunk, from 0."""
    return pack(number)


# --- values in parts --------------------------------------------------------------------------------


def is_split(raw: bytes) -> bool:
    """Whether what a field holds is only the header of a value in parts."""
    return raw.startswith(_SPLIT)


def is_part(field: bytes) -> bool:
    """Whether a field holds a part of another field's value."""
    return field.startswith(_SPLIT)


def part_of(field: bytes) -> bytes:
    """The field of whose value this one holds a part."""
    return field[3:]


def part_count(raw: bytes | None) -> int:
    """How many parts lie beside a field that holds `raw`."""
    return _HEADER.decode(raw[1:]) if raw is not None and is_split(raw) else 0


def part_fields(field: bytes, parts: int) -> list[bytes]:
    """The fields of the parts of a value, in order."""
    return [_SPLIT + number.to_bytes(2, "big") + field for number in range(parts)]


def joined(field: bytes, raw: bytes, found: Mapping[bytes, bytes]) -> bytes:
    """The value of `field`, which holds `raw`, with its parts taken from `found`."""
    return b"".join(found[part] for part in part_fields(field, part_count(raw))) if is_split(raw) else raw


def put(collection: bytes, field: bytes, value: bytes, parts_before: int = 0) -> Iterator[StateWrite]:
    """The writes that set a field, whose value lay in `parts_before` parts."""
    parts = 0
    if len(value) > PART_BYTES:
        parts = -(-len(value) // PART_BYTES)
        for number, part in enumerate(part_fields(field, parts)):
            yield StateWrite(collection, part, value[number * PART_BYTES : (number + 1) * PART_BYTES])
        value = _SPLIT + pack(parts)
    yield StateWrite(collection, field, value)
    for part in part_fields(field, parts_before)[parts:]:
        yield StateWrite(collection, part, None)


def remove(collection: bytes, field: bytes, parts_before: int = 0) -> Iterator[StateWrite]:
    """The writes that delete a field, whose value lay in `parts_before` parts."""
    yield StateWrite(collection, field, None)
    for part in part_fields(field, parts_before):
        yield StateWrite(collection, part, None)
