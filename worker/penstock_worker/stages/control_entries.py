"""Entries that are no rows: marks of a routing table's version, and state of keys that change their shard.

They stand in inboxes between rows, in the order of their pair. A mark says that its producer routes by that
version from here on; what is behind it of the same pair has gone by it, what is before it has not (decision
0053). The first byte tells what an entry is: an array of three is rows, of one initial rows, of four a
fragment; a mark is one of two, a key's state one of six. An order about a dead letter is one of two as well,
but begins with a text. Neighbours: `switching` sends marks, `receiving`
reads both.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.store import fragments, letters
from penstock.store.letters import Letter, is_order
from penstock.store.port import Entry
from penstock_worker.state.key_state import Part

_MARK, _KEY_STATE = 0x92, 0x96
_CONTROLS = frozenset({_MARK, _KEY_STATE})
NO_ROWS = _CONTROLS | {fragments.FIRST_BYTE, letters.FIRST_BYTE}
"""First bytes of entries that are no rows, or pieces of some."""


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`producer` routes by version `version` from here on."""

    version: int
    producer: str


class KeyState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything that the shard `source` had of a key, which goes with version `version`; it is the key
    number `number` (from 0) of `source`'s. `waiting` is what of the key is to be tried again there."""

    version: int
    key: bytes
    source: str
    number: int
    parts: list[Part]
    waiting: list[Letter]


encode = msgspec.msgpack.Encoder().encode
_MARK_DECODER = msgspec.msgpack.Decoder(Mark)
_KEY_STATE_DECODER = msgspec.msgpack.Decoder(KeyState)


def is_control(payload: bytes) -> bool:
    first = payload[0]
    return first == _KEY_STATE or (first == _MARK and not is_order(payload))


def decode(payload: bytes) -> Mark | KeyState:
    """What a control entry, or a key's state put together of fragments, says."""
    if payload[0] == _MARK:
        return _MARK_DECODER.decode(payload)
    return _KEY_STATE_DECODER.decode(payload)


def before_control(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries up to the first that is no rows."""
    for place, entry in enumerate(entries):
        if entry.payload[0] in _CONTROLS and is_control(entry.payload):
            return entries[:place]
    return entries
