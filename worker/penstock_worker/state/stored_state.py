"""A shard's state as it lies in the store, for people: read by what it was declared as, without the code.

Nothing is written. Neighbours: `declared` has the note, `cache` and `cells` read by it, `answering` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Claimed, Load, Scan
from penstock.store.shard_homes import ShardFound
from penstock_worker.state import declared, encoding
from penstock_worker.state.cache import SCAN_FIELDS, LoadState, StateCache, Variable
from penstock_worker.state.cells import ListCell, MapCell
from penstock_worker.state.stamps import living

_DECODE = msgspec.msgpack.Decoder().decode
_NOTE = msgspec.msgpack.Decoder(dict[str, declared.Noted])


class StoredState:
    """One shard's, by the owner that it was found with. `now_ms` is by the steady clock. Calls raise
    OwnershipLost and StoreUnreachable."""

    def __init__(self, found: ShardFound, key_types: Sequence[str], now_ms: int) -> None:
        self._shard = found.shard
        self._seen = seen = found.counters
        load: LoadState = found.store.call
        self._load = load
        self._now_ms = now_ms
        answer: Any = load(Load(self._shard, seen.generation, seen.epoch, b"", (declared.FIELD,)))
        if not isinstance(answer, list):
            raise OwnershipLost(self._shard, answer)
        notes = {} if answer[0] is None else _NOTE.decode(answer[0])
        self._variables = [
            Variable(name, note.kind, encoding.field_prefix(note.kind, name), note.schemas)
            for name, note in notes.items()
        ]
        claimed = Claimed(seen.epoch, seen.generation, 0, 0, b"", 0, {}, finished=False)
        cache = StateCache(self._variables, key_types, load)
        self._state = cache.shard(OwnedShard(self._shard, claimed))

    def of(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """What the variables of a key hold, those that hold something (`kept_questions.KeysState`)."""
        load = self._state.missing([key])
        if load is None:
            return {}
        self._state.loaded(load, self._load(load))
        record = self._state.begin(key)
        found = {
            variable.name: self._shown(variable, self._state.load_value(record, slot))
            for slot, variable in enumerate(self._variables)
        }
        return {name: value for name, value in found.items() if value is not None}

    def all_keys(self) -> Iterator[list[Any]]:
        """The keys that have state, each once."""
        told: set[bytes] = set()
        prefixes = [variable.prefix for variable in self._variables]
        for field in self._fields():
            prefix = next((one for one in prefixes if field.startswith(one)), None)
            if prefix is None or encoding.is_part(field) or field[len(prefix) :] in told:
                continue
            told.add(field[len(prefix) :])
            yield _DECODE(field[len(prefix) :])

    def _fields(self) -> Iterator[bytes]:
        seen, cursor = self._seen, "0"
        while True:
            call = Scan(self._shard, seen.generation, seen.epoch, b"", cursor, SCAN_FIELDS)
            answer: Any = self._load(call)
            if not isinstance(answer, tuple):
                raise OwnershipLost(self._shard, answer)
            cursor, fields = answer
            yield from (field for field, _ in fields)
            if cursor == "0":
                return

    def _shown(self, variable: Variable, held: Any) -> Any:
        if isinstance(held, ListCell):
            return self._objects(variable, -1, held.items()) or None
        if isinstance(held, MapCell):
            entries = [(key, self._living(variable, raw)) for key, raw in held.items()]
            kept = [(key, raw) for key, raw in entries if raw is not None]
            keys = _objects(variable.schemas[0], (key for key, _ in kept))
            values = _objects(variable.schemas[1], (raw for _, raw in kept))
            return [list(pair) for pair in zip(keys, values, strict=True)] or None
        return next(iter(self._objects(variable, -1, [] if held is None else [held])), None)

    def _objects(self, variable: Variable, schema: int, raws: Iterable[Any]) -> list[Any]:
        living_raws = [raw for one in raws if (raw := self._living(variable, one)) is not None]
        return _objects(variable.schemas[schema], living_raws)

    def _living(self, variable: Variable, raw: Any) -> Any:
        return living(raw, self._now_ms) if variable.kind in encoding.EXPIRING else raw


def _objects(schema: str, raws: Iterable[Any]) -> list[Any]:
    """Packed rows as objects by the names of their columns."""
    lines = JsonRows(parse_schema(schema)).lines([_DECODE(raw) for raw in raws])
    return [msgspec.json.decode(line) for line in lines.splitlines()]
