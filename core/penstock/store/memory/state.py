"""The twin's part about state as its owner reads it."""

from __future__ import annotations

from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import LOAD_BYTES, Answer, Load, Scan, StateSnapshot


class MemoryState(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={}, reads={Load: self._load, Scan: self._scan, StateSnapshot: self._state_snapshot}
        )

    def _load(self, call: Load) -> list[bytes | None] | Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        collection = record.state.get(call.collection, {})
        found: list[bytes | None] = []
        size_bytes = 0
        for name in call.fields:
            value = collection.get(name)
            found.append(value)
            size_bytes += len(value or b"")
            if size_bytes >= LOAD_BYTES:
                break
        return found

    def _scan(self, call: Scan) -> tuple[str, list[tuple[bytes, bytes]]] | Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        items = sorted(record.state.get(call.collection, {}).items())
        start = end = int(call.cursor)
        size_bytes = 0
        while end < min(len(items), start + call.count) and size_bytes < LOAD_BYTES:
            size_bytes += len(items[end][1])
            end += 1
        return str(end) if end < len(items) else "0", items[start:end]

    def _state_snapshot(self, call: StateSnapshot) -> dict[tuple[bytes, bytes], bytes]:
        record = self._data.shards.get(call.shard)
        if record is None:
            return {}
        return {
            (name, field): value
            for name, collection in record.state.items()
            for field, value in collection.items()
        }
