"""A connection to a store that passes on what it is asked; what else it does is its subclasses' affair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.store.port import NodeStore, Request


class PassingOn(NodeStore):
    """Keeps the port `NodeStore` over another one that does."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store

    def call(self, call: Request[Any]) -> Any:
        return self._store.call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        return self._store.post(calls)

    def close(self) -> None:
        self._store.close()
