"""Delivery of one topology's outboxes to other stores: on the data path between nodes, so microseconds count.

One thread waits for the bell of the outboxes and looks what waits, in turns; a link for each other store
(`link`), with a thread and connections of its own, delivers to it. So a store that hangs, is full or is gone
keeps back nobody else's entries. While little waits the look tells all pairs; when it does not, targets are
told, and each link looks up what is for its own store: however much waits for one store, it hides nothing
that is for another. Nothing is remembered that the stores do not know: an agent that is killed in the middle
leaves entries that are delivered again, and are known there by their numbers. Neighbours:
`core/penstock/store/sender.py` makes the passes, `routes` knows where to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from penstock.errors import PenstockError
from penstock.store.port import (
    Answer,
    Moved,
    NodeStore,
    Outgoing,
    OutgoingTargets,
    StoreUnreachable,
    UnreadableState,
    WaitOutgoing,
)
from penstock.store.sender import PAIRS_A_LOOK, Pair
from penstock_operator.agent.kept_thread import Kept, KeptThread, MakeThread, ThreadFaults
from penstock_operator.agent.link import DeliveryCount, Link
from penstock_operator.agent.routes import Routes

_LOG = logging.getLogger(__name__)

_BELL_MS = 500
_OWN_STORE_AWAY_S = 0.02
_UNREADABLE_S = 5.0

AddressOf = Callable[[str], str | None]
"""Store id -> the URL to reach it by, None while nobody knows."""
OpenStore = Callable[[str], NodeStore]
"""URL -> a new connection for this topology."""


class TopologyDelivery:
    """All deliveries of one topology out of this store."""

    def __init__(
        self,
        own_url: str,
        address_of: AddressOf,
        open_store: OpenStore,
        routes: Routes,
        faults: ThreadFaults | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        thread: MakeThread = KeptThread,
    ) -> None:
        self.own_url = own_url
        self.address_of = address_of
        self.open_store = open_store
        self.clock_s = clock_s
        self._routes = routes
        self._faults = faults or ThreadFaults()
        self._make_thread = thread
        self._links: dict[str, Link] = {}
        self._threads: dict[str, Kept] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._look_now = False
        self._said = ""
        self.rest_s = _OWN_STORE_AWAY_S
        """How long to rest after a turn that found the store away, or what it has unreadable."""
        self._thread = thread("outgoing", self._run, self._faults, self._stopped)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let all threads end by themselves; does not wait."""
        self._stopped.set()
        for link in self.links():
            link.stop()

    def join(self, deadline_s: float) -> None:
        """Wait for passes that are under way; who listens to the bell does nothing that matters any more."""
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(deadline_s - time.monotonic())

    def routes_changed(self) -> None:
        """Pairs may belong to other links now."""
        self._look_now = True

    def counts(self) -> dict[str, DeliveryCount]:
        """By store."""
        return {link.peer: link.count for link in self.links()}

    def _run(self) -> None:
        store = self.open_store(self.own_url)
        try:
            while not self._stopped.is_set():
                if not self.turn(store):
                    self._stopped.wait(self.rest_s)
        finally:
            store.close()

    @property
    def must_look(self) -> bool:
        """Whether a turn looks, though no bell rings."""
        return self._look_now

    def turn(self, store: NodeStore) -> bool:
        """Wait for the bell of this store's outboxes, and look what waits. False when the store is away."""
        self._end_links()
        try:
            if store.call(WaitOutgoing(_BELL_MS)) or self._look_now:
                self._look(store)
        except PenstockError as error:
            self.rest_s = _UNREADABLE_S if isinstance(error, UnreadableState) else _OWN_STORE_AWAY_S
            if not isinstance(error, StoreUnreachable) and str(error) != self._said:
                self._said = str(error)
                _LOG.warning("cannot look for outgoing entries: %s", error)
            return False
        self._said = ""
        return True

    def _look(self, store: NodeStore) -> None:
        """Offer what waits to the links."""
        # until it is done: the bell does not ring again for what waits already
        self._look_now = True
        pairs = store.call(Outgoing(PAIRS_A_LOOK))
        targets = store.call(OutgoingTargets()) if len(pairs) == PAIRS_A_LOOK else []
        self._look_now = False
        self.reroute(pairs if not targets else (), targets)

    def _link(self, peer: str) -> Link:
        """To be called with the lock held: a link that nobody has ended takes what it is offered."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = self._new_link(peer)
            thread = self._make_thread("link", link.run, self._faults, link.ending, name=f"to-{peer}")
            self._threads[peer] = thread
            thread.start()
            if self._stopped.is_set():
                link.stop()
        return link

    def _new_link(self, peer: str) -> Link:
        return Link(peer, self)

    def links(self) -> list[Link]:
        """To all stores that something was for."""
        with self._lock:
            return list(self._links.values())

    def _end_links(self) -> None:
        """Those to stores that no schedule names any more, once they have nothing left."""
        with self._lock:
            for peer, link in list(self._links.items()):
                if not self._routes.is_known(peer) and link.end_if_idle():
                    del self._links[peer], self._threads[peer]

    def moved(self, shard: str, store_id: str) -> None:
        """A shard has arrived at another store: what waits for it goes there at once."""
        self._routes.moved(shard, store_id)
        for link in self.links():
            link.retry(shard)

    # --- for links

    def home_of(self, target: str) -> str | None:
        return self._routes.home_of(target)

    def refused(self, target: str, peer: str, answer: Answer | Moved) -> None:
        """Learn where the target may be, and have the pair offered there."""
        self._routes.refused(target, peer, answer)

    def unreachable(self, target: str, peer: str) -> None:
        """Learn that the target cannot be asked for there: it may be at the schedule's own home by now."""
        self._routes.unreachable(target, peer)

    def reroute(self, pairs: Iterable[Pair], targets: Iterable[str] = ()) -> None:
        """Offer pairs, and targets of which all pairs are meant, to the links where they belong."""
        by_peer: dict[str, tuple[list[Pair], list[str]]] = {}
        for target, pair in (*((pair[1], pair) for pair in pairs), *((one, None) for one in targets)):
            peer = self._routes.home_of(target)
            if peer is None:
                self._look_now = True
                continue
            its_pairs, its_targets = by_peer.setdefault(peer, ([], []))
            if pair is None:
                its_targets.append(target)
            else:
                its_pairs.append(pair)
        with self._lock:
            for peer, offered in by_peer.items():
                self._link(peer).offer(*offered)

    def look_again(self) -> None:
        self._look_now = True
