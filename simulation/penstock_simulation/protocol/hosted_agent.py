"""One real node agent in the world: the product's turns, deliveries and movers, in virtual time, over links.

What are threads in the product are strands here: each is given a turn when it has something to do, or its
time has come; others act within its calls. An agent may stop, and die at any call. Only the keeper is
missing: the node opens its store itself. Neighbours: `agents` gives the turns, `agent_parts` has what it is
made of, `schedule_feed` what it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.store.port import NodeStore, StoreUnreachable
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.link import Link as DeliveryLink
from penstock_operator.agent.node_agent import REPORT_AFTER_S, RESYNC_S
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.reports import Reports
from penstock_operator.agent.schedule_feed import RELIST_S, FeedAway
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import Turn, unknown_address
from penstock_operator.agent.store_turns import StoreTurns
from penstock_operator.agent.weighing import Weighing
from penstock_simulation.protocol.agent_parts import HostedDeliveries, HostedMoves, NoThread
from penstock_simulation.protocol.bell import BellConnection
from penstock_simulation.protocol.link import ActorGone, Link
from penstock_simulation.protocol.node import TOPOLOGY_UID, SimulatedNode
from penstock_simulation.protocol.remembered import RememberedSchedules
from penstock_simulation.protocol.schedule_feed import ScheduleFeed

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

MOVERS = 2
OWN_STORE_AWAY_S = 0.02
WEIGHS = 0.2
"""The chance after each turn: by such a clock it would do nothing else."""
MOVER_IS_LATE = 0.04
"""The chance at each call of a mover that its agent stands still, and another one goes on with the move."""
NO_ANSWER_TO_A_MOVER = 0.05
"""The chance that it waits no longer for a call, which may take effect later."""


class Strand:
    """What one thread of the product does; one turn at a time."""

    def __init__(self, agent: HostedAgent, is_due: Callable[[], bool], turn: Callable[[], object]) -> None:
        self._agent = agent
        self._is_due = is_due
        self._turn = turn
        self.is_in_turn = False

    def is_due(self) -> bool:
        return not self.is_in_turn and self._is_due()

    def step(self) -> None:
        """One turn, if there is anything to do."""
        if self._agent.can_run and self.is_due():
            self.is_in_turn = True
            try:
                self._turn()
            except ActorGone:
                return
            finally:
                self.is_in_turn = False


class HostedAgent:
    """One start of a node's agent. `seconds_per_s`: so much faster than the others' does its clock run, so
    that retries, and what takes minutes, come within the turns of a run."""

    def __init__(self, world: World, node: SimulatedNode, name: str, seconds_per_s: float) -> None:
        self.node = node
        self.name = name
        self.stops_until = 0
        self.is_gone = False
        self._world = world
        self._seconds_per_us = seconds_per_s / 1e6
        self._links: list[Link] = []
        self._link = self._connect_to(node.name)
        parts, faults = world.parts.agent, ThreadFaults()
        self._peers = peers = Peers(node.name, node.name, _host, self._connect)
        self._deliveries = HostedDeliveries(node.name, peers, faults, self.clock_s, NoThread)
        self._moves = HostedMoves(
            node.name,
            self._open_for_a_move,
            self._deliveries.arrived,
            self.wake,
            self.clock_s,
            thread=NoThread,
        )
        self._deliveries.parts = self._moves.parts = parts
        side = parts.side(node.name, node.name, peers.open)
        self._turns = StoreTurns(
            side,
            ScheduleMemory(RememberedSchedules(node, self._link)),
            peers,
            self._deliveries,
            self._moves,
            Weighing(node.name, side.store_of, world.now_us),
            lambda _: None,
            "Process",
            self.clock_s,
        )
        self._reports = Reports()
        self._report_at_s: float | None = None
        self._feed = ScheduleFeed(world.api, world.rng, parts.cache())
        self._is_woken = True
        self._starts = node.starts
        self._turn_at_s = 0.0
        self.turns = Strand(self, self._turn_is_due, self._make_turn)
        self._list_at_s = 0.0
        self.feed = Strand(self, self._feed_is_due, self._hear)
        self.reporting = Strand(self, self._report_is_due, self._report)
        self.others = (self.feed, self.turns, self.reporting)
        self._bell = BellConnection(self._connect_to(node.name))
        self._bell_at_s = 0.0
        self._listening = Strand(self, self._bell_is_due, self._listen)
        self._sending: dict[DeliveryLink, Strand] = {}
        self._due_s: dict[DeliveryLink, float | None] = {}
        self.movers = tuple(self._mover() for _ in range(MOVERS))

    # --- its host

    @property
    def can_run(self) -> bool:
        return not self.is_gone and self.stops_until <= self._world.turn

    def delivering(self) -> Iterator[Strand]:
        """Who listens to the bell, and who sends."""
        yield self._listening
        for delivery in self._deliveries.all().values():
            for link in delivery.links():
                if link not in self._sending:
                    self._sending[link] = self._sender(link)
                yield self._sending[link]

    def wake(self) -> None:
        """There is something for a turn."""
        self._is_woken = True

    def hurry_report(self) -> None:
        """What it has to say is said now, and not a little later with what comes until then."""
        if self._report_at_s is not None:
            self._report_at_s = self.clock_s()

    def die(self) -> None:
        """Nothing more of it happens, but what is on its way."""
        self.is_gone = True
        self._feed.close()
        for link in self._links:
            link.is_gone = True

    def stop(self, until_turn: int) -> None:
        """It stands still, wherever it is."""
        self.stops_until = until_turn
        for link in self._links:
            link.stops_until = until_turn

    def clock_s(self) -> float:
        return self._world.now_us() * self._seconds_per_us

    # --- connections

    def _connect(self, url: str, _: str) -> NodeStore:
        return self._connect_to(url)

    def _open_for_a_move(self, store_id: str, _: str) -> NodeStore:
        store = self._peers.url_of(store_id)
        if store is None:
            raise unknown_address(store_id)
        return self._connect_to(store, before=self._before_a_movers_call)

    def _connect_to(self, store: str, before: Callable[[], None] | None = None) -> Link:
        link = self._world.link(self.name, store, before=before or self._before_a_call)
        link.stops_until = self.stops_until
        self._links.append(link)
        return link

    def _before_a_call(self) -> None:
        if not self.is_gone and self._world.agents.dies_now(self):
            raise ActorGone

    def _before_a_movers_call(self) -> None:
        self._before_a_call()
        agents = self._world.agents
        if agents.befalls(MOVER_IS_LATE):
            agents.is_late(self)
        elif agents.befalls(NO_ANSWER_TO_A_MOVER):
            raise StoreUnreachable("no answer in time")

    # --- what its threads do

    def _turn_is_due(self) -> bool:
        return self._is_woken or self._starts != self.node.starts or self.clock_s() >= self._turn_at_s

    def _make_turn(self) -> None:
        self._is_woken = False
        self._starts = self.node.starts
        self._turn_at_s = self.clock_s() + RESYNC_S
        opened = OpenedStore(str(self.node.starts), self.node.generation)
        try:
            self._note(self._turns.turn(opened))
            if self._world.rng.random() < WEIGHS:
                self._turns.weigh(opened)
        except PenstockError as error:
            self._world.trace.event(self.name, f"the store is not up to date: {error}")

    def _note(self, turn: Turn) -> None:
        if self._reports.take(turn.reports):
            self._report_at_s = self.clock_s() + (0.0 if turn.is_urgent else REPORT_AFTER_S)
        if turn.must_list:
            self._feed.list_again()

    def _report_is_due(self) -> bool:
        return self._report_at_s is not None and self.clock_s() >= self._report_at_s

    def _report(self) -> None:
        self._report_at_s = None
        for seen, applied in self._reports.due():
            self._world.pass_turn(self._link)
            if self.is_gone:
                raise ActorGone
            try:
                self._feed.report(seen, applied)
            except FeedAway:
                self._report_at_s = self.clock_s() + REPORT_AFTER_S
                return
            finally:
                self._world.agents.reported(self.node.name, seen, applied)
            self._reports.note_written(seen, applied)
            self._turns.confirm(seen, applied)
            self.wake()

    def _feed_is_due(self) -> bool:
        return self._feed.has_news or self.clock_s() >= self._list_at_s

    def _hear(self) -> None:
        if self.clock_s() >= self._list_at_s:
            self._list_at_s = self.clock_s() + RELIST_S
            self._feed.list_again()
        self._turns.see(self._feed.next())
        self.wake()

    def _bell_is_due(self) -> bool:
        delivery = self._deliveries.all().get(TOPOLOGY_UID)
        return (
            delivery is not None
            and (delivery.must_look or self._bell.rings)
            and self.clock_s() >= self._bell_at_s
        )

    def _listen(self) -> None:
        if not self._deliveries.all()[TOPOLOGY_UID].turn(self._bell):
            self._bell_at_s = self.clock_s() + OWN_STORE_AWAY_S

    def _sender(self, link: DeliveryLink) -> Strand:
        def is_due() -> bool:
            due_s = self._due_s[link]
            return link.has_news or (due_s is not None and self.clock_s() >= due_s)

        def turn() -> None:
            wait_s = link.turn()
            self._due_s[link] = None if wait_s is None else self.clock_s() + wait_s

        link.begin()
        self._due_s[link] = None
        return Strand(self, is_due, turn)

    def _mover(self) -> Strand:
        mover = self._moves.mover()
        rests_until_s = 0.0
        has_move = False

        def is_due() -> bool:
            nonlocal has_move
            now_s = self.clock_s()
            has_move = has_move or mover.take(now_s)
            return has_move and now_s >= rests_until_s

        def turn() -> None:
            nonlocal has_move, rests_until_s
            rest_s = mover.go_on()
            has_move = rest_s is not None
            rests_until_s = self.clock_s() + rest_s if rest_s else 0.0

        return Strand(self, is_due, turn)


def _host(address: str) -> str:
    """The node, from a store's address."""
    return address.partition(":")[0]
