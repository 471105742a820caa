"""The two adapters of the store's port, as the contract suite gets at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, NodeStore, Request, ShardStatus, StoreUnreachable
from scenes.store_scenario import SMALL


class Backend(Protocol):
    """Stores of one kind. Nodes are named; a name not seen before is an empty node."""

    def open_store(self, node: str = "n1", topology: str = "t1", bounds: Bounds = SMALL) -> NodeStore:
        """A new client of a node."""

    def set_status(self, shard: str, status: str, node: str = "n1", topology: str = "t1") -> None:
        """Write "", "frozen" or "moved:STORE" into a record, which is a part of what a move does."""

    def set_full(self, node: str = "n1", *, full: bool = True) -> None:
        """Bring a node that was opened to its memory limit, or give it room again."""


class MemoryBackend:
    """The twin."""

    def __init__(self) -> None:
        self._nodes: dict[str, MemoryNode] = {}

    def open_store(self, node: str = "n1", topology: str = "t1", bounds: Bounds = SMALL) -> NodeStore:
        if node not in self._nodes:
            self._nodes[node] = MemoryNode()
        return MemoryStore(self._nodes[node], topology, bounds)

    def set_status(self, shard: str, status: str, node: str = "n1", topology: str = "t1") -> None:
        record = self._nodes[node].topology(topology).shards[shard]
        word, _, record.home = status.partition(":")
        record.status = ShardStatus(word or "active")

    def set_full(self, node: str = "n1", *, full: bool = True) -> None:
        self._nodes[node].memory_bytes_max = 0 if full else None


class _CallByCall:
    """A store whose calls all come by `call`, however many are sent together."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store

    def call(self, call: Request[Any]) -> Any:
        return self._store.call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return [self.call(call) for call in calls]

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        self._store.close()


class StoreMeanwhile(_CallByCall):
    """A store before whose calls of one kind somebody else does something."""

    def __init__(self, store: NodeStore, kind: type, do: Callable[[], object]) -> None:
        super().__init__(store)
        self._kind = kind
        self._do = do

    def call(self, call: Request[Any]) -> Any:
        if isinstance(call, self._kind):
            self._do()
        return self._store.call(call)


class LossyStore(_CallByCall):
    """A store whose call number `fails_at` (from 0) is lost: on its way there, or its reply."""

    def __init__(self, store: NodeStore, fails_at: int, *, reply_lost: bool) -> None:
        super().__init__(store)
        self._fails_at = fails_at
        self._reply_lost = reply_lost
        self.calls = 0

    def call(self, call: Request[Any]) -> Any:
        number = self.calls
        self.calls += 1
        if number != self._fails_at:
            return self._store.call(call)
        if self._reply_lost:
            self._store.call(call)
        raise StoreUnreachable
