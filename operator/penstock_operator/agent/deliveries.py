"""The deliveries of all topologies out of this node's store: begun when a Schedule names one, and ended.

Neighbours: `delivery` is one topology's, `store_turns` tells where shards are and who has gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from penstock_operator.agent import decisions
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.kept_thread import KeptThread, MakeThread, ThreadFaults
from penstock_operator.agent.link import DeliveryCount
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.routes import Routes
from penstock_operator.agent.schedule_feed import Snapshot


class Deliveries:
    """`route` and `end` belong to one thread, the rest is for any."""

    def __init__(
        self,
        store_id: str,
        peers: Peers,
        faults: ThreadFaults,
        clock_s: Callable[[], float] = time.monotonic,
        thread: MakeThread = KeptThread,
    ) -> None:
        self._store_id = store_id
        self._peers = peers
        self._faults = faults
        self._clock_s = clock_s
        self._thread = thread
        self._begun: dict[str, tuple[Routes, TopologyDelivery]] = {}

    def route(self, snapshot: Snapshot) -> None:
        """Let deliveries know where shards are; begin those of topologies that are new here."""
        for uid, schedules in decisions.by_topology(snapshot).items():
            if uid not in self._begun:
                self._begun[uid] = self._begin(uid)
            routes, delivery = self._begun[uid]
            stores = {store.id for seen in schedules for store in seen.schedule.stores}
            homes = decisions.homes_of(seen.schedule for seen in schedules)
            if routes.learn(homes, stores | {self._store_id}):
                delivery.routes_changed()

    def arrived(self, topology_uid: str, shard: str, store_id: str) -> None:
        """A shard of this store is another one's: what was written for it here, or held up, goes there."""
        found = self._begun.get(topology_uid)
        if found is not None:
            found[1].moved(shard, store_id)

    def end(self, topology_uids: Iterable[str]) -> None:
        """Those of topologies that have gone."""
        for uid in topology_uids:
            found = self._begun.pop(uid, None)
            if found is not None:
                found[1].stop()

    def counts(self) -> dict[str, Mapping[str, DeliveryCount]]:
        """Topology uid -> store -> counts."""
        return {uid: delivery.counts() for uid, delivery in self.all().items()}

    def all(self) -> dict[str, TopologyDelivery]:
        """By topology uid."""
        return {uid: delivery for uid, (_, delivery) in list(self._begun.items())}

    def stop(self, deadline_s: float) -> None:
        """Let all end by themselves, and wait for passes that are under way until then, monotonic time."""
        deliveries = self.all().values()
        for delivery in deliveries:
            delivery.stop()
        for delivery in deliveries:
            delivery.join(deadline_s)

    def _begin(self, uid: str) -> tuple[Routes, TopologyDelivery]:
        routes, peers = Routes(), self._peers
        delivery = TopologyDelivery(
            peers.own_url,
            peers.url_of,
            lambda url: peers.connect(url, uid),
            routes,
            self._faults,
            self._clock_s,
            self._thread,
        )
        delivery.start()
        return routes, delivery
