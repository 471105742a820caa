"""What a shard knows of a routing table's version that is being carried out: whom it has heard of, which keys
it has sent on, which ones it waits for, and what it holds back of these.

All of it lies in a collection of the shard's state, changed by the commits that it is about, so it goes
wherever the shard goes: to the next owner, to another store. What is told here and what is written are made
together; an owner whose commit is refused drops both. Neighbour: `receiving` decides by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from penstock.dataflow.routing_table import KeyMove, RoutingTable
from penstock.store.port import StateWrite
from penstock_worker.state import encoding
from penstock_worker.state.encoding import chunk_field, pack

VERSION_NOTES = b"k"
"""The collection of a shard's state with these notes,"""
HELD_ROWS = b"h"
"""and what the names of those with rows that are held back begin with; the rest is their key."""
_HEARD, _SENT, _COME, _HELD, _ENTRY, _PUT = b"m", b"i", b"c", b"h", b"n", b"a"

_NUMBER = msgspec.msgpack.Decoder(int)
_RANGE = msgspec.msgpack.Decoder(tuple[int, int])

Key = tuple[Any, ...]


class ArrivingVersion:
    """One version at one shard. `number` is the shard's in its operator; `key_of` makes a grouping key of a
    packed one; `notes` is what an earlier owner has left."""

    def __init__(
        self,
        table: RoutingTable,
        number: int,
        key_of: Callable[[bytes], Key],
        notes: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.version = table.version
        self.lost: list[KeyMove] = [move for move in table.moves if move.source == number]
        self._producers = frozenset(table.producers)
        self._key_of = key_of
        self._heard: set[str] = set()
        self.sent = 0
        """So many of `lost` were sent."""
        self.held_entry = 0
        """The number of an entry whose rows of awaited keys are held, and whose others are not done."""
        self.put = b""
        """A key whose state is here, and whose rows are being worked off."""
        self._held: dict[bytes, tuple[int, int]] = {}
        """Key -> the number of its first chunk of rows, and of the next one to come."""
        awaited = {move.key for move in table.moves if move.target == number}
        for name, value in notes:
            kind, rest = name[:1], name[1:]
            if kind == _HEARD:
                self._heard.add(rest.decode())
            elif kind == _SENT:
                self.sent = _NUMBER.decode(value)
            elif kind == _COME:
                awaited.discard(rest)
            elif kind == _HELD:
                self._held[rest] = _RANGE.decode(value)
            elif kind == _ENTRY:
                self.held_entry = _NUMBER.decode(value)
            elif kind == _PUT:
                self.put = value
        self.awaited = {key_of(packed): packed for packed in awaited}
        """Keys whose state has not come, by what rows have."""

    # --- marks

    def is_last_mark(self, producer: str) -> bool:
        """Whether all producers have switched once this one's mark is taken."""
        return self._producers <= {*self._heard, producer}

    def hear(self, producer: str) -> Iterator[StateWrite]:
        """A mark is taken. Of a producer that the table does not name it is worth nothing."""
        if producer in self._producers:
            self._heard.add(producer)
            yield StateWrite(VERSION_NOTES, _HEARD + producer.encode(), b"")

    # --- keys that are lost

    def send(self, keys: int) -> Iterator[StateWrite]:
        """The state of so many keys more is on its way."""
        self.sent += keys
        yield StateWrite(VERSION_NOTES, _SENT, pack(self.sent))

    @property
    def is_sending(self) -> bool:
        """Whether some of the keys that are lost are on their way, and others are here."""
        return 0 < self.sent < len(self.lost)

    def has_sent(self, packed: bytes) -> bool:
        return any(move.key == packed for move in self.lost[: self.sent])

    # --- keys that are gained

    def awaits(self, packed: bytes) -> bool:
        return self._key_of(packed) in self.awaited

    def hold(self, packed: bytes, payload: bytes) -> Iterator[StateWrite]:
        """Rows of an awaited key are kept, behind those that are kept already."""
        first, following = self._held.get(packed, (0, 0))
        self._held[packed] = (first, following + 1)
        yield from encoding.put(HELD_ROWS + packed, chunk_field(following), payload)
        yield self._range(packed)

    def hold_entry(self, number: int) -> Iterator[StateWrite]:
        """What is to be held of an entry is; 0: its other rows are done too."""
        if number != self.held_entry:
            self.held_entry = number
            yield StateWrite(VERSION_NOTES, _ENTRY, pack(number) if number else None)

    def first_held(self, packed: bytes) -> int | None:
        """The number of the first chunk of rows that is held of a key; None where none is."""
        first, following = self._held.get(packed, (0, 0))
        return first if first < following else None

    def is_last_held(self, packed: bytes) -> bool:
        first, following = self._held[packed]
        return first + 1 == following

    def put_in(self, packed: bytes) -> Iterator[StateWrite]:
        """A key's state is here; the rows that are held of it are worked off next."""
        self.put = packed
        yield StateWrite(VERSION_NOTES, _PUT, packed)

    def worked(self, packed: bytes, parts: int) -> Iterator[StateWrite]:
        """The first held chunk of a key, which lies in so many parts, is done."""
        first, following = self._held[packed]
        self._held[packed] = (first + 1, following)
        yield from encoding.remove(HELD_ROWS + packed, chunk_field(first), parts)
        yield self._range(packed)

    def come(self, packed: bytes) -> Iterator[StateWrite]:
        """A key's state is here, and nothing of it is held any more."""
        del self.awaited[self._key_of(packed)]
        yield StateWrite(VERSION_NOTES, _COME + packed, b"")
        if packed in self._held:
            del self._held[packed]
            yield StateWrite(HELD_ROWS + packed, None, None)
            yield StateWrite(VERSION_NOTES, _HELD + packed, None)
        if self.put:
            self.put = b""
            yield StateWrite(VERSION_NOTES, _PUT, None)

    # --- the end

    @property
    def is_over(self) -> bool:
        """Whether the shard has sent what it loses and has what it gains."""
        return self.sent == len(self.lost) and not self.awaited

    def _range(self, packed: bytes) -> StateWrite:
        return StateWrite(VERSION_NOTES, _HELD + packed, pack(self._held[packed]))
