"""A key's timers: what they are called in the store, and the cell of its state that lists them.

A timer is in the store twice, and both change in one commit: among the shard's timers, where it lies by when
it is due and fires, and with the state of its key, for `listTimers`. There the expiries lie in one field, in
order; a key that once had more than `LISTED_MAX` has them in a collection of the field's name instead, a
field each, so that a change of one does not rewrite thousands. Neighbours: `cache` owns the cells,
`clients` and `user_code.running` call them, `stages.due` reads names when timers come due.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.store.port import StateWrite
from penstock_worker.state import encoding
from penstock_worker.state.cells import StateReader

LISTED_MAX = 64
"""Expiries of one key in one field."""
_SIGN = 1 << 63
_EXPIRY_BYTES = 8
_TIMER_BYTES = 40
"""What a listed expiry costs in the cache."""
_LISTED = msgspec.msgpack.Decoder(list[int] | None)


def timer_name(field: bytes, expiry_ms: int) -> bytes:
    """What a timer is called: `field` is its key's, and names sort as expiries do."""
    return field + _packed(expiry_ms)


def timer_parts(name: bytes) -> tuple[Any, int]:
    """The grouping key (wire values, as a list) and the expiry in a timer's name."""
    key = msgspec.msgpack.decode(name[len(encoding.TIMERS) : -_EXPIRY_BYTES])
    return key, _unpacked(name[-_EXPIRY_BYTES:])


def _packed(expiry_ms: int) -> bytes:
    return (expiry_ms + _SIGN).to_bytes(_EXPIRY_BYTES, "big")


def _unpacked(packed: bytes) -> int:
    return int.from_bytes(packed, "big") - _SIGN


class TimerCell:
    """The expiries of one grouping key's timers. `field` is its name in the value hash."""

    def __init__(self, field: bytes, marker: bytes | None, reader: StateReader, stored: None = None) -> None:
        self.field = field
        self._reader = reader
        listed = [] if marker is None else _LISTED.decode(marker)
        self._is_apart = listed is None
        """The expiries lie in the collection,"""
        self._listed: list[int] = listed or []
        self._changed: dict[int, bool] = {}
        """of which only those are known that changed: whether they are there now."""
        self.bytes = len(marker or b"")

    def fires(self, expiry_ms: int) -> bool:
        """Whether a timer that the store handed out is there still: nothing has deleted it since."""
        return self._changed.get(expiry_ms, True) if self._is_apart else self._is_listed(expiry_ms)

    def add(self, expiry_ms: int) -> bool:
        """Note a timer; False for one that is known to be there."""
        if self._is_apart:
            if self._changed.get(expiry_ms):
                return False
            self._changed[expiry_ms] = True
            return True
        if self._is_listed(expiry_ms):
            return False
        self._listed.insert(bisect_left(self._listed, expiry_ms), expiry_ms)
        self.bytes += _TIMER_BYTES
        if len(self._listed) > LISTED_MAX:
            self._is_apart = True
            self._changed = dict.fromkeys(self._listed, True)
            self._listed = []
        return True

    def remove(self, expiry_ms: int) -> bool:
        """Forget a timer; False for one that is known not to be there."""
        if self._is_apart:
            self._changed[expiry_ms] = False
            return True
        if not self._is_listed(expiry_ms):
            return False
        del self._listed[bisect_left(self._listed, expiry_ms)]
        self.bytes -= _TIMER_BYTES
        return True

    def expiries(self) -> list[int]:
        """All of them in order; a list of the caller's own."""
        if not self._is_apart:
            return list(self._listed)
        kept = dict.fromkeys(map(_unpacked, self._reader.collection(self.field)), True) | self._changed
        return sorted(expiry_ms for expiry_ms, is_there in kept.items() if is_there)

    def _is_listed(self, expiry_ms: int) -> bool:
        at = bisect_left(self._listed, expiry_ms)
        return at < len(self._listed) and self._listed[at] == expiry_ms

    def writes(self) -> Iterator[StateWrite]:
        """What changed since the last commit, which this one is."""
        if not self._is_apart:
            listed = encoding.pack(self._listed) if self._listed else None
            yield StateWrite(b"", self.field, listed)
            return
        yield StateWrite(b"", self.field, encoding.pack(None))
        for expiry_ms, is_there in self._changed.items():
            yield StateWrite(self.field, _packed(expiry_ms), b"" if is_there else None)
        self._changed.clear()
        self.bytes = _TIMER_BYTES
