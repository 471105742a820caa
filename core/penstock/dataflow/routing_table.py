"""A routing table of a keyed operator: which shard each of its hot keys is on, and what changes with it.

A table is a version of the operator's routing: all keys that it names go by it, all others by their hash.
Its content never changes: it says which keys change their shard, from where to where, and which shards put
out rows for the operator when it was made. A shard that keeps state therefore needs no other table to know
what it loses and gains, and whom it has to hear of (decision 0053). Keys are packed as in a shard's state:
their columns' wire values as msgpack. Neighbours: `routing` routes by it, `store.port.tables` keeps it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping

import msgspec


class KeyMove(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and the numbers of the shards that it goes from and to."""

    key: bytes
    source: int
    target: int


class RoutingTable(msgspec.Struct, frozen=True, array_like=True):
    """Version `version` of an operator's routing, from 1.

    `keys` is packed key -> number of its shard, in order of keys; `moves` are the keys whose shard the
    version before had elsewhere, in order; `producers` are the shards that put out rows for the operator, by
    name.
    """

    version: int
    keys: tuple[tuple[bytes, int], ...]
    moves: tuple[KeyMove, ...]
    producers: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        """Whether all keys go by their hash and none has to move for it: nobody needs a table then."""
        return not self.keys and not self.moves

    def changed_shards(self) -> list[int]:
        """The shards that lose or gain keys, in order."""
        return sorted({shard for move in self.moves for shard in (move.source, move.target)})


def next_table(
    before: RoutingTable | None,
    keys: Mapping[bytes, int],
    by_hash: Callable[[bytes], int],
    producers: Iterable[str],
) -> RoutingTable:
    """The table that follows `before`, in which `keys` are on these shards and all others where `by_hash`
    says."""
    old = dict(before.keys) if before is not None else {}
    moves = []
    for key in sorted({*old, *keys}):
        source = old[key] if key in old else by_hash(key)
        target = keys[key] if key in keys else by_hash(key)
        if source != target:
            moves.append(KeyMove(key, source, target))
    return RoutingTable(
        version=before.version + 1 if before is not None else 1,
        keys=tuple(sorted(keys.items())),
        moves=tuple(moves),
        producers=tuple(sorted(producers)),
    )


def bare_table(before: RoutingTable) -> RoutingTable:
    """The table that follows an empty one that is carried out. It keeps nothing but the version, from which
    a later table goes on; nobody has to switch to it."""
    return RoutingTable(before.version + 1, (), (), ())


encode_table = msgspec.msgpack.Encoder().encode
"""A table -> its content, equal tables to equal bytes."""
decode_table = msgspec.msgpack.Decoder(RoutingTable).decode
"""Inverse of `encode_table`. Raises msgspec.DecodeError for anything else."""


def superseded(version: int, content: bytes, there: Iterable[int], kept: int) -> list[int]:
    """The versions among those that are `there` that nobody goes by any more beside this one, where the last
    `kept` are. Behind a bare one nothing is kept: who still routes by the one before finds this one, and they
    are the same. A content that cannot be read is a later Penstock's, and is taken for none."""
    try:
        is_bare = decode_table(content).is_bare
    except msgspec.DecodeError:
        is_bare = False
    last = version if is_bare else version - kept + 1
    return [one for one in there if one < last]


CONTENT_TEXT_MAX = 256 << 10
"""Characters of a content as a text: it travels in a Schedule, which everybody is told as a whole."""
_CONTENT_BYTES_MAX = 16 << 20


def content_text(content: bytes) -> str:
    """A content as a text, packed."""
    return base64.b64encode(zlib.compress(content)).decode()


def content_of(text: str) -> bytes:
    """Inverse of `content_text`. Raises ValueError for anything else."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(base64.b64decode(text, validate=True), _CONTENT_BYTES_MAX)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the content of a routing table cannot be read: {error}") from error
    if not unpacking.eof:
        raise ValueError("the content of a routing table is cut short, or is too large")
    return content


def digest_of(content: bytes) -> str:
    """What a schedule names a content by, beside its version."""
    return hashlib.sha256(content).hexdigest()


def routed_count(operator: str) -> str:
    """The name under which a shard counts the version that it routes rows for `operator` by, among what its
    record counts (`store.ownership`). No operator can have it."""
    return f"{operator}/table"


def begun_count(operator: str) -> str:
    """The same of the version that a shard of `operator` itself has heard of,"""
    return f"{operator}/begun"


def moved_count(operator: str) -> str:
    """and of the one whose keys it has sent on and received."""
    return f"{operator}/moved"


def is_carried_out(
    operator: str,
    table: RoutingTable,
    counts: Mapping[str, Mapping[str, int]],
) -> bool:
    """Whether nobody is left that routes by an earlier version or waits for keys of this one: only then may
    another one follow.

    `counts` is shard -> what its record counts. A shard of which nothing is known is waited for.
    """
    routed, moved = routed_count(operator), moved_count(operator)
    has_switched = all(counts.get(shard, {}).get(routed, 0) >= table.version for shard in table.producers)
    changed = (f"{operator}/{number}" for number in table.changed_shards())
    return has_switched and all(counts.get(shard, {}).get(moved, 0) >= table.version for shard in changed)
