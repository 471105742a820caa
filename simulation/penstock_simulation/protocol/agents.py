"""All starts of all agents in a run: the newest of each node, and those that were taken for dead and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_simulation.protocol.hosted_agent import AgentThread, HostedAgent
from penstock_simulation.protocol.layout import NODES

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World


class Agents:
    """`running` has one for each node at the least: who dies is started again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._attempts = dict.fromkeys(NODES, 0)
        self.running: list[HostedAgent] = []

    def start(self, node: str) -> None:
        """Another start; one that runs goes on."""
        self._attempts[node] += 1
        self.running.append(HostedAgent(self._world, node, self._attempts[node]))
        self._world.hurry.append(self.running[-1].hear)

    def kill(self, agent: HostedAgent) -> None:
        """It dies, and is started again if no later start of it runs."""
        agent.die()
        self.running.remove(agent)
        if all(other.node != agent.node for other in self.running):
            self.start(agent.node)

    def calm_down(self) -> None:
        """The newest of each node goes on; the others end."""
        newest = {agent.node: agent for agent in self.running}
        for agent in list(self.running):
            if agent is newest[agent.node]:
                agent.calm_down()
            else:
                self.kill(agent)

    def hear(self) -> None:
        """Somebody wrote a Schedule, or its status."""
        self._world.hurry.extend(agent.hear for agent in self.running)

    def due(self, *, movers: bool = False) -> list[tuple[HostedAgent, AgentThread]]:
        """Threads that have something to do, or those among them that move shards."""
        return [(agent, thread) for agent in self.running for thread in agent.due(movers=movers)]

    def step_due(self) -> None:
        """A turn of each thread that has something to do."""
        for agent, thread in self.due():
            if not (agent.over or thread.is_in_turn):
                agent.step(thread)
