"""A node's agent in the simulation: brings records and schedules from the operator into its store."""

from __future__ import annotations

from penstock.store.port import Answer, Create, Publish, StoreUnreachable
from penstock_simulation.protocol.layout import HOMES
from penstock_simulation.protocol.link import Link
from penstock_simulation.protocol.node import SimulatedNode
from penstock_simulation.protocol.workload import SHARDS


class Agent:
    """Puts them there in one round trip, and again after each start of the store."""

    def __init__(self, node: SimulatedNode, link: Link) -> None:
        self.node = node
        self.is_in_step = False
        self._link = link
        self._starts = -1
        self._published: dict[str, int] = {}

    def behind(self, schedules: dict[str, Publish]) -> bool:
        """Whether the store may lack something that it should hold."""
        return self._starts != self.node.starts or any(
            self._published.get(operator) != schedule.version for operator, schedule in schedules.items()
        )

    def step(self, schedules: dict[str, Publish]) -> None:
        """One round trip that brings the store up to date, or does not."""
        self.is_in_step = True
        try:
            self._step(schedules)
        finally:
            self.is_in_step = False

    def _step(self, schedules: dict[str, Publish]) -> None:
        creates = [
            Create(shard, position=b"", source=shard in SHARDS.src)
            for shard, home in HOMES.items()
            if home == self.node.name and self._starts != self.node.starts
        ]
        starts = self.node.starts
        calls = list(schedules.values())
        try:
            answers = self._link.pipeline([*creates, *calls])[len(creates) :]
        except StoreUnreachable:
            return
        self._starts = starts
        for call, answer in zip(calls, answers, strict=True):
            if answer is Answer.OK or answer is Answer.DONE:
                self._published[call.operator] = call.version
