"""Connections to stores that one thread of an agent uses: kept for a while behind their last use.

A topology's next move begins at once where the one before has left them open. Neighbours: `store_side` and
`moving` have one each.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.store.port import NodeStore

OpenStore = Callable[[str, str], NodeStore]
"""(store id, topology uid) -> a connection; StoreUnreachable when nobody knows its address."""

KEPT_S = 60.0
"""How long a connection is kept without a use."""


class KeptStores:
    """By store id and topology uid; each is opened at its first use. Clock times are in seconds, of a clock
    that never goes back. Belongs to one thread."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._stores: dict[tuple[str, str], NodeStore] = {}
        self._used_at_s: dict[tuple[str, str], float] = {}

    def store(self, store_id: str, topology_uid: str, now_s: float) -> NodeStore:
        """Raises StoreUnreachable."""
        key = (store_id, topology_uid)
        if key not in self._stores:
            self._stores[key] = self._open_store(*key)
        self._used_at_s[key] = now_s
        return self._stores[key]

    def close_unused(self, now_s: float, but: str = "") -> None:
        """Close those that have not been used for `KEPT_S`, but those to the store `but`."""
        self.close_where(lambda store_id, uid: store_id != but and self._rest_s(store_id, uid, now_s) <= 0)

    def close_where(self, is_needless: Callable[[str, str], bool]) -> None:
        """Close those of which this says so, asked by store id and topology uid."""
        for key in [key for key in self._stores if is_needless(*key)]:
            del self._used_at_s[key]
            self._stores.pop(key).close()

    def closes_in_s(self, now_s: float) -> float | None:
        """How long until one is to be closed if nobody uses it; None without any."""
        return min((self._rest_s(*key, now_s) for key in self._stores), default=None)

    def close(self) -> None:
        """Close all."""
        self.close_where(lambda *_: True)

    def _rest_s(self, store_id: str, topology_uid: str, now_s: float) -> float:
        return self._used_at_s[store_id, topology_uid] + KEPT_S - now_s
