"""All node agents of a run: who acts, who dies, who was started while an earlier one still runs.

Neighbours: `hosted_agent` is one of them; the world says when somebody acts, `chaos` when something befalls
one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.schedule_feed import SeenSchedule
from penstock_simulation.protocol.hosted_agent import HostedAgent, Strand
from penstock_simulation.protocol.layout import NODES
from penstock_simulation.protocol.schedule_feed import object_name

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

DIES = 0.004
"""The chance at each of an agent's calls."""
DIES_WHEN_REPLACED = 0.03
LOOKS_MAX = 8
"""One agent's in a row, while everything drains."""
PAUSE_TURNS_MAX = 70
SPEEDS = (10.0, 50.0)


class Agents:
    """`running` holds all that live; of a node's the last one is its newest."""

    def __init__(self, world: World) -> None:
        self.running: list[HostedAgent] = []
        self._world = world
        self._started = dict.fromkeys(NODES, 0)
        self._is_calm = False

    def start(self, node: str) -> None:
        """A new agent for a node; an earlier one goes on if it is not dead."""
        self._started[node] += 1
        speed = SPEEDS[int(self._world.rng.random() * len(SPEEDS))]
        name = f"agent {node}.{self._started[node]}"
        agent = HostedAgent(self._world, self._world.nodes[node], name, speed)
        self.running.append(agent)
        self._hurry(agent)

    def tell(self) -> None:
        """The operator has written a schedule: the agents hear of it."""
        for agent in self.running:
            self._hurry(agent)

    def _hurry(self, agent: HostedAgent) -> None:
        self._world.hurry.extend(strand.step for strand in agent.others)

    # --- turns

    def move(self) -> bool:
        """A part of a move; False when nothing is to be moved now."""
        return self._step(strand for agent in self._able() for strand in agent.movers)

    def deliver(self) -> bool:
        """A pass of a sender, or a look at an outbox; False when nothing waits."""
        return self._step(strand for agent in self._able() for strand in agent.delivering())

    def look(self) -> bool:
        """News, a turn, a report; False when there is nothing of it."""
        return self._step(strand for agent in self._able() for strand in agent.others)

    def carry_on(self) -> None:
        """Everybody who delivers or moves has a turn."""
        for agent in self._able():
            for strand in (*agent.delivering(), *agent.movers):
                strand.step()

    def look_around(self) -> None:
        """Everybody hears the news, brings its store up to them and reports, until there is no more."""
        for agent in self._able():
            for _ in range(LOOKS_MAX):
                for strand in agent.others:
                    strand.step()
                agent.hurry_report()
                if not any(strand.is_due() for strand in agent.others):
                    break

    def _able(self) -> Iterable[HostedAgent]:
        return [agent for agent in self.running if agent.can_run]

    def _step(self, strands: Iterable[Strand]) -> bool:
        due = [strand for strand in strands if strand.is_due()]
        if due:
            due[int(self._world.rng.random() * len(due))].step()
        return bool(due)

    # --- what befalls them

    def dies_now(self, agent: HostedAgent) -> bool:
        """Whether an agent is killed at this call."""
        dies = self.befalls(DIES if agent is self._newest(agent.node.name) else DIES_WHEN_REPLACED)
        if dies:
            self.kill(agent)
        return dies

    def befalls(self, chance: float) -> bool:
        """Whether something that has this chance happens now; nothing does when it is calm."""
        is_rough = self._world.roughness.event_rate > 0 and not self._is_calm
        return is_rough and self._world.rng.random() < chance

    def is_late(self, agent: HostedAgent) -> None:
        """It stands still in the middle of something, is taken for dead, and goes on later."""
        until = self._world.turn + 1 + int(self._world.rng.random() * PAUSE_TURNS_MAX)
        agent.stop(until)
        self._world.trace.event(agent.name, f"stops until turn {until}, and is taken for dead")
        self.start(agent.node.name)

    def kill(self, agent: HostedAgent) -> None:
        """Another one is started in its place, if it was the newest."""
        was_newest = agent is self._newest(agent.node.name)
        self.running.remove(agent)
        agent.die()
        self._world.trace.event(agent.name, "dies")
        if was_newest:
            self._world.hurry.append(partial(self.start, agent.node.name))

    def calm_down(self) -> None:
        """Nothing befalls anybody; of each node only the newest agent lives."""
        self._is_calm = True
        self._world.api.is_rough = False
        for agent in list(self.running):
            agent.stop(0)
            if agent is not self._newest(agent.node.name):
                self.running.remove(agent)
                agent.die()
        for node in NODES:
            if self._newest(node) is None:
                self.start(node)

    def _newest(self, node: str) -> HostedAgent | None:
        return next((agent for agent in reversed(self.running) if agent.node.name == node), None)

    # --- what must hold

    def reported(self, node: str, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """The API server has a report, or may have it."""
        world = self._world
        made = {shard for one in world.nodes.values() for shard, _ in one.records()}
        world.promises.check_reported(node, seen.schedule, applied.version, made)
        for store, entry in world.api.applied(seen.name).items():
            world.schedules.note_applied(seen.schedule.operator, store, entry["version"])

    def left_over(self) -> str:
        """What agents have not brought to its end; "" for nothing."""
        world = self._world
        for operator, schedule in world.schedules.newest.items():
            for node in NODES:
                told = world.api.applied(object_name(operator)).get(node, {})
                want = {"version": schedule.version, "lostShards": 0, "shardsMoving": 0}
                if any(told.get(field) != value for field, value in want.items()):
                    return f"the agent of {node} has reported {told} of {operator}, not {want}"
                kept = world.nodes[node].remembered.get(object_name(operator).encode(), b"{}")
                if json.loads(kept).get("spec") != world.api.objects[object_name(operator)]["spec"]:
                    return f"the store of {node} does not remember the newest schedule of {operator}"
        return ""
