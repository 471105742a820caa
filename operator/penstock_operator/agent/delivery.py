"""Delivery of one topology's outboxes to other stores: on the data path between nodes, so microseconds count.

One thread waits for the bell of the outboxes and looks what waits; a link for each other store, with a thread
and connections of its own, delivers to it. So a store that hangs, is full or is gone keeps back nobody else's
entries. A link goes on by itself while there is something for its store, tries what is stuck again after a
pause that grows, and a pause is not shorter than ten times what the try cost, up to half a second. Nothing
is remembered that the stores do not know: an agent that is killed in the middle leaves entries that are
delivered again, and are known there by their numbers. Neighbours: `core/penstock/store/sender.py` makes the
passes, `routes` knows where to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.store.port import Answer, Moved, NodeStore, Outgoing, StoreUnreachable, WaitOutgoing
from penstock.store.sender import Obstacle, Pair, deliver_pairs
from penstock_operator.agent.routes import Routes

_LOG = logging.getLogger(__name__)

_PAIRS_MAX = 10_000
_BELL_MS = 500
_OWN_STORE_AWAY_S = 0.02
_PAUSE_S_MIN = 0.001
_PAUSE_S_MAX = {
    Obstacle.UNREACHABLE: 0.5, Obstacle.FULL: 0.5, Obstacle.GAP: 2.0, Obstacle.UNKNOWN: 0.25,
    # such a pause is added to the few milliseconds of a move
    Obstacle.MOVING: 0.01,
}  # fmt: skip
_PAUSE_S_MAX_ELSE = 0.05
_COST_FACTOR = 10.0
_COST_PAUSE_S_MAX = 0.5
"""A try that hung costs no work: what waits shall not wait ten times as long as a store stood still."""
_PAUSE_S_UNKNOWN = 0.02
_BYTES_MAX = 64 << 10
"""Of one pair in one pass."""
_PROBE_BYTES = 1
"""What a stuck pair is tried with: its oldest entry."""

AddressOf = Callable[[str], str | None]
"""Store id -> the URL to reach it by, None while nobody knows."""
OpenStore = Callable[[str], NodeStore]
"""URL -> a new connection for this topology."""


@dataclass(slots=True)
class DeliveryCount:
    """Totals of one link since the agent's start; read by any thread. `lag_us` is of the newest pass."""

    entries: int = 0
    passes: int = 0
    lag_us: int = 0
    stuck_pairs: int = 0
    obstacle: str = ""


class TopologyDelivery:
    """All deliveries of one topology out of this store."""

    def __init__(self, own_url: str, address_of: AddressOf, open_store: OpenStore, routes: Routes) -> None:
        self.own_url = own_url
        self.address_of = address_of
        self.open_store = open_store
        self._routes = routes
        self._links: dict[str, _Link] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._look_now = False
        self._thread = threading.Thread(target=self._run, name="outgoing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let all threads end by themselves; does not wait."""
        self._stopped.set()
        for link in list(self._links.values()):
            link.stop()

    def join(self, deadline_s: float) -> None:
        """Wait for passes that are under way; who listens to the bell does nothing that matters any more."""
        for link in list(self._links.values()):
            link.thread.join(max(0.0, deadline_s - time.monotonic()))

    def routes_changed(self) -> None:
        """Pairs may belong to other links now."""
        self._look_now = True

    def counts(self) -> dict[str, DeliveryCount]:
        """By store."""
        return {peer: link.count for peer, link in list(self._links.items())}

    def _run(self) -> None:
        store = self.open_store(self.own_url)
        while not self._stopped.is_set():
            try:
                if store.call(WaitOutgoing(_BELL_MS)) or self._look_now:
                    # until it is done: the bell does not ring again for what waits already
                    self._look_now = True
                    pairs = store.call(Outgoing(_PAIRS_MAX))
                    self._look_now = False
                    self._offer(pairs)
            except PenstockError as error:
                if not isinstance(error, StoreUnreachable):
                    _LOG.warning("cannot look for outgoing entries: %s", error)
                self._stopped.wait(_OWN_STORE_AWAY_S)
        store.close()

    def _offer(self, pairs: Iterable[Pair]) -> None:
        by_peer: dict[str, list[Pair]] = {}
        for pair in pairs:
            peer = self._routes.home_of(pair[1])
            if peer is None:
                self._look_now = True
            else:
                by_peer.setdefault(peer, []).append(pair)
        for peer, its_pairs in by_peer.items():
            self._link(peer).offer(its_pairs)

    def _link(self, peer: str) -> _Link:
        with self._lock:
            link = self._links.get(peer)
            if link is None:
                link = self._links[peer] = _Link(peer, self)
                link.thread.start()
                if self._stopped.is_set():
                    link.stop()
            return link

    def moved(self, shard: str, store_id: str) -> None:
        """A shard has arrived at another store: what waits for it goes there at once."""
        self._routes.moved(shard, store_id)
        for link in list(self._links.values()):
            link.retry(shard)

    # --- for links

    def home_of(self, target: str) -> str | None:
        return self._routes.home_of(target)

    def refused(self, target: str, peer: str, answer: Answer | Moved) -> None:
        """Learn where the target may be, and have the pair offered there."""
        self._routes.refused(target, peer, answer)

    def reroute(self, pairs: Iterable[Pair]) -> None:
        self._offer(pairs)


class _Link:
    """What goes from this store to one other, for one topology. Its thread owns the connections."""

    def __init__(self, peer: str, delivery: TopologyDelivery) -> None:
        self.peer = peer
        self.count = DeliveryCount()
        self.thread = threading.Thread(target=self._run, name=f"to-{peer}", daemon=True)
        self._delivery = delivery
        self._condition = threading.Condition()
        self._offered: dict[Pair, None] = {}
        self._arrived: set[str] = set()
        self._stopped = False
        self._source: NodeStore = delivery.open_store(delivery.own_url)
        self._target: NodeStore | None = None
        self._address: str | None = None
        self._stuck: dict[Pair, Obstacle] = {}
        self._moved: set[str] = set()
        self._said = ""

    def offer(self, pairs: Iterable[Pair]) -> None:
        with self._condition:
            self._offered.update(dict.fromkeys(pairs))
            self._condition.notify()

    def retry(self, shard: str) -> None:
        """Try what is stuck again, if any of it is for this shard."""
        with self._condition:
            self._arrived.add(shard)
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def _take(self, timeout_s: float | None) -> tuple[list[Pair], set[str]]:
        """What was offered, and which shards have arrived; waits for either, at most so long."""
        with self._condition:
            if not self._offered and not self._arrived and not self._stopped:
                self._condition.wait(timeout_s)
            pairs, arrived = list(self._offered), set(self._arrived)
            self._offered.clear()
            self._arrived.clear()
            return pairs, arrived

    def _run(self) -> None:
        pause_s = _PAUSE_S_MIN
        retry_at_s: float | None = None
        while True:
            wait_s = None if retry_at_s is None else max(0.0, retry_at_s - time.monotonic())
            offered, arrived = self._take(wait_s)
            fresh = [pair for pair in offered if pair not in self._stuck]
            if self._stopped:
                break
            began_s = time.monotonic()
            is_retry = retry_at_s is not None and began_s >= retry_at_s
            is_retry = is_retry or any(target in arrived for _, target in self._stuck)
            progress = self._work(fresh, is_retry=is_retry)
            self.count.stuck_pairs = len(self._stuck)
            self.count.obstacle = str(next(iter(self._stuck.values()), ""))
            if not self._stuck:
                pause_s, retry_at_s = _PAUSE_S_MIN, None
            elif is_retry or retry_at_s is None:
                reasons = set(self._stuck.values())
                longest_s = max(_PAUSE_S_MAX.get(why, _PAUSE_S_MAX_ELSE) for why in reasons)
                pause_s = _PAUSE_S_MIN if progress else min(2 * pause_s, longest_s)
                if Obstacle.UNKNOWN in reasons:
                    pause_s = max(pause_s, _PAUSE_S_UNKNOWN)
                now_s = time.monotonic()
                cost_s = 0.0 if progress else now_s - began_s
                retry_at_s = now_s + max(pause_s, min(_COST_FACTOR * cost_s, _COST_PAUSE_S_MAX))
        self._source.close()
        if self._target is not None:
            self._target.close()

    def _work(self, fresh: list[Pair], *, is_retry: bool) -> bool:
        """A pass over what is new and, when it is time, a try of what is stuck; True when something went."""
        progress = False
        try:
            self._reach()
            if is_retry and self._stuck:
                self._hand_over(self._stuck)
                progress = self._pass(list(self._stuck), _PROBE_BYTES)
            if fresh:
                progress = self._pass(fresh, _BYTES_MAX) or progress
            if self._moved:
                self._hand_over([pair for pair in self._stuck if pair[1] in self._moved])
                self._moved.clear()
            if progress:
                # whoever came to wait for the same target while this was under way rang no bell
                waiting = self._source.call(Outgoing(_PAIRS_MAX))
                home_of = self._delivery.home_of
                self.offer(pair for pair in waiting if home_of(pair[1]) == self.peer)
        except PenstockError as error:
            if str(error) != self._said:
                self._said = str(error)
                _LOG.warning("delivery to store %s has to wait: %s", self.peer, error)
            self._stuck.update(dict.fromkeys(fresh, Obstacle.UNREACHABLE))
        return progress

    def _reach(self) -> None:
        """Have a connection to where the store is now."""
        address = self._delivery.address_of(self.peer)
        if address != self._address:
            if self._target is not None:
                self._target.close()
            self._target = self._delivery.open_store(address) if address else None
            self._address = address

    def _pass(self, pairs: list[Pair], bytes_max: int) -> bool:
        delivery, target = self._delivery, self._target

        def home_of(shard: str) -> NodeStore | None:
            return target if delivery.home_of(shard) == self.peer else None

        def refused(shard: str, answer: Answer | Moved) -> None:
            if isinstance(answer, Moved):
                self._moved.add(shard)
            delivery.refused(shard, self.peer, answer)

        delivered = deliver_pairs(self._source, home_of, pairs, bytes_max=bytes_max, refused=refused)
        for pair in pairs:
            self._stuck.pop(pair, None)
        self._stuck.update(delivered.obstacles)
        self.count.passes += 1
        self.count.entries += delivered.entries
        if delivered.oldest_us:
            self._said = ""
            self.count.lag_us = max(0, time.time_ns() // 1000 - delivered.oldest_us)
        return delivered.more or delivered.entries > 0

    def _hand_over(self, pairs: Iterable[Pair]) -> None:
        """Give pairs that belong to another link by now to that."""
        others = [pair for pair in pairs if self._delivery.home_of(pair[1]) not in {self.peer, None}]
        for pair in others:
            del self._stuck[pair]
        if others:
            self._delivery.reroute(others)
