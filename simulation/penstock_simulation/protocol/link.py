"""An actor's connection to a store: what it sends is on its way for a while, and others act meanwhile.

Calls and answers travel in order, as on one connection: `post` sends and goes on, and what was sent takes
effect at any later moment, at the latest when its answers are waited for. A call that fails takes all behind
it on the connection along. While an actor waits the world lets others act (`World.pass_turn`), within this
very call; so everything runs in one thread, in an order that the seed alone decides. The effects of calls
fall anywhere between those of others. But who acted during a call is done with its turn before the caller
goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from penstock.store.port import NodeStore, Request, StoreFull, StoreUnreachable
from penstock_simulation.protocol.node import SimulatedNode

if TYPE_CHECKING:
    from penstock_simulation.protocol.world import World

A = TypeVar("A")


class ActorGone(BaseException):
    """Whoever waits for an answer is dead: nothing of it goes on. Nobody but its host catches this."""


class Watcher(Protocol):
    """Sees an actor's calls."""

    def took_effect(self, calls: Sequence[Request[Any]], answers: list[Any]) -> None:
        """The store carried the calls out; the actor does not know yet."""

    def told(self, calls: Sequence[Request[Any]], answers: list[Any], order: int) -> None:
        """The actor has its answers; effects were in this order over all stores."""

    def failed(self) -> None:
        """The actor knows that a call failed, or its answer."""


class _Flight:
    """Calls on their way: `answers` once they took effect, or `error`."""

    __slots__ = ("answers", "calls", "error", "log_length", "order", "starts")

    def __init__(self, calls: Sequence[Request[Any]]) -> None:
        self.calls = calls
        self.answers: list[Any] | None = None
        self.error: StoreUnreachable | StoreFull | None = None
        self.starts = self.log_length = self.order = 0


class Link(NodeStore):
    """It breaks when the store restarts, and comes back at once.

    `before` runs ahead of every round trip. `is_gone`: its actor is dead; `stops_until` is the turn up to
    which its actor is stopped.
    """

    def __init__(
        self,
        node: SimulatedNode,
        who: str,
        world: World,
        *,
        before: Callable[[], None] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.node = node
        self.is_gone = False
        self.stops_until = 0
        self._who = who
        self._world = world
        self._before = before
        self._watcher = watcher
        self._starts = node.starts
        self._sent: deque[_Flight] = deque()
        """What is on its way to the store, in order."""
        self._is_broken = False

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises StoreUnreachable."""
        return cast("A", self.pipeline((call,))[0])

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order. Raises StoreUnreachable, after any number of them."""
        return self.post(calls)()

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Send calls, and go on; the callable waits until they took effect, and raises StoreUnreachable."""
        if self.is_gone:
            # Who calls user code takes whatever it raises for its fault, and would report that.
            raise ActorGone
        if not calls:
            return list
        flight = _Flight(calls)
        self._sent.append(flight)
        self._world.sent(self)
        return partial(self._answers, flight)

    def deliver_first(self) -> None:
        """What was sent first takes effect, or gets lost."""
        flight = self._sent.popleft()
        if not self._sent:
            self._world.arrived(self)
        node = self.node
        if self._is_broken or self._starts != node.starts:
            flight.error = StoreUnreachable("connection broken")
            self._is_broken = True
            return
        try:
            flight.answers = answers = node.carry_out(flight.calls)
        except StoreUnreachable as error:
            flight.error = error
            self._is_broken = True
        except StoreFull as error:
            flight.error = error
        else:
            flight.starts, flight.log_length = node.starts, node.log_length
            flight.order = self._world.next_order()
            if self._watcher is not None:
                self._watcher.took_effect(flight.calls, answers)

    def close(self) -> None:
        """Nothing to close."""

    def _answers(self, flight: _Flight) -> list[Any]:
        world = self._world
        if self._before is not None:
            self._before()
        world.pass_turn(self)
        while flight.answers is None and flight.error is None:
            self.deliver_first()
        world.answers_on_their_way(self)
        if self.is_gone:
            raise ActorGone
        answers = flight.answers
        if answers is None or flight.starts != self.node.starts:
            error = flight.error or StoreUnreachable("connection broken before the reply")
            world.trace.calls(self._who, self.node.name, flight.calls, error)
            if isinstance(error, StoreUnreachable):
                self._give_up()
            raise error
        self.node.note_seen(flight.log_length)
        world.trace.calls(self._who, self.node.name, flight.calls, answers)
        if self._watcher is not None:
            self._watcher.told(flight.calls, answers, flight.order)
        return answers

    def _give_up(self) -> None:
        """A new connection: what is still on its way on the old one does not arrive."""
        for flight in self._sent:
            flight.error = StoreUnreachable("connection broken")
        self._sent.clear()
        self._world.arrived(self)
        self._is_broken = False
        self._starts = self.node.starts
        if self._watcher is not None:
            self._watcher.failed()
