"""What stands behind PySpark's state variables and timers in a task: clients like Spark's own.

PySpark's state classes call `client.method(name of the variable, ...)`; Spark's own clients ask the JVM
over a socket, these work on the record of the grouping key at hand (`Cursor`). The meaning of each
call is Spark 4.3's; where Spark would write null for a value of another type, these refuse it (`shapes`).
Neighbours: `handle` makes them, `cache` and `cells` hold what they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import index
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

import msgspec

from penstock_worker.state.cache import Record, ShardState
from penstock_worker.state.cells import ListCell, MapCell
from penstock_worker.state.encoding import pack
from penstock_worker.state.shapes import StateMisuse, StateShape, Values
from penstock_worker.state.timers import TimerCell, timer_name
from penstock_worker.values.wire_values import shown

_END = object()
_LONG = 1 << 63

CellT = TypeVar("CellT", ListCell, MapCell, TimerCell)


class Cursor:
    """The shard and the grouping key that state calls go to; set before user code is called."""

    __slots__ = ("doing", "iterators", "record", "shard")

    def __init__(self) -> None:
        self.doing = "init"
        """What is called on the processor where that is no work on a key."""
        self.shard: ShardState | None = None
        self.record: Record | None = None
        self.iterators: dict[str, tuple[Any, Iterator[Any]]] = {}
        """Open iterators over lists and maps, with the entry that comes next; gone with the key."""

    def at(self, shard: ShardState, record: Record) -> None:
        self.shard = shard
        self.record = record

    def leave(self) -> None:
        self.shard = None
        self.record = None
        if self.iterators:
            self.iterators.clear()

    def advance(self, iterator_id: str, start: Callable[[], Iterable[Any]]) -> tuple[Any, bool]:
        """The next entry of an iterator, which begins with its first call, and whether it is the last.

        Raises StopIteration when there is none at all.
        """
        known = self.iterators.get(iterator_id)
        if known is None:
            entries = iter(start())
            entry = next(entries)
        else:
            entry, entries = known
        following = next(entries, _END)
        if following is _END:
            self.iterators.pop(iterator_id, None)
            return entry, True
        self.iterators[iterator_id] = following, entries
        return entry, False


class StateClient:
    """One state variable: its place in every record and its bit among those that changed."""

    _WORDS: ClassVar[Mapping[str, str]] = {}
    """What Spark says a call was doing when it failed, by PySpark's name of the call."""

    def __init__(self, cursor: Cursor, slot: int, name: str) -> None:
        self._cursor = cursor
        self._slot = slot
        self._bit = 1 << slot
        self._what = f"state {name!r}"
        self._name = name

    def forbid(self) -> None:
        """The variable is deleted: each call is an error from now on, which begins as Spark's does."""
        for call, doing in self._WORDS.items():
            setattr(self, call, partial(self._refuse, doing))

    def _refuse(self, doing: str, *_: object) -> NoReturn:
        raise StateMisuse(
            f"Error {doing}: {self._what} was deleted in init(); take deleteIfExists({self._name!r}) out"
        )

    def _here(self) -> tuple[ShardState, Record]:
        shard, record = self._cursor.shard, self._cursor.record
        if shard is None or record is None:
            used = f" and is used in {self._cursor.doing}" if self._cursor.doing else ""
            raise StateMisuse(
                f"{self._what} belongs to a key{used}; it can be used only while handleInputRows runs"
            )
        return shard, record


class ValueClient(StateClient):
    """As pyspark's ValueStateClient."""

    _WORDS = {  # noqa: RUF012 - declared above
        "exists": "checking value state exists",
        "get": "getting value state",
        "update": "updating value state",
        "clear": "clearing value state",
    }

    def __init__(self, cursor: Cursor, slot: int, name: str, shape: StateShape) -> None:
        super().__init__(cursor, slot, name)
        self._pack = shape.packed
        self._values = shape.values

    def exists(self, _name: str) -> bool:
        return self._raw() is not None

    def get(self, _name: str) -> Values | None:
        record = self._cursor.record
        raw = record.values[self._slot] if record is not None else None
        if type(raw) is not bytes:
            raw = self._raw()
            if raw is None:
                return None
        return self._values(raw)

    def update(self, _name: str, value: object) -> None:
        self._set(self._pack(value))

    def clear(self, _name: str) -> None:
        self._set(None)

    def _set(self, raw: bytes | None) -> None:
        cursor = self._cursor
        shard, record = cursor.shard, cursor.record
        if shard is None or record is None:
            shard, record = self._here()
        if not record.bytes:
            # Whether the value that is there lies in parts is known only once it was looked at.
            shard.load_value(record, self._slot)
        record.values[self._slot] = raw
        if not record.dirty & self._bit:
            shard.changed(record, self._bit)

    def _raw(self) -> bytes | None:
        shard, record = self._here()
        raw: bytes | None = record.values[self._slot]
        if raw is not None and type(raw) is not bytes:
            raw = shard.load_value(record, self._slot)
        return raw


_PACKED = msgspec.msgpack.Decoder(tuple[bytes])


class PackedClient(ValueClient):
    """A value of one column, bytes, for who asks without PySpark's ValueState and its checks."""

    def get(self, _name: str = "") -> bytes | None:  # type: ignore[override]  # the one column itself
        record = self._cursor.record
        raw = record.values[self._slot] if record is not None else None
        if type(raw) is not bytes:
            raw = self._raw()
            if raw is None:
                return None
        return _PACKED.decode(raw)[0]

    def put(self, packed: bytes | None) -> None:
        self._set(None if packed is None else pack((packed,)))


class _CellClient(StateClient, Generic[CellT]):
    """One whose place in a record holds a cell, once it is loaded."""

    _kind: type[CellT]

    def _cell(self) -> CellT:
        shard, record = self._here()
        cell = record.values[self._slot]
        if type(cell) is not self._kind:
            cell = shard.load_value(record, self._slot)
        found: CellT = cell
        return found

    def _changed(self) -> None:
        shard, record = self._here()
        shard.changed(record, self._bit)


class ListClient(_CellClient[ListCell]):
    """As pyspark's ListStateClient."""

    _kind = ListCell
    _WORDS = {  # noqa: RUF012 - declared above
        "exists": "checking value state exists",
        "get": "getting list state",
        "append_value": "updating value state",
        "append_list": "updating value state",
        "put": "updating value state",
        "clear": "clearing value state",
    }

    def __init__(self, cursor: Cursor, slot: int, name: str, shape: StateShape) -> None:
        super().__init__(cursor, slot, name)
        self._shape = shape

    def exists(self, _name: str) -> bool:
        return self._cell().exists()

    def get(self, _name: str, iterator_id: str) -> tuple[Values, bool]:
        raw, last = self._cursor.advance(iterator_id, lambda: self._cell().items())
        return self._shape.values(raw), last

    def append_value(self, _name: str, value: object) -> None:
        row = self._shape.packed(value)
        self._cell().append([row])
        self._changed()

    def append_list(self, _name: str, values: Iterable[object]) -> None:
        rows = self._rows(values)
        self._cell().append(rows)
        self._changed()

    def put(self, _name: str, values: Iterable[object]) -> None:
        rows = self._rows(values)
        self._cell().replace(rows)
        self._changed()

    def clear(self, _name: str) -> None:
        self._cell().replace([])
        self._changed()

    def _rows(self, values: Iterable[object]) -> list[bytes]:
        rows = [self._shape.packed(value) for value in values]
        if not rows:
            raise StateMisuse(
                f"state {self._name!r}: an empty list cannot be written, as in Spark; use clear()"
            )
        return rows


class MapClient(_CellClient[MapCell]):
    """As pyspark's MapStateClient."""

    _kind = MapCell
    _WORDS = {  # noqa: RUF012 - declared above
        "exists": "checking map state exists",
        "get_value": "getting value",
        "contains_key": "checking if map state contains key",
        "update_value": "updating map state value",
        "get_key_value_pair": "getting map state",
        "get_row": "getting map state",
        "remove_key": "removing key from map state",
        "clear": "clearing map state",
    }

    def __init__(self, cursor: Cursor, slot: int, name: str, keys: StateShape, values: StateShape) -> None:
        super().__init__(cursor, slot, name)
        self._keys = keys
        self._shape = values

    def exists(self, _name: str) -> bool:
        return self._cell().exists()

    def get_value(self, _name: str, user_key: object) -> Values | None:
        raw = self._cell().get(self._keys.packed(user_key))
        return None if raw is None else self._shape.row(raw)

    def contains_key(self, _name: str, user_key: object) -> bool:
        return self._cell().get(self._keys.packed(user_key)) is not None

    def update_value(self, _name: str, user_key: object, value: object) -> None:
        key, raw = self._keys.packed(user_key), self._shape.packed(value)
        self._cell().put(key, raw)
        self._changed()

    def remove_key(self, _name: str, key: object) -> None:
        if self._cell().remove(self._keys.packed(key)):
            self._changed()

    def clear(self, _name: str) -> None:
        self._cell().clear()
        self._changed()

    def get_key_value_pair(self, _name: str, iterator_id: str) -> tuple[Values, Values, bool]:
        (key, raw), last = self._cursor.advance(iterator_id, lambda: self._cell().items())
        return self._keys.values(key), self._shape.values(raw), last

    def get_row(self, _name: str, iterator_id: str, is_key: bool) -> tuple[Values, bool]:
        (key, raw), last = self._cursor.advance(iterator_id, lambda: self._cell().items())
        return self._keys.values(key) if is_key else self._shape.values(raw), last


class TimerClient(_CellClient[TimerCell]):
    """As pyspark's StatefulProcessorApiClient where it is about timers."""

    _kind = TimerCell

    def __init__(self, cursor: Cursor, slot: int) -> None:
        super().__init__(cursor, slot, "")
        self._what = "a timer"

    def register(self, expiry_ms: object) -> None:
        """A timer that is there is left as it is, as by Spark."""
        expiry = _milliseconds(expiry_ms)
        shard, record = self._here()
        cell = self._cell()
        if cell.add(expiry):
            # One in the past is due from now on: it comes behind those that have waited for longer.
            shard.set_timer(timer_name(cell.field, expiry), max(expiry + shard.ahead_ms, shard.now_ms))
            shard.changed(record, self._bit)

    def delete(self, expiry_ms: object) -> None:
        """One that is not there is deleted without a word, as by Spark."""
        expiry = _milliseconds(expiry_ms)
        shard, record = self._here()
        cell = self._cell()
        if cell.remove(expiry):
            shard.set_timer(timer_name(cell.field, expiry), None)
            shard.changed(record, self._bit)

    def listed(self) -> list[int]:
        """The expiries of the key's timers, in order."""
        return self._cell().expiries()

    def fires(self, expiry_ms: int) -> bool:
        """Whether a timer of the key that the store handed out is to fire."""
        return self._cell().fires(expiry_ms)


def _milliseconds(expiry_ms: object) -> int:
    try:
        found = index(expiry_ms)  # type: ignore[arg-type]  # it is asked whether it is one
    except TypeError:
        raise StateMisuse(
            f"a timer's expiryTimestampMs is a whole number of milliseconds, got {shown(expiry_ms)}"
        ) from None
    if not -_LONG <= found < _LONG:
        raise StateMisuse(f"a timer's expiryTimestampMs is a long, got {found}")
    return found
