"""One start of a node's agent in the world: the product's parts of it, in turns that the seed gives.

What `node_agent` repeats on threads, each with connections of its own, is a part here: the turns, the movers,
the bell of the outboxes, the links to other stores, the couriers, the feed and the reports. A part takes a
turn when it has news or its time has come, and others act within its calls. An agent may die at any call,
stop and go on, or run while a later start of it runs as well. Neighbours: `agents` has them all,
`schedule_api` is what they hear of Schedules and report to, `bell` rings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.store.port import StoreUnreachable
from penstock_operator.agent.couriers import Courier, Couriers
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.link import Link as DeliveryLink
from penstock_operator.agent.moving import MoveDriver, Mover
from penstock_operator.agent.node_agent import REPORT_AGAIN_S, RESYNC_S
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.reports import Reports
from penstock_operator.agent.schedule_feed import RELIST_S, FeedAway, ScheduleCache
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import StoreSide
from penstock_operator.agent.store_turns import StoreTurns
from penstock_operator.agent.weighing import Weighing
from penstock_simulation.protocol.bell import Bell
from penstock_simulation.protocol.fact_link import FactLink, FactPeers
from penstock_simulation.protocol.link import ActorGone, Link
from penstock_simulation.protocol.promises import PromiseBroken
from penstock_simulation.protocol.remembered import RememberedWire
from penstock_simulation.protocol.schedule_api import SimulatedFeed
from penstock_simulation.twins.no_thread import NoThread

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

MOVERS = 2
_FOREVER_US = 1 << 62
_BREAKS = 0.04
"""How often a connection breaks under a call, 0..1: a move, or a pass of deliveries, is left where it is."""


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent is made of; a test puts a part with a planted bug in its place."""

    cache: type[ScheduleCache] = ScheduleCache
    side: type[StoreSide] = StoreSide
    turns: type[StoreTurns] = StoreTurns
    reports: type[Reports] = Reports
    deliveries: type[Deliveries] = Deliveries
    couriers: type[Couriers] = Couriers
    driver: type[MoveDriver] = MoveDriver
    mover: type[Mover] = Mover


AGENT_PARTS = AgentParts()


class AgentThread:
    """What is a thread in the product. `turn` answers for how long there is nothing to do, in seconds of the
    agent's time, unless `has_news`; None: for ever."""

    def __init__(self, turn: Callable[[], float | None], has_news: Callable[[], bool]) -> None:
        self.turn = turn
        self.has_news = has_news
        self.is_in_turn = False
        self.wakes_us = 0


class HostedAgent:
    """`over`: it has died. `stops_until` is the turn up to which it is stopped."""

    def __init__(self, world: World, node: str, attempt: int) -> None:
        self.name = f"agent {node}.{attempt}"
        self.node = node
        self.over = False
        self.stops_until = 0
        self._world = world
        self._links: list[Link] = []
        self._opened = self._open_now()
        self._is_woken = True
        parts = world.parts.agent
        peers = Peers(node, node, lambda address: address.partition(":")[0], self._connect)
        faults = ThreadFaults()
        self._deliveries = parts.deliveries(node, peers, faults, self._clock_s, NoThread)
        to_facts = FactPeers(peers, lambda store: FactLink(world, self._connect(store, "")))
        self._couriers = parts.couriers(node, to_facts, faults, self._clock_s, NoThread)
        self._driver = parts.driver(
            node, peers.open, self._deliveries.arrived, self.wake, self._clock_s, thread=NoThread
        )
        side = parts.side(node, peers.open)
        self._turns = parts.turns(
            side,
            ScheduleMemory(RememberedWire(world, world.nodes[node], self._connect(node, ""))),
            peers,
            self._deliveries,
            self._couriers,
            self._driver,
            Weighing(node, side.store_of, world.now_us),
            lambda _: None,
            "Process",
            self._clock_s,
        )
        self._reports = parts.reports()
        self._api = self._connect(node, "")
        self._feed = SimulatedFeed(world.api, parts.cache())
        self._listens = AgentThread(self._listen, lambda: self._feed.is_due)
        self._turn = AgentThread(self._take_turn, lambda: self._is_woken)
        self._fixed = [
            self._listens,
            self._turn,
            AgentThread(self._report, lambda: bool(self._reports.due())),
        ]
        self._movers = [
            self._mover(parts.mover(self._driver, peers.open, self._clock_s)) for _ in range(MOVERS)
        ]
        self._bells: dict[TopologyDelivery, AgentThread] = {}
        self._sending: dict[DeliveryLink, AgentThread] = {}
        self._reads_facts = AgentThread(self._couriers.turn, lambda: False)
        self._carrying: dict[Courier, AgentThread] = {}

    # --- its host

    @property
    def is_moving(self) -> bool:
        """Whether it is in the middle of a step of a move."""
        return any(mover.is_in_turn for mover in self._movers)

    def due(self, *, movers: bool = False) -> Iterator[AgentThread]:
        """Its threads that have something to do, or those among them that move shards."""
        if self.over or self.stops_until > self._world.turn:
            return
        time_us = self._world.time_us
        for thread in self._movers if movers else self._threads():
            if not thread.is_in_turn and (time_us >= thread.wakes_us or thread.has_news()):
                yield thread

    def step(self, thread: AgentThread) -> None:
        """A turn of one of its threads."""
        thread.is_in_turn = True
        thread.wakes_us = _FOREVER_US
        try:
            wait_s = thread.turn()
        except ActorGone:
            return
        finally:
            thread.is_in_turn = False
        if wait_s is not None:
            thread.wakes_us = self._world.time_us + int(wait_s * 1e6 / self._world.agent_pace)

    def hear(self) -> None:
        """Somebody wrote a Schedule, or its status."""
        self._step_if_due(self._listens)

    def calm_down(self) -> None:
        """Nothing fails any more."""
        self.stop(0)
        self._feed.list_again()

    @property
    def has_heard_all(self) -> bool:
        """Whether it knows of the last that was written."""
        return self._feed.has_told_all and not self._is_woken

    def wake(self) -> None:
        """There is something for the next turn."""
        self._is_woken = True
        self._world.hurry.append(partial(self._step_if_due, self._turn))

    def stop(self, until_turn: int) -> None:
        """Nothing of it goes on before that turn."""
        self.stops_until = until_turn
        for link in self._links:
            link.stops_until = until_turn

    def die(self) -> None:
        """Nothing more of it happens, but what is on its way."""
        self.over = True
        for link in self._links:
            link.is_gone = True

    def _step_if_due(self, thread: AgentThread) -> None:
        if any(one is thread for one in self.due()):
            self.step(thread)

    def _threads(self) -> Iterator[AgentThread]:
        yield from self._fixed
        yield from self._movers
        for delivery in self._deliveries.all().values():
            yield self._bell_of(delivery)
            for link in delivery.links():
                yield self._sending_of(link)
        # where nothing was told nobody looks: a look would change when everything else is
        if self._world.nodes[self.node].has_told:
            yield self._reads_facts
        for courier in self._couriers.all():
            yield self._carrying_of(courier)

    def _connect(self, store: str, _: str) -> Link:
        link = self._world.link(self.name, store, before=self._connection_may_break)
        link.is_gone, link.stops_until = self.over, self.stops_until
        self._links.append(link)
        return link

    def _connection_may_break(self) -> None:
        """At any call; what was sent on it may take effect all the same."""
        if self._world.is_rough and self._world.rng.random() < _BREAKS:
            raise StoreUnreachable("the connection breaks")

    def _clock_s(self) -> float:
        return self._world.now_us() * self._world.agent_pace / 1e6

    # --- what its threads do

    def _open_now(self) -> OpenedStore:
        node = self._world.nodes[self.node]
        return OpenedStore(str(node.starts), node.generation)

    def _listen(self) -> float:
        if not self._feed.is_due:
            self._feed.list_again()
        snapshot = self._feed.step()
        if snapshot is not None:
            self._turns.see(snapshot)
            self.wake()
        return float(RELIST_S / self._world.relist_pace)

    def _take_turn(self) -> float:
        self._is_woken = False
        # who keeps the store open hears late of its restart
        if self._world.is_at_once():
            self._opened = self._open_now()
        try:
            turn = self._turns.turn(self._opened)
            self._reports.take(turn.reports)
            if turn.must_list:
                self._feed.list_again()
            self._turns.weigh(self._opened)
        except PenstockError as error:
            self._world.trace.event(self.name, f"gives up a turn: {error}")
        return float(RESYNC_S)

    def _report(self) -> float | None:
        for seen, applied in self._reports.due():
            if applied.lost_shards:
                raise PromiseBroken(2, f"{self.name} says that {applied.lost_shards} shards are lost")
            try:
                self._world.api.report(seen, applied)
            except FeedAway:
                return float(REPORT_AGAIN_S)
            self._world.pass_turn(self._api)
            if self.over:
                raise ActorGone
            self._reports.note_written(seen, applied)
            self._turns.confirm(seen, applied)
            self.wake()
        return None

    def _mover(self, mover: Mover) -> AgentThread:
        is_at_work = False

        def turn() -> float | None:
            nonlocal is_at_work
            is_at_work = is_at_work or mover.take(self._clock_s())
            mover.chunks_max = 1 + int(self._world.rng.random() ** 2 * 5)
            rest_s = mover.go_on() if is_at_work else None
            is_at_work = rest_s is not None
            return rest_s

        def has_news() -> bool:
            wait_s = None if is_at_work else self._driver.wait_s(self._clock_s())
            return wait_s is not None and wait_s <= 0

        return AgentThread(turn, has_news)

    def _bell_of(self, delivery: TopologyDelivery) -> AgentThread:
        if delivery not in self._bells:
            bell = Bell(self._world.nodes[self.node], delivery.open_store(delivery.own_url))

            def turn() -> None:
                delivery.turn(bell)

            self._bells[delivery] = AgentThread(turn, lambda: bell.rings or delivery.must_look)
        return self._bells[delivery]

    def _sending_of(self, link: DeliveryLink) -> AgentThread:
        if link not in self._sending:
            link.begin()
            self._sending[link] = AgentThread(link.turn, lambda: link.has_news)
        return self._sending[link]

    def _carrying_of(self, courier: Courier) -> AgentThread:
        if courier not in self._carrying:
            self._carrying[courier] = AgentThread(courier.turn, lambda: courier.has_news)
        return self._carrying[courier]
