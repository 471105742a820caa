"""What producers told of their watermarks is carried from this store to the others of each topology.

One thread reads what is known in this node's store, where anything was told; a courier for each other store,
with a thread and connections of its own, brings it there. So a store that hangs or is away keeps back no
other one, no delivery and no turn; when it is back it is told what is newest by then. Nothing is remembered
that matters: an agent that starts anew sends everything. Neighbours: `told_facts` says what goes,
`store_turns` tells which stores there are and which shards are here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.store.port import (
    NodeStore,
    ReadFacts,
    TakeFacts,
    ToldOperators,
    UnreadableState,
    WatermarkFact,
)
from penstock_operator.agent import decisions
from penstock_operator.agent.kept_thread import Kept, KeptThread, MakeThread, ThreadFaults
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.schedule_feed import Snapshot
from penstock_operator.agent.told_facts import Taken, pause_s

_LOG = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often a topology is looked at for operators of which something was told."""
_AWAY_S_MIN = 0.025
_AWAY_S_MAX = 0.5

_Operator = tuple[str, str]
"""Topology uid, operator."""


@dataclass(frozen=True, slots=True)
class FactRoute:
    """Where the facts of a topology go: to stores `others`. `here` has the shards of this store."""

    others: frozenset[str]
    here: frozenset[str]


@dataclass(slots=True)
class _Looks:
    """When to look at a topology, and at its operators of which something was told."""

    again_at_s: float = float("-inf")
    operators: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Known:
    """All that is known of an operator."""

    facts: Sequence[WatermarkFact]
    here: frozenset[str]


class Courier:
    """Brings facts to one other store. `offer`, `keep` and `stop` are for any thread; `run` is its own's."""

    def __init__(self, peer: str, peers: Peers, clock_s: Callable[[], float]) -> None:
        self.peer = peer
        self.ending = threading.Event()
        """Set when nothing is to be begun any more."""
        self._peers = peers
        self._clock_s = clock_s
        self._condition = threading.Condition()
        self._offered: dict[_Operator, _Known] = {}
        self._topologies: frozenset[str] = frozenset()
        self._stores: dict[str, tuple[str | None, NodeStore]] = {}
        self._taken: dict[_Operator, Taken] = {}
        self._pause_s = _AWAY_S_MIN
        self._not_before_s = float("-inf")
        self._said = ""

    def offer(
        self, topology_uid: str, operator: str, facts: Sequence[WatermarkFact], here: frozenset[str]
    ) -> None:
        """All that is known of an operator now, in the place of what was offered before."""
        with self._condition:
            self._offered[topology_uid, operator] = _Known(facts, here)
            self._condition.notify()

    def keep(self, topology_uids: frozenset[str]) -> None:
        """These topologies are in the store; what is known of others goes with the next turn."""
        self._topologies = topology_uids

    def stop(self) -> None:
        with self._condition:
            self.ending.set()
            self._condition.notify()

    @property
    def has_news(self) -> bool:
        """Whether a turn would have something to do now."""
        return bool(self._offered) and self._clock_s() >= self._not_before_s

    def run(self) -> None:
        """Turn after turn until it is stopped."""
        # a bug may have left anything half done
        self._taken.clear()
        try:
            wait_s: float | None = 0.0
            while self._wait(wait_s):
                wait_s = self.turn()
        finally:
            self._keep_connections(frozenset())

    def _wait(self, timeout_s: float | None) -> bool:
        """For something to carry, or while the store is left alone; False when it is time to end."""
        with self._condition:
            if timeout_s is None:
                self._condition.wait_for(lambda: self._offered or self.ending.is_set())
            else:
                self._condition.wait_for(self.ending.is_set, timeout_s)
            return not self.ending.is_set()

    def turn(self) -> float | None:
        """Bring what was offered. Answers for how long there is nothing to do, in seconds; None: until
        something is offered."""
        self._keep_connections(self._topologies)
        now_s = self._clock_s()
        if now_s < self._not_before_s:
            return self._not_before_s - now_s
        with self._condition:
            offered = dict(self._offered)
            self._offered.clear()
        try:
            for operator in list(offered):
                try:
                    self._bring(operator, offered[operator], now_s)
                except UnreadableState as error:
                    # that store has of this topology what is none: the others' facts go on
                    self._told(error)
                    self._taken.pop(operator, None)
                del offered[operator]
        except PenstockError as error:
            self._give_up(error, offered)
            return self._pause_s
        self._pause_s = _AWAY_S_MIN
        return None

    def _bring(self, operator: _Operator, known: _Known, now_s: float) -> None:
        if operator[0] not in self._topologies:
            return
        taken = self._taken.setdefault(operator, Taken())
        news = taken.news(known.facts, known.here, now_s)
        if news:
            # whoever answers UNKNOWN has retracted the topology, and needs nothing
            self._store(operator[0]).call(TakeFacts(operator[1], news))
            taken.took(news, now_s)

    def _give_up(self, error: PenstockError, left: Mapping[_Operator, _Known]) -> None:
        """The store is away: what was left is brought later, or what is newer by then."""
        self._told(error)
        for taken in self._taken.values():
            taken.forget()
        with self._condition:
            self._offered = {**left, **self._offered}
        self._pause_s = min(2 * self._pause_s, _AWAY_S_MAX)
        self._not_before_s = self._clock_s() + self._pause_s

    def _told(self, error: PenstockError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            _LOG.warning("facts for store %s have to wait: %s", self.peer, error)

    def _store(self, uid: str) -> NodeStore:
        """A connection to where the store is now. Raises StoreUnreachable."""
        url = self._peers.url_of(self.peer)
        had = self._stores.get(uid)
        if had is not None and had[0] == url:
            return had[1]
        if had is not None:
            had[1].close()
            del self._stores[uid]
            self._forget(uid)
        store = self._peers.open(self.peer, uid)
        self._stores[uid] = (url, store)
        return store

    def _keep_connections(self, topologies: Collection[str]) -> None:
        for uid in self._stores.keys() - topologies:
            self._stores.pop(uid)[1].close()
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        for operator in [one for one in self._taken if one[0] == uid]:
            del self._taken[operator]


class Couriers:
    """All couriers of an agent, and who reads for them. `route` is for one thread, `turn` for its own."""

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
        self._make_thread = thread
        self._stopped = threading.Event()
        self._routes: Mapping[str, FactRoute] = {}
        self._stores: dict[str, NodeStore] = {}
        self._looks: dict[str, _Looks] = {}
        self._lock = threading.Lock()
        self._couriers: dict[str, tuple[Courier, Kept]] = {}
        self._thread = thread("facts", self._run, faults, self._stopped)

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        """Let all threads end by themselves, and wait until then, monotonic time."""
        self._stopped.set()
        with self._lock:
            couriers = list(self._couriers.values())
        for courier, _ in couriers:
            courier.stop()
        for thread in (self._thread, *(thread for _, thread in couriers)):
            thread.join(deadline_s - time.monotonic())

    def route(self, snapshot: Snapshot, here: Mapping[str, Collection[str]]) -> None:
        """What the newest schedules say. `here`: topology uid -> shards that this store has."""
        routes = {}
        for uid, schedules in decisions.by_topology(snapshot).items():
            others = {store.id for seen in schedules for store in seen.schedule.stores} - {self._store_id}
            if others:
                routes[uid] = FactRoute(frozenset(others), frozenset(here.get(uid, ())))
        self._routes = routes

    def all(self) -> list[Courier]:
        """To all stores that something was to be carried to."""
        with self._lock:
            return [courier for courier, _ in self._couriers.values()]

    def turn(self) -> float:
        """Read what is known, where it is time, and offer it. Answers for how long there is nothing to do, in
        seconds."""
        routes = self._routes
        for uid in self._looks.keys() - routes.keys():
            del self._looks[uid]
            if uid in self._stores:
                self._stores.pop(uid).close()
        self._keep_couriers(routes)
        due_s = []
        for uid, route in routes.items():
            looks = self._looks.setdefault(uid, _Looks())
            try:
                self._look(uid, looks)
                self._read(uid, looks, route)
            except PenstockError:
                # the keeper tells of a store that is away
                looks.again_at_s = self._clock_s() + _AWAY_S_MAX
                looks.operators.clear()
            due_s += [looks.again_at_s, *looks.operators.values()]
        return max(0.0, min(due_s) - self._clock_s()) if due_s else LOOK_S

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._stopped.wait(self.turn())
        finally:
            for store in self._stores.values():
                store.close()
            self._stores.clear()

    def _look(self, uid: str, looks: _Looks) -> None:
        now_s = self._clock_s()
        if now_s < looks.again_at_s:
            return
        told = self._store(uid).call(ToldOperators())
        looks.operators = {operator: looks.operators.get(operator, now_s) for operator in told}
        looks.again_at_s = now_s + LOOK_S

    def _read(self, uid: str, looks: _Looks, route: FactRoute) -> None:
        for operator, at_s in list(looks.operators.items()):
            if self._clock_s() >= at_s:
                facts = self._store(uid).call(ReadFacts(operator))
                looks.operators[operator] = self._clock_s() + pause_s(len(facts))
                for peer in route.others:
                    self._courier(peer).offer(uid, operator, facts, route.here)

    def _store(self, uid: str) -> NodeStore:
        if uid not in self._stores:
            self._stores[uid] = self._peers.open(self._store_id, uid)
        return self._stores[uid]

    def _courier(self, peer: str) -> Courier:
        with self._lock:
            found = self._couriers.get(peer)
            if found is None:
                courier = Courier(peer, self._peers, self._clock_s)
                courier.keep(_topologies_of(peer, self._routes))
                thread = self._make_thread(
                    "courier", courier.run, self._faults, courier.ending, name=f"facts-to-{peer}"
                )
                found = self._couriers[peer] = (courier, thread)
                thread.start()
                if self._stopped.is_set():
                    courier.stop()
            return found[0]

    def _keep_couriers(self, routes: Mapping[str, FactRoute]) -> None:
        """Those to stores that schedules name still; each is told which topologies are there."""
        with self._lock:
            for peer, (courier, _) in list(self._couriers.items()):
                topologies = _topologies_of(peer, routes)
                courier.keep(topologies)
                if not topologies:
                    courier.stop()
                    del self._couriers[peer]


def _topologies_of(peer: str, routes: Mapping[str, FactRoute]) -> frozenset[str]:
    return frozenset(uid for uid, route in routes.items() if peer in route.others)
