"""Carries what is known of watermarks from each store to the other, over links that fail.

Facts come late, twice, in another order, or not at all: the link does that to calls, and now and then what
was read before is sent once more. It stands in the place of the agent's part that does so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.port import ReadFacts, StoreFull, StoreUnreachable, TakeFacts
from penstock_simulation.protocol.layout import NODES

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

EVERY_US = 25_000
PAUSE_US_MAX = 400_000
TOLD = ("src", "mid")
"""The operators whose watermarks others wait for."""


class FactCarrier:
    """Goes each way in turn."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._links = {name: world.link("carrier", name) for name in NODES}
        self._ways = [(here, there) for here in NODES for there in NODES if here != there]
        self._sent: list[tuple[str, TakeFacts]] = []
        self._due_us = 0
        self._is_on_its_way = False

    @property
    def is_due(self) -> bool:
        return not self._is_on_its_way and self._world.time_us >= self._due_us

    def step(self) -> None:
        """One way."""
        world = self._world
        here, there = self._ways[0]
        self._ways = [*self._ways[1:], (here, there)]
        self._is_on_its_way = True
        try:
            facts = self._links[here].pipeline([ReadFacts(operator) for operator in TOLD])
            if world.watermarks is not None:
                world.watermarks.carried(fact for known in facts for fact in known)
            takes = [TakeFacts(operator, tuple(known)) for operator, known in zip(TOLD, facts, strict=True)]
            self._links[there].pipeline(takes)
            if world.is_rough and self._sent and world.rng.random() < 0.3:
                again, old = self._sent[int(world.rng.random() * len(self._sent))]
                self._links[again].call(old)
            self._sent = [*self._sent[-8:], *((there, take) for take in takes)]
        except (StoreUnreachable, StoreFull):
            """What is lost is read again."""
        finally:
            self._is_on_its_way = False
        wait_us = EVERY_US // len(self._ways)
        if world.is_rough and world.rng.random() < 0.03:
            wait_us = int(world.rng.random() * PAUSE_US_MAX)
        self._due_us = world.time_us + wait_us
