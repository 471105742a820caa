"""Real node stores for tests: private redis-servers, started when first asked for, emptied between tests."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from penstock.store.keys import Keys
from penstock.store.port import Bounds
from penstock.store.redis.connection import Wire
from penstock.store.redis.store import RedisStore
from penstock_operator.local.store.private_store import PrivateStore
from scenes.store_scenario import SMALL

_RECORD = struct.Struct("<21d")
_STATUS = 13


@contextmanager
def private_store(folder: Path, durability: str = "Process") -> Iterator[PrivateStore]:
    """A started private store; ended afterwards."""
    store = PrivateStore(folder, durability)
    store.start()
    try:
        yield store
    finally:
        store.stop()


class RedisBackend:
    """Nodes by name, each a redis-server of its own (the contract suite's `Backend`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[str, PrivateStore] = {}
        self._used: set[str] = set()
        self._full: set[str] = set()
        self._clients: list[RedisStore] = []

    def open_store(self, node: str = "n1", topology: str = "t1", bounds: Bounds = SMALL) -> RedisStore:
        """A new client of a node; one not used since `empty` holds nothing and was never opened."""
        if node not in self._nodes:
            self._nodes[node] = PrivateStore(self._folder / node, "Process")
            self._nodes[node].start()
        if node not in self._used:
            self.admin(node).flushall()
            self._used.add(node)
        client = RedisStore(self._nodes[node].url, topology, bounds)
        self._clients.append(client)
        return client

    def open_wire(self, node: str = "n1") -> Wire:
        """A plain connection to a node that was opened before."""
        return Wire(self._nodes[node].url, 5.0)

    def set_status(self, shard: str, status: str, node: str = "n1", topology: str = "t1") -> None:
        """Write "", "frozen" or "moved:STORE" into a record, which is a part of what a move does."""
        key = Keys(topology).shard(shard)
        admin = self.admin(node)
        record = list(_RECORD.unpack(admin.hget(key, "h")))
        record[_STATUS] = {"": 0, "frozen": 1}.get(status, 2)
        admin.hset(key, mapping={"h": _RECORD.pack(*record), "m": status.removeprefix("moved:")})

    def set_full(self, node: str = "n1", *, full: bool = True) -> None:
        """Bring a node that was opened to its memory limit, or give it room again."""
        self.admin(node).config_set("maxmemory", 1 if full else 0)
        self._full.add(node)

    def admin(self, node: str = "n1") -> redis.Redis:
        """A plain client of a node that was opened before."""
        return redis.Redis.from_url(self._nodes[node].url)

    def restart(self, node: str, store_id: str) -> None:
        """A new run of a node's server, with what it held, which opens the store."""
        self._nodes[node].stop()
        self._nodes[node] = PrivateStore(self._folder / node, "Process", store_id=store_id)
        self._nodes[node].start()

    def empty(self) -> None:
        """Forget everything: the next test begins with nodes that hold nothing."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._used.clear()
        for node in tuple(self._full):
            self.set_full(node, full=False)
        self._full.clear()

    def stop(self) -> None:
        self.empty()
        for node in self._nodes.values():
            node.stop()
        self._nodes.clear()
