"""What a simulated node agent is made of: the product's parts. A test plants a bug in one of them.

Neighbour: `hosted_agent` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.store.node_clock import HeardClock, SteadyClock
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.link import Link
from penstock_operator.agent.moving import MoveDriver, Mover
from penstock_operator.agent.routes import Routes
from penstock_operator.agent.schedule_feed import ScheduleCache
from penstock_operator.agent.store_side import StoreSide


class NoThread:
    """In a thread's place: the host gives the turns."""

    def __init__(self, *_: object, **__: object) -> None:
        """Nothing of it is needed."""

    def start(self) -> None:
        """The host does."""

    def join(self, timeout_s: float) -> None:
        """Nothing runs."""


class HostedMoves(MoveDriver):
    """With the run's movers."""

    parts: AgentParts

    def mover(self) -> Mover:
        return self.parts.mover(self, self._open_store, self._clock_s)


class HostedDeliveries(Deliveries):
    """With the run's links and routes, and their clock."""

    parts: AgentParts

    def _routes(self) -> Routes:
        return self.parts.routes()

    def _delivery(self, uid: str, routes: Routes) -> TopologyDelivery:
        peers = self._peers
        delivery = self.parts.delivery(
            peers.own_url,
            peers.url_of,
            lambda url: peers.connect(url, uid),
            routes,
            self._faults,
            self._clock_s,
            self._thread,
        )
        delivery.parts = self.parts
        return delivery


class HostedDelivery(TopologyDelivery):
    """One topology's."""

    parts: AgentParts

    def _new_link(self, peer: str) -> Link:
        return self.parts.link(peer, self, HeardClock(_steady(self.clock_s)))


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Each as the product has it."""

    cache: type[ScheduleCache] = ScheduleCache
    side: type[StoreSide] = StoreSide
    mover: type[Mover] = Mover
    delivery: type[HostedDelivery] = HostedDelivery
    link: type[Link] = Link
    routes: type[Routes] = Routes


AGENT = AgentParts()


def _steady(clock_s: Callable[[], float]) -> SteadyClock:
    def now_ns() -> int:
        return int(clock_s() * 1e9)

    return SteadyClock(boot="simulated", monotonic_ns=now_ns, wall_ns=now_ns)
