"""The bell of a store's outboxes as an agent's connection hears it: once, when somebody is there to hear it.

Redis tells who listens when the ring happens, and nobody later; the twin has no bell and says whether
anything waits. Neighbours: `node` rings, `hosted_agent` listens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from penstock.store.port import NodeStore, Request, StoreUnreachable, WaitOutgoing
from penstock_simulation.protocol.node import SimulatedNode

A = TypeVar("A")


class Bell(NodeStore):
    """A connection to `node`'s store that waits for the bell by itself; all other calls go on to `store`."""

    def __init__(self, node: SimulatedNode, store: NodeStore) -> None:
        self._node = node
        self._store = store
        self._heard: tuple[int, int] | None = None
        """The node's starts and rings when it listened last; None while it does not."""

    @property
    def rings(self) -> bool:
        """Whether who waits would be woken."""
        return self._heard != (self._node.starts, self._node.rings)

    def call(self, call: Request[A]) -> A:
        if not isinstance(call, WaitOutgoing):
            try:
                return self._store.call(call)
            except StoreUnreachable:
                self._heard = None
                raise
        now = (self._node.starts, self._node.rings)
        if self._heard is None or self._heard[0] != self._node.starts:
            self._heard = None
            # listens before it looks
            is_some = self._store.call(call)
            self._heard = now
            return cast("A", is_some)
        rings, self._heard = self._heard != now, now
        return cast("A", rings)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        return self._store.post(calls)

    def close(self) -> None:
        self._store.close()
