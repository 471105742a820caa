"""The bell of a store's outboxes as an agent's connection hears it: once, when somebody is there to hear it.

Redis tells who listens when the ring happens, and nobody later; the twin has no bell and says whether
anything waits. Neighbours: `node` rings, `hosted_agent` listens.
"""

from __future__ import annotations

from typing import Any

from penstock.store.port import NodeStore, Request, StoreUnreachable, WaitOutgoing
from penstock_simulation.protocol.node import SimulatedNode
from penstock_simulation.twins.passing_on import PassingOn


class Bell(PassingOn):
    """A connection to `node`'s store that waits for the bell by itself; all other calls go on to `store`."""

    def __init__(self, node: SimulatedNode, store: NodeStore) -> None:
        super().__init__(store)
        self._node = node
        self._heard: tuple[int, int] | None = None
        """The node's starts and rings when it listened last; None while it does not."""

    @property
    def rings(self) -> bool:
        """Whether who waits would be woken."""
        return self._heard != (self._node.starts, self._node.rings)

    def call(self, call: Request[Any]) -> Any:
        if not isinstance(call, WaitOutgoing):
            try:
                return super().call(call)
            except StoreUnreachable:
                self._heard = None
                raise
        now = (self._node.starts, self._node.rings)
        if self._heard is None or self._heard[0] != self._node.starts:
            self._heard = None
            # listens before it looks
            is_some = super().call(call)
            self._heard = now
            return is_some
        rings, self._heard = self._heard != now, now
        return rings
