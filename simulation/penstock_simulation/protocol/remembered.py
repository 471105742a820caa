"""What a node's store keeps of the Schedules for its agent, as the agent's connection reaches it.

A restart of the store may lose what was written since the last reply that anybody saw; here it may lose all
that was written last. Neighbour: `hosted_agent` gives it to the product's `ScheduleMemory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.store.port import StoreUnreachable
from penstock.store.redis.connection import Command
from penstock_simulation.protocol.link import ActorGone, Link
from penstock_simulation.protocol.node import SimulatedNode

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World


class RememberedWire:
    """Keeps the port `Wire` of `schedule_memory` over `node.remembered`, and loses commands and replies."""

    def __init__(self, world: World, node: SimulatedNode, link: Link) -> None:
        self._world = world
        self._node = node
        self._link = link

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        self._world.pass_turn(self._link)
        if self._link.is_gone:
            raise ActorGone
        is_lost = self._world.rng.random() < self._node.rates.total
        if is_lost and self._world.rng.random() < 0.5:
            raise StoreUnreachable("command lost")
        replies = self._node.remembered.exchange(commands)
        if is_lost:
            raise StoreUnreachable("reply lost")
        return replies

    def close(self) -> None:
        """Nothing to close."""
