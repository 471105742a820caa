"""Cached lists and maps of single grouping keys, and what a commit writes of them.

A cell reads from the store only what is asked for: appending to a list reads nothing, a small map is read
as a whole, of a large one only the entries at hand. Between two commits it remembers what changed.
Neighbours: `encoding` says how both lie in the store, `clients` calls, `cache` owns the cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Protocol

import msgspec

from penstock.store.port import StateWrite
from penstock_worker.state import encoding
from penstock_worker.state.evolution import Stored, read_with, written_with

SMALL_MAP_ENTRIES_MAX = 256
"""Maps of up to this many entries are read in one go at the first touch."""
_ENTRY_BYTES = 150
"""What an entry costs in the cache beside its bytes."""

_MARKER = msgspec.msgpack.Decoder(tuple[int, list[msgspec.Raw]])
_CHUNK = msgspec.msgpack.Decoder(list[msgspec.Raw])
_COUNT = msgspec.msgpack.Decoder(int)


class StateReader(Protocol):
    """Reads an owned shard's state past the cache. Raises OwnershipLost or StoreUnreachable."""

    def fields(self, collection: bytes, fields: list[bytes]) -> list[bytes | None]:
        """What the fields hold, values in parts joined."""

    def collection(self, collection: bytes) -> dict[bytes, bytes]:
        """All fields, headers and parts of values as they lie there."""


def copied(cell: Any) -> Any:
    """A cell as it is now, which goes its own way."""
    twin = copy(cell)
    for name, value in vars(cell).items():
        if type(value) in (list, dict):
            setattr(twin, name, value.copy())
    return twin


class ListCell:
    """One grouping key's list. `field` is its name in the value hash and that of its collection; `stored`
    says how its rows lie there, where they are not as they are here."""

    def __init__(
        self, field: bytes, marker: bytes | None, reader: StateReader, stored: Stored | None = None
    ) -> None:
        self._field = field
        self._reader = reader
        self._stored = stored
        self._chunks = 0
        self._tail: list[bytes | msgspec.Raw] = []
        if marker is not None:
            self._chunks, raws = _MARKER.decode(marker)
            self._tail.extend(read_with(stored, raws))
        self._sealed: list[bytes | msgspec.Raw] | None = None if self._chunks else []
        self._replaced = False
        self._chunks_committed = self._chunks
        self.bytes = len(marker or b"")

    def exists(self) -> bool:
        return self._chunks > 0 or bool(self._tail)

    def items(self) -> list[bytes | msgspec.Raw]:
        """All rows, packed; a list of the caller's own."""
        if self._sealed is None:
            numbers = [encoding.chunk_field(number) for number in range(self._chunks)]
            sealed: list[bytes | msgspec.Raw] = []
            for raw in self._reader.fields(self._field, numbers):
                if raw is None:
                    raise RuntimeError(f"list {self._field!r} lacks one of its {self._chunks} chunks")
                sealed.extend(read_with(self._stored, _CHUNK.decode(raw)))
                self.bytes += len(raw)
            self._sealed = sealed
        return [*self._sealed, *self._tail]

    def append(self, rows: list[bytes]) -> None:
        self._tail.extend(rows)
        self.bytes += sum(map(len, rows))

    def replace(self, rows: list[bytes]) -> None:
        """Put `rows` in the place of all there is; none of them is a cleared list."""
        self._replaced = True
        self._chunks = 0
        self._sealed = []
        self._tail = list(rows)
        self.bytes = sum(map(len, rows))

    def writes(self) -> Iterator[StateWrite]:
        """What changed since the last commit, which this one is."""
        if self._replaced and self._chunks_committed:
            yield StateWrite(self._field, None, None)
        self._replaced = False
        yield from self._seal()
        self._chunks_committed = self._chunks
        if self.exists():
            marker = encoding.pack((self._chunks, written_with(self._stored, self._tail)))
            yield from encoding.put(b"", self._field, marker)
        else:
            yield from encoding.remove(b"", self._field)

    def _seal(self) -> Iterator[StateWrite]:
        """Move rows from the tail into chunks until less than a chunk is left."""
        start, size_bytes = 0, 0
        for end, row in enumerate(self._tail, start=1):
            size_bytes += len(memoryview(row))
            if size_bytes < encoding.LIST_CHUNK_BYTES:
                continue
            chunk = encoding.pack(written_with(self._stored, self._tail[start:end]))
            yield from encoding.put(self._field, encoding.chunk_field(self._chunks), chunk)
            if self._sealed is not None:
                self._sealed.extend(self._tail[start:end])
            self._chunks += 1
            start, size_bytes = end, 0
        del self._tail[:start]


class MapCell:
    """One grouping key's map: packed user keys -> packed values. `field` and `stored` as of a list."""

    def __init__(
        self, field: bytes, marker: bytes | None, reader: StateReader, stored: Stored | None = None
    ) -> None:
        self._field = field
        self._reader = reader
        self._stored = stored
        self._count = self._count_committed = _COUNT.decode(marker) if marker is not None else 0
        self._entries: dict[bytes, bytes | None] = {}
        self._whole = self._count == 0
        self._changed: dict[bytes, None] = {}
        self._parts: dict[bytes, int] = {}
        self._replaced = False
        self.bytes = len(marker or b"")

    def exists(self) -> bool:
        return self._count > 0

    def get(self, key: bytes) -> bytes | None:
        """The value, packed; None when there is none."""
        if key in self._entries:
            return self._entries[key]
        if not self._whole:
            if self._count <= SMALL_MAP_ENTRIES_MAX:
                self._read_whole()
            else:
                self._read(key)
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        before = self.get(key)
        if before is None:
            self._count += 1
            self.bytes += len(key) + _ENTRY_BYTES
        self.bytes += len(value) - len(before or b"")
        self._entries[key] = value
        self._changed[key] = None

    def remove(self, key: bytes) -> bool:
        """Delete an entry; whether there was one."""
        before = self.get(key)
        if before is None:
            return False
        self._count -= 1
        self.bytes -= len(before)
        self._entries[key] = None
        self._changed[key] = None
        return True

    def clear(self) -> None:
        self._replaced = True
        self._count = 0
        self._entries.clear()
        self._changed.clear()
        self._parts.clear()
        self._whole = True
        self.bytes = 0

    def items(self) -> list[tuple[bytes, bytes]]:
        """All entries in the order of their packed keys; a list of the caller's own."""
        if not self._whole:
            self._read_whole()
        return sorted((key, value) for key, value in self._entries.items() if value is not None)

    def writes(self) -> Iterator[StateWrite]:
        """What changed since the last commit, which this one is."""
        if self._replaced and self._count_committed:
            yield StateWrite(self._field, None, None)
        for key in self._changed:
            value = self._entries[key]
            parts_before = self._parts.pop(key, 0)
            if value is not None:
                if self._stored is not None:
                    value = self._stored.write(value)
                if len(value) > encoding.PART_BYTES:
                    self._parts[key] = -(-len(value) // encoding.PART_BYTES)
                yield from encoding.put(self._field, key, value, parts_before)
            else:
                yield from encoding.remove(self._field, key, parts_before)
                if self._whole:
                    del self._entries[key]
                    self.bytes -= len(key) + _ENTRY_BYTES
        self._changed.clear()
        self._replaced = False
        if self._count != self._count_committed:
            self._count_committed = self._count
            if self._count:
                yield StateWrite(b"", self._field, encoding.pack(self._count))
            else:
                yield StateWrite(b"", self._field, None)

    def _read(self, key: bytes) -> None:
        (value,) = self._reader.fields(self._field, [key])
        self._keep(key, value)

    def _read_whole(self) -> None:
        found = self._reader.collection(self._field)
        for key, raw in found.items():
            if not encoding.is_part(key) and key not in self._entries:
                self._keep(key, encoding.joined(key, raw, found))
        self._whole = True

    def _keep(self, key: bytes, value: bytes | None) -> None:
        if value is not None and len(value) > encoding.PART_BYTES:
            self._parts[key] = -(-len(value) // encoding.PART_BYTES)
        if value is not None and self._stored is not None:
            value = self._stored.read(value)
        self._entries[key] = value
        self.bytes += len(key) + len(value or b"") + _ENTRY_BYTES
