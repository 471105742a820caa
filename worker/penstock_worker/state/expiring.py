"""State with a time to live: clients of variables whose values, map entries or list elements expire.

Each value, entry or element is packed with the time at which it expires, by the steady clock: as long after
it was written as the variable's time to live, as in Spark. What has expired is hidden at once. It is swept
later, by timers of the shard: one for each value and map entry, and one for each list, since its elements
expire in order. A sweep looks before it deletes, so it may come late, twice or for nothing. Neighbours:
`clients` has the same without expiry, `stages.due` reads the names of sweeps, `keyed_stage` carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock_worker.state.cache import Record, ShardState, Variable
from penstock_worker.state.cells import ListCell, MapCell
from penstock_worker.state.clients import Cursor, ListClient, MapClient, ValueClient
from penstock_worker.state.shapes import StateShape, Values
from penstock_worker.state.stamps import expires_ms, has_expired, living, stamped

SWEEP = b"e"
"""What the names of sweeps begin with."""
SWEEP_MS = 1000
"""Sweeps come on the whole second: a value that is written often moves its sweep once in a second."""
LIST_SHARE = 8
"""A list is swept when its first element has been expired for this part of its time to live: a sweep rewrites
the list, so it should find a good part of it expired."""
_LENGTH_BYTES = 4


class Sweep(NamedTuple):
    """What may have expired: a value, a list, or the entry `entry` of a map, of the variable in `slot`."""

    packed_key: bytes
    slot: int
    entry: bytes


def sweep_of(name: bytes, variables: Sequence[Variable]) -> Sweep | None:
    """What a timer of this name sweeps; None for a variable that the code has no more."""
    at = len(SWEEP) + _LENGTH_BYTES
    end = at + int.from_bytes(name[len(SWEEP) : at], "big")
    field = name[at:end]
    for slot, variable in enumerate(variables):
        if variable.ttl_ms is not None and field.startswith(variable.prefix):
            return Sweep(field[len(variable.prefix) :], slot, name[end:])
    return None


def sweep(state: ShardState, record: Record, found: Sweep, variable: Variable) -> None:
    """Delete what has expired, and come again for what has not."""
    held = state.load_value(record, found.slot)
    field = variable.prefix + record.packed
    if isinstance(held, ListCell):
        _sweep_list(state, record, found, held, variable)
    elif isinstance(held, MapCell):
        raw = held.get(found.entry)
        if raw is not None and has_expired(raw, state.now_ms):
            held.remove(found.entry)
            state.changed(record, 1 << found.slot)
        elif raw is not None:
            _sweep_at(state, field, expires_ms(raw), found.entry)
    elif held is not None and has_expired(held, state.now_ms):
        record.values[found.slot] = None
        state.changed(record, 1 << found.slot)
    elif held is not None:
        _sweep_at(state, field, expires_ms(held))


def _sweep_list(state: ShardState, record: Record, found: Sweep, cell: ListCell, variable: Variable) -> None:
    rows = cell.items()
    kept = [bytes(memoryview(row)) for row in rows if not has_expired(row, state.now_ms)]
    if len(kept) < len(rows):
        cell.replace(kept)
        state.changed(record, 1 << found.slot)
    if kept:
        later_ms = (variable.ttl_ms or 0) // LIST_SHARE
        _sweep_at(state, variable.prefix + record.packed, expires_ms(kept[0]) + later_ms)


def _sweep_name(field: bytes, entry: bytes) -> bytes:
    return SWEEP + len(field).to_bytes(_LENGTH_BYTES, "big") + field + entry


def _sweep_at(state: ShardState, field: bytes, expires_ms: int, entry: bytes = b"") -> None:
    state.set_timer(_sweep_name(field, entry), -(-expires_ms // SWEEP_MS) * SWEEP_MS)


def _sweep_no_more(state: ShardState, field: bytes, entry: bytes = b"") -> None:
    state.set_timer(_sweep_name(field, entry), None)


class ExpiringValueClient(ValueClient):
    """A value expires as long after its last update."""

    def __init__(
        self, cursor: Cursor, slot: int, name: str, shape: StateShape, prefix: bytes, ttl_ms: int
    ) -> None:
        super().__init__(cursor, slot, name, shape)
        self._prefix, self._ttl_ms = prefix, ttl_ms

    def exists(self, _name: str) -> bool:
        return self.get(_name) is not None

    def get(self, _name: str) -> Values | None:
        shard, _ = self._here()
        packed = living(self._raw(), shard.now_ms)
        return None if packed is None else self._values(packed)

    def update(self, _name: str, value: object) -> None:
        raw = self._pack(value)
        shard, record = self._here()
        expires_ms = shard.now_ms + self._ttl_ms
        self._set(stamped(raw, expires_ms))
        _sweep_at(shard, self._prefix + record.packed, expires_ms)

    def clear(self, _name: str) -> None:
        shard, record = self._here()
        self._set(None)
        _sweep_no_more(shard, self._prefix + record.packed)


class ExpiringListClient(ListClient):
    """An element expires as long after it was put or appended."""

    def __init__(
        self, cursor: Cursor, slot: int, name: str, shape: StateShape, prefix: bytes, ttl_ms: int
    ) -> None:
        super().__init__(cursor, slot, name, shape)
        self._prefix, self._ttl_ms = prefix, ttl_ms

    def exists(self, _name: str) -> bool:
        return next(iter(self._living()), None) is not None

    def get(self, _name: str, iterator_id: str) -> tuple[Values, bool]:
        raw, last = self._cursor.advance(iterator_id, self._living)
        return self._shape.values(raw), last

    def append_value(self, _name: str, value: object) -> None:
        self._append([self._shape.packed(value)])

    def append_list(self, _name: str, values: Iterable[object]) -> None:
        self._append(self._rows(values))

    def put(self, _name: str, values: Iterable[object]) -> None:
        rows = self._rows(values)
        self._cell().replace([])
        self._append(rows)

    def clear(self, _name: str) -> None:
        super().clear(_name)
        shard, record = self._here()
        _sweep_no_more(shard, self._prefix + record.packed)

    def _append(self, rows: Sequence[bytes]) -> None:
        shard, record = self._here()
        cell, expires_ms = self._cell(), shard.now_ms + self._ttl_ms
        if not cell.exists():
            _sweep_at(shard, self._prefix + record.packed, expires_ms + self._ttl_ms // LIST_SHARE)
        cell.append([stamped(row, expires_ms) for row in rows])
        self._changed()

    def _living(self) -> Iterable[msgspec.Raw]:
        shard, _ = self._here()
        found = (living(raw, shard.now_ms) for raw in self._cell().items())
        return (packed for packed in found if packed is not None)


class ExpiringMapClient(MapClient):
    """An entry expires as long after its last update. Sweeps of what `clear` took find nothing."""

    def __init__(
        self,
        cursor: Cursor,
        slot: int,
        name: str,
        keys: StateShape,
        values: StateShape,
        prefix: bytes,
        ttl_ms: int,
    ) -> None:
        super().__init__(cursor, slot, name, keys, values)
        self._prefix, self._ttl_ms = prefix, ttl_ms

    def exists(self, _name: str) -> bool:
        return next(iter(self._living()), None) is not None

    def get_value(self, _name: str, user_key: object) -> Values | None:
        shard, _ = self._here()
        packed = living(self._cell().get(self._keys.packed(user_key)), shard.now_ms)
        return None if packed is None else self._shape.row(packed)

    def contains_key(self, _name: str, user_key: object) -> bool:
        shard, _ = self._here()
        return living(self._cell().get(self._keys.packed(user_key)), shard.now_ms) is not None

    def update_value(self, _name: str, user_key: object, value: object) -> None:
        key, raw = self._keys.packed(user_key), self._shape.packed(value)
        shard, record = self._here()
        expires_ms = shard.now_ms + self._ttl_ms
        self._cell().put(key, stamped(raw, expires_ms))
        _sweep_at(shard, self._prefix + record.packed, expires_ms, key)
        self._changed()

    def remove_key(self, _name: str, key: object) -> None:
        packed = self._keys.packed(key)
        if self._cell().remove(packed):
            shard, record = self._here()
            _sweep_no_more(shard, self._prefix + record.packed, packed)
            self._changed()

    def get_key_value_pair(self, _name: str, iterator_id: str) -> tuple[Values, Values, bool]:
        (key, packed), last = self._cursor.advance(iterator_id, self._living)
        return self._keys.values(key), self._shape.values(packed), last

    def get_row(self, _name: str, iterator_id: str, is_key: bool) -> tuple[Values, bool]:
        (key, packed), last = self._cursor.advance(iterator_id, self._living)
        return self._keys.values(key) if is_key else self._shape.values(packed), last

    def _living(self) -> Iterable[tuple[bytes, msgspec.Raw]]:
        shard, _ = self._here()
        found = ((key, living(raw, shard.now_ms)) for key, raw in self._cell().items())
        return ((key, packed) for key, packed in found if packed is not None)
