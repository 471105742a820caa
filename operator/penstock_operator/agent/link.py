"""What goes from this store to one other, for one topology: turns of one thread, which owns the connections.

A link is offered pairs, or targets whose pairs it looks up itself, a page at a time. It goes on by itself
while there is something for its store, tries what is stuck again after a pause that grows, and a pause is not
shorter than ten times what the try cost, up to half a second. While its store takes nothing at all, targets
are parked: their pairs are looked up when it takes something again. Neighbours: `delivery` has the links and
hears the bell, `core/penstock/store/sender.py` makes the passes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError
from penstock.store.node_clock import HeardClock
from penstock.store.port import Answer, Moved, NodeStore, Outgoing, OutgoingTargets
from penstock.store.sender import (
    PAIRS_A_LOOK,
    TAKES_NOTHING,
    TARGETS_A_LOOK,
    Obstacle,
    Pair,
    deliver_pairs,
    waiting_pairs,
)

_LOG = logging.getLogger(__name__)

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


@dataclass(slots=True)
class DeliveryCount:
    """Totals of one link since the agent's start; read by any thread. `lag_us` is of the newest pass."""

    entries: int = 0
    passes: int = 0
    lag_us: int = 0
    stuck_pairs: int = 0
    obstacle: str = ""


class Exchange(Protocol):
    """What a link needs of the delivery that it is a part of. Any thread may use it."""

    own_url: str
    address_of: Callable[[str], str | None]
    open_store: Callable[[str], NodeStore]
    clock_s: Callable[[], float]
    """Never goes back."""

    def home_of(self, target: str) -> str | None: ...

    def refused(self, target: str, peer: str, answer: Answer | Moved) -> None:
        """Learn where the target may be."""

    def unreachable(self, target: str, peer: str) -> None:
        """Learn that the target cannot be asked for at this store."""

    def reroute(self, pairs: Iterable[Pair], targets: Iterable[str] = ()) -> None:
        """Offer them to the links where they belong now."""

    def look_again(self) -> None:
        """What was offered may have been lost."""


class Link:
    """`offer`, `retry`, `stop` and `end_if_idle` are for any thread; `run` is what its own one does."""

    def __init__(self, peer: str, exchange: Exchange) -> None:
        self.peer = peer
        self.count = DeliveryCount()
        self.ending = threading.Event()
        """Set when nothing is to be begun any more."""
        self._exchange = exchange
        self._clock_s = exchange.clock_s
        self._clock = HeardClock()
        self._condition = threading.Condition()
        self._offered: dict[Pair, None] = {}
        self._targets: dict[str, None] = {}
        self._arrived: set[str] = set()
        self._is_working = True
        self._runs = 0
        self._source: NodeStore | None = None
        self._target: NodeStore | None = None
        self._address: str | None = None
        self._stuck: dict[Pair, Obstacle] = {}
        self._parked: dict[str, None] = {}
        self._takes_nothing = False
        self._moved: set[str] = set()
        self._pause_s = _PAUSE_S_MIN
        self._retry_at_s: float | None = None
        self._look_not_before_s = float("-inf")
        self._look_due_s: float | None = None
        self._said = ""

    def offer(self, pairs: Iterable[Pair], targets: Iterable[str] = ()) -> None:
        with self._condition:
            self._offered.update(dict.fromkeys(pairs))
            self._targets.update(dict.fromkeys(targets))
            self._condition.notify()

    def retry(self, shard: str) -> None:
        """Try what is stuck again, if any of it is for this shard."""
        with self._condition:
            self._arrived.add(shard)
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self.ending.set()
            self._condition.notify()

    def end_if_idle(self) -> bool:
        """End the thread if nothing is left for this store; True when it ends."""
        with self._condition:
            if self._is_working or self._offered or self._targets or self._stuck or self._parked:
                return False
            self.ending.set()
            self._condition.notify()
            return True

    @property
    def has_news(self) -> bool:
        """Whether a turn would have something to do, whatever the time is."""
        return bool(self._offered or self._targets or self._arrived)

    def run(self) -> None:
        """Turn after turn until it is stopped, or has ended because it was idle."""
        self.begin()
        try:
            wait_s: float | None = 0.0
            while self._wait(wait_s):
                wait_s = self.turn()
        finally:
            self.end()

    def _wait(self, timeout_s: float | None) -> bool:
        """For something to do, at most so long; False when it is time to end."""
        with self._condition:
            if not (self.has_news or self.ending.is_set()):
                self._condition.wait(timeout_s)
            return not self.ending.is_set()

    def begin(self) -> None:
        """Open what turns need."""
        self._source = self._exchange.open_store(self._exchange.own_url)
        self._pause_s, self._retry_at_s = _PAUSE_S_MIN, None
        if self._runs:
            # A bug may have left anything half done: nothing counts of what was in hand.
            self._stuck, self._parked, self._takes_nothing, self._look_due_s = {}, {}, False, None
            self._exchange.look_again()
        self._runs += 1

    def end(self) -> None:
        """Close the connections."""
        for store in (self._source, self._target):
            if store is not None:
                store.close()
        self._source = self._target = self._address = None

    def turn(self) -> float | None:
        """Deliver what was offered, and try what is stuck if it is time. Answers for how long, in seconds,
        there is nothing to do unless something is offered; None: for ever."""
        offered, targets, arrived = self._take()
        source = self._source
        if self.ending.is_set() or source is None:
            return None
        fresh = [pair for pair in offered if pair not in self._stuck]
        began_s = self._clock_s()
        is_retry = self._retry_at_s is not None and began_s >= self._retry_at_s
        is_retry = is_retry or any(target in arrived for _, target in self._stuck)
        progress = self._work(source, fresh, targets, is_retry=is_retry)
        self.count.stuck_pairs = len(self._stuck) + len(self._parked)
        self.count.obstacle = str(next(iter(self._stuck.values()), ""))
        self._plan_retry(began_s, progress=progress, is_retry=is_retry)
        with self._condition:
            self._is_working = False
        due_s = [at_s for at_s in (self._retry_at_s, self._look_due_s) if at_s is not None]
        return max(0.0, min(due_s) - self._clock_s()) if due_s else None

    def _take(self) -> tuple[list[Pair], list[str], set[str]]:
        """Pairs and targets that were offered, shards that have arrived."""
        with self._condition:
            pairs, targets, arrived = list(self._offered), list(self._targets), set(self._arrived)
            self._offered.clear()
            self._targets.clear()
            self._arrived.clear()
            self._is_working = True
            return pairs, targets, arrived

    def _plan_retry(self, began_s: float, *, progress: bool, is_retry: bool) -> None:
        """When to try what is stuck again, after a turn that began then."""
        if progress:
            self._pause_s = _PAUSE_S_MIN
        if not self._stuck and not self._parked:
            # The pause stays as it is: pairs that are handed to and fro come back at once.
            self._retry_at_s = None
        elif is_retry or self._retry_at_s is None:
            reasons = set(self._stuck.values())
            longest_s = max((_PAUSE_S_MAX.get(why, _PAUSE_S_MAX_ELSE) for why in reasons), default=0.0)
            self._pause_s = _PAUSE_S_MIN if progress else min(2 * self._pause_s, longest_s)
            if Obstacle.UNKNOWN in reasons:
                self._pause_s = max(self._pause_s, _PAUSE_S_UNKNOWN)
            now_s = self._clock_s()
            cost_s = 0.0 if progress else now_s - began_s
            self._retry_at_s = now_s + max(self._pause_s, min(_COST_FACTOR * cost_s, _COST_PAUSE_S_MAX))

    def _work(self, source: NodeStore, fresh: list[Pair], targets: list[str], *, is_retry: bool) -> bool:
        """A pass over what is new and, when it is time, a try of what is stuck; True when something went."""
        progress = False
        try:
            self._reach()
            if is_retry:
                self._hand_over(self._stuck)
                self._hand_over_parked()
                if self._stuck:
                    progress = self._pass(source, list(self._stuck), _PROBE_BYTES)
            if fresh:
                progress = self._pass(source, fresh, _BYTES_MAX) or progress
            if targets or self._parked:
                progress = self._pass_targets(source, targets) or progress
            if self._moved:
                self._hand_over([pair for pair in self._stuck if pair[1] in self._moved])
                self._moved.clear()
            is_due = self._look_due_s is not None and self._clock_s() >= self._look_due_s
            if progress or is_due:
                self._look(source)
        except PenstockError as error:
            if str(error) != self._said:
                self._said = str(error)
                _LOG.warning("delivery to store %s has to wait: %s", self.peer, error)
            self._stuck.update(dict.fromkeys(fresh, Obstacle.UNREACHABLE))
            self._parked.update(dict.fromkeys(targets))
            # a pass may have left something behind before it came to that, and nothing was looked for since
            self._exchange.look_again()
        return progress

    def _reach(self) -> None:
        """Have a connection to where the store is now."""
        address = self._exchange.address_of(self.peer)
        if address != self._address:
            if self._target is not None:
                self._target.close()
            self._target = self._exchange.open_store(address) if address else None
            self._address = address

    def _pass_targets(self, source: NodeStore, targets: Iterable[str]) -> bool:
        """A pass over all pairs of these targets and of the parked ones, until the store takes nothing."""
        waiting = list(dict.fromkeys((*targets, *self._parked)))
        self._parked = dict.fromkeys(waiting)
        progress = False
        while waiting and not self._takes_nothing:
            some, waiting = waiting[:TARGETS_A_LOOK], waiting[TARGETS_A_LOOK:]
            for pairs in waiting_pairs(source, some):
                fresh = [
                    pair
                    for pair in pairs
                    if pair not in self._stuck and self._exchange.home_of(pair[1]) == self.peer
                ]
                if fresh:
                    progress = self._pass(source, fresh, _BYTES_MAX) or progress
                if self._takes_nothing:
                    break
            else:
                for target in some:
                    del self._parked[target]
        return progress

    def _look(self, source: NodeStore) -> None:
        """Whoever came to wait for the same target while a pass was under way rang no bell.

        Where much waits a look is no small thing, and is put off until it is a tenth of the time at most.
        """
        began_s = self._clock_s()
        if began_s < self._look_not_before_s:
            self._look_due_s = self._look_not_before_s
            return
        self._look_due_s = None
        home_of = self._exchange.home_of
        pairs = source.call(Outgoing(PAIRS_A_LOOK))
        if len(pairs) < PAIRS_A_LOOK:
            self.offer(pair for pair in pairs if home_of(pair[1]) == self.peer)
            return
        targets = source.call(OutgoingTargets())
        self.offer((), (target for target in targets if home_of(target) == self.peer))
        now_s = self._clock_s()
        self._look_not_before_s = now_s + _COST_FACTOR * (now_s - began_s)

    def _pass(self, source: NodeStore, pairs: Sequence[Pair], bytes_max: int) -> bool:
        exchange, target = self._exchange, self._target

        def home_of(shard: str) -> NodeStore | None:
            return target if exchange.home_of(shard) == self.peer else None

        def refused(shard: str, answer: Answer | Moved) -> None:
            if isinstance(answer, Moved):
                self._moved.add(shard)
            exchange.refused(shard, self.peer, answer)

        # another pair comes first each time: a target that has little room has it for all in turn
        first = self.count.passes % len(pairs)
        pairs = [*pairs[first:], *pairs[:first]]
        self.count.passes += 1
        if target is None:
            obstacles, went, entries = dict.fromkeys(pairs, Obstacle.UNREACHABLE), False, 0
        else:
            delivered = deliver_pairs(source, home_of, pairs, bytes_max=bytes_max, refused=refused)
            obstacles, entries = delivered.obstacles, delivered.entries
            went = delivered.more or entries > 0
            self.count.entries += entries
            if delivered.oldest_us:
                self._said = ""
                self.count.lag_us = max(0, self._clock.now_us(source) - delivered.oldest_us)
        for pair in pairs:
            self._stuck.pop(pair, None)
        self._stuck.update(obstacles)
        self._takes_nothing = not TAKES_NOTHING.isdisjoint(obstacles.values())
        if not went and len(obstacles) < len(pairs):
            # Something has gone without us, as with its producer; who waits behind it rang no bell.
            self._look_due_s = self._clock_s()
        for shard in {shard for (_, shard), why in obstacles.items() if why is Obstacle.UNREACHABLE}:
            exchange.unreachable(shard, self.peer)
        return went

    def _hand_over(self, pairs: Iterable[Pair]) -> None:
        """Give pairs that belong to another link by now to that."""
        others = [pair for pair in pairs if self._exchange.home_of(pair[1]) not in {self.peer, None}]
        for pair in others:
            del self._stuck[pair]
        self._takes_nothing = self._takes_nothing and bool(self._stuck)
        if others:
            self._exchange.reroute(others)

    def _hand_over_parked(self) -> None:
        others = [one for one in self._parked if self._exchange.home_of(one) not in {self.peer, None}]
        for target in others:
            del self._parked[target]
        if others:
            self._exchange.reroute((), others)
