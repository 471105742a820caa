"""A shard's state as its owner reads it; commits write it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer
from penstock.store.port.request import Request

LOAD_BYTES = 1 << 20
"""So much state one answer holds, or little more: reading it keeps the store a millisecond."""


@dataclass(frozen=True, slots=True)
class Load(Request[list[bytes | None] | Answer]):
    """Read state of an owned shard: `fields` of `collection` ("" is the shard's value hash).

    Answers a list of bytes | None in the order of `fields`, or FENCED / UNKNOWN. The list is shorter than
    `fields` where their values are large: it ends with the one that makes it `LOAD_BYTES` or more, or a few
    behind that one. Ask again for the rest.
    """

    shard: str
    generation: int
    epoch: int
    collection: bytes
    fields: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Scan(Request[tuple[str, list[tuple[bytes, bytes]]] | Answer]):
    """Read a collection in chunks. Answers (next cursor, [(field, value), ...]); cursor "0" ends.

    A chunk has about `count` fields, or fewer where their values are large: it ends soon behind `LOAD_BYTES`.
    Start with cursor "0". A field may come twice (keep the last); while one owner holds the
    epoch and does not commit in between, the union of the chunks is the whole collection.
    FENCED / UNKNOWN otherwise.
    """

    shard: str
    generation: int
    epoch: int
    collection: bytes
    cursor: str
    count: int


@dataclass(frozen=True, slots=True)
class StateSnapshot(Request[dict[tuple[bytes, bytes], bytes]]):
    """For tests and tools: the value hash and all collections of a shard, whole. Not for the hot path.

    Answers {(collection, field): value}.
    """

    shard: str
