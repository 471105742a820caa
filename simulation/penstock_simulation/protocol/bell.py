"""A simulated connection that listens to the bell of a store's outboxes (`port.deliveries.WaitOutgoing`).

It rings when an entry begins to wait for a target of another store that nothing waited for; whoever connects
looks once. Waiting takes no time here: the host gives a turn when there is something to hear. Neighbours:
`node` rings, `hosted_agent` listens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.store.port import NodeStore, Request, StoreUnreachable, WaitOutgoing
from penstock_simulation.protocol.link import ActorGone, Link


class BellConnection(NodeStore):
    """Other calls go over `link`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._starts = link.node.starts
        self._heard: int | None = None

    @property
    def rings(self) -> bool:
        """Whether who waits would be told of something: of the bell, or that the connection broke."""
        return self._starts != self._link.node.starts or self._heard != self._link.node.rung

    def call(self, call: Request[Any]) -> Any:
        if not isinstance(call, WaitOutgoing):
            return self._link.call(call)
        if self._link.is_gone:
            raise ActorGone
        node = self._link.node
        if self._starts != node.starts:
            self._starts, self._heard = node.starts, None
            raise StoreUnreachable("connection broken")
        rang = self._heard != node.rung
        self._heard = node.rung
        return rang

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self._link.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        return self._link.post(calls)

    def close(self) -> None:
        """Nothing to close."""
