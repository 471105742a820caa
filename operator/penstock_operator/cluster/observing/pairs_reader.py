"""Reads what the stores have of routing tables: the pairs of keys that tasks counted, and the tables of
earlier times.

Asked now and then, about topologies that go by tables, so each question has a connection of its own. Nothing
is written: the operator's Redis user cannot. Neighbours: tasks write the rows, `cluster.locality` asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from penstock.dataflow.routing_table import RoutingTable, decode_table
from penstock.errors import PenstockError
from penstock.store.port import NodeStore, ReadPairs, ReadTable, TableVersions, UnreadableState
from penstock_operator.cluster.observing.asked_store import asked_within
from penstock_operator.cluster.observing.store_reader import OpenStoreClient

_LOG = logging.getLogger(__name__)

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class PairsReader:
    """Belongs to one event loop. `threads` also run decisions on tables, which compute for a second or
    two."""

    open_client: OpenStoreClient
    threads: Executor
    wait_s: float = 3.0

    async def rows(
        self, topology_uid: str, addresses: Mapping[str, str]
    ) -> dict[str, Mapping[str, bytes] | None]:
        """Store id -> the rows of counted pairs that it has; None for one that gives no answer."""
        asked = (self._asked(topology_uid, address, _rows) for address in addresses.values())
        return dict(zip(addresses, await asyncio.gather(*asked), strict=True))

    async def tables(
        self, topology_uid: str, addresses: Mapping[str, str], operators: Sequence[str]
    ) -> dict[str, Mapping[str, RoutingTable] | None]:
        """Store id -> operator -> the newest table that it has."""
        ask = partial(_tables, operators=operators)
        asked = (self._asked(topology_uid, address, ask) for address in addresses.values())
        return dict(zip(addresses, await asyncio.gather(*asked), strict=True))

    async def _asked(self, uid: str, address: str, ask: Callable[[NodeStore], A]) -> A | None:
        try:
            return await asked_within(
                self.wait_s, self.threads, partial(_ask, self.open_client, uid, address, ask)
            )
        except (PenstockError, TimeoutError) as error:
            told = error or "it takes too long"
            _LOG.debug("store %s does not say what it has of tables: %s", address, told)
            return None


def _ask(open_client: OpenStoreClient, uid: str, address: str, ask: Callable[[NodeStore], A]) -> A:
    store = open_client(address, uid)
    try:
        return ask(store)
    finally:
        store.close()


def _rows(store: NodeStore) -> Mapping[str, bytes]:
    return store.call(ReadPairs())


def _tables(store: NodeStore, operators: Sequence[str]) -> Mapping[str, RoutingTable]:
    versions = store.pipeline([TableVersions(name) for name in operators])
    newest = {name: max(there) for name, there in zip(operators, versions, strict=True) if there}
    found = {}
    for name, content in zip(
        newest, store.pipeline([ReadTable(one, at) for one, at in newest.items()]), strict=True
    ):
        try:
            found[name] = decode_table(content or b"")
        except msgspec.DecodeError as error:
            raise UnreadableState(f"a routing table of {name} cannot be read: {error}") from error
    return found
