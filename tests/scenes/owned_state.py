"""One shard of a memory store with a task's cache over it, for tests of state without a task.

`OwnedState` plays the owner: a test declares variables, works on keys, commits, and may let another owner
take over, which starts with an empty cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from backends.store_backends import MemoryBackend
from penstock.dataflow.plan import NO_TIME
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Load, Request, StateSnapshot, StateWrite
from penstock_worker.state import declared
from penstock_worker.state.cache import CACHE_BYTES_MAX, Key, ShardState, StateCache
from penstock_worker.state.handle import TaskHandle
from scenes.store_scenario import Scene

SHARD = "mid/0"


class OwnedState:
    """`calls` are the loads and scans so far. `variables` is what `declare` made of the handle."""

    def __init__(
        self,
        declare: Callable[[TaskHandle], Any],
        key_types: Sequence[str] = ("string",),
        *,
        bounds: Bounds | None = None,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        after: OwnedState | None = None,
        time_mode: str = NO_TIME,
    ) -> None:
        """`after`: takes that one's shard over, with other code."""
        self.bounds = bounds or Bounds()
        if after is None:
            self.scene = Scene(MemoryBackend().open_store(bounds=self.bounds)).set_up(SHARD)
        else:
            self.scene = after.scene
            self.scene.claim(SHARD)
        self.calls: list[Request[Any]] = []
        self._handle = TaskHandle(time_mode)
        self.cursor = self._handle.cursor
        self.variables = declare(self._handle)
        self._handle.seal()
        self.cache = StateCache(
            self._handle.variables,
            key_types,
            self._load,
            cache_bytes_max,
            self._handle.deleted,
        )
        self.state: ShardState = self.cache.shard(OwnedShard(SHARD, self.scene.claims[SHARD]))

    def _load(self, call: Request[Any]) -> object:
        self.calls.append(call)
        return self.scene.store.call(call)

    def prefetch(self, *keys: Key) -> Load | None:
        """Begin a batch on `keys`, as the task loop does; what it loaded but for the note of what is
        declared."""
        load = self.state.missing(keys)
        if load is None:
            return None
        self.state.loaded(load, self.scene.store.call(load))
        values = replace(load, fields=tuple(field for field in load.fields if field != declared.FIELD))
        self.calls.append(values)
        return values

    @contextmanager
    def at(self, *key: Any) -> Iterator[Any]:
        """User code's turn on one key; gives the variables."""
        self.cursor.at(self.state, self.state.begin(key))
        try:
            yield self.variables
        finally:
            self.cursor.leave()

    def commit(self) -> tuple[StateWrite, ...]:
        """Commit what changed; the writes, but for the note of what is declared."""
        writes = self.state.take_writes()
        self.scene.commit(SHARD, state=writes)
        self.state.committed()
        return tuple(write for write in writes if write.field != declared.FIELD)

    def new_owner(self) -> None:
        """The shard is claimed again: what is not in the store is gone."""
        self.state = self.cache.shard(OwnedShard(SHARD, self.scene.claim(SHARD)))

    def lose(self) -> None:
        """Somebody else claims the shard; this owner does not know yet."""
        self.scene.claim(SHARD)

    def stored(self) -> dict[tuple[bytes, bytes], bytes]:
        """All that the store holds of the shard's state, but for the note of what is declared."""
        return {place: raw for place, raw in self._snapshot().items() if place != (b"", declared.FIELD)}

    def noted(self) -> bytes | None:
        """The note of what is declared."""
        return self._snapshot().get((b"", declared.FIELD))

    def _snapshot(self) -> dict[tuple[bytes, bytes], bytes]:
        return self.scene.store.call(StateSnapshot(SHARD))
