"""Where this node's store and the others are, and connections to them.

Other stores' addresses are in the Schedules; one that was told once is kept until another one is. Neighbours:
`store_turns` tells what is news, movers, deliveries and `store_side` open connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.store.port import NodeStore
from penstock_operator.agent.store_side import unknown_address

Connect = Callable[[str, str], NodeStore]
"""(URL, topology uid) -> a new connection."""


class Peers:
    """Any thread may use it. `url_at` makes a URL of an address (host:port)."""

    def __init__(self, store_id: str, own_url: str, url_at: Callable[[str], str], connect: Connect) -> None:
        self.own_url = own_url
        self.connect = connect
        self._store_id = store_id
        self._url_at = url_at
        self._addresses: dict[str, str] = {}

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Store id -> address, as Schedules tell them."""
        self._addresses.update(addresses)

    def url_of(self, store_id: str) -> str | None:
        """None while nobody knows."""
        if store_id == self._store_id:
            return self.own_url
        address = self._addresses.get(store_id)
        return self._url_at(address) if address else None

    def open(self, store_id: str, topology_uid: str) -> NodeStore:
        """A new connection. Raises StoreUnreachable when nobody knows the store's address."""
        url = self.url_of(store_id)
        if url is None:
            raise unknown_address(store_id)
        return self.connect(url, topology_uid)
