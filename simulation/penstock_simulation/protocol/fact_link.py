"""A courier's connection: what it carried of watermarks before comes once more now and then, late and in
another order.

Calls that are lost, late or done twice are the link's below. What is read is held against the promises:
whoever was told of a fact may tell others. Neighbour: `hosted_agent` gives it to the product's couriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.store.port import NodeStore, ReadFacts, Request, TakeFacts
from penstock_operator.agent.peers import Peers
from penstock_simulation.twins.passing_on import PassingOn

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

_AGAIN = 0.15
"""So often, 0..1, an old one goes along."""
_KEPT = 8


class FactLink(PassingOn):
    """To one store, over `store`."""

    def __init__(self, world: World, store: NodeStore) -> None:
        super().__init__(store)
        self._world = world
        self._sent: list[TakeFacts] = []

    def call(self, call: Request[Any]) -> Any:
        world = self._world
        if isinstance(call, TakeFacts):
            if world.is_rough and self._sent and world.rng.random() < _AGAIN:
                super().call(self._sent[int(world.rng.random() * len(self._sent))])
            self._sent = [*self._sent[1 - _KEPT :], call]
        answer = super().call(call)
        if isinstance(call, ReadFacts) and world.watermarks is not None:
            world.watermarks.carried(answer)
        return answer


class FactPeers(Peers):
    """Where `peers` are, over connections that `connect` makes."""

    def __init__(self, peers: Peers, connect: Callable[[str], NodeStore]) -> None:
        super().__init__("", peers.own_url, str, peers.connect)
        self._peers = peers
        self._connect_to = connect

    def url_of(self, store_id: str) -> str | None:
        return self._peers.url_of(store_id)

    def open(self, store_id: str, topology_uid: str) -> NodeStore:
        return self._connect_to(store_id)
