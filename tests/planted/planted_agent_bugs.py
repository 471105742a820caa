"""Faults of a node agent that the simulation must catch, planted in the product's own parts.

`planted_bugs` has those of stores, `planted_move_bugs` those of moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.store.port import Acknowledge, Append, NodeStore, ReadOutbox, ShardStatus, StoreUnreachable
from penstock.store.sender import Delivered, HomeOf, Pair, Refused
from penstock_operator.agent import decisions
from penstock_operator.agent.link import Link
from penstock_operator.agent.routes import Routes
from penstock_operator.agent.schedule_feed import Object, ScheduleCache, SeenSchedule
from penstock_operator.agent.store_side import StoreSide
from penstock_simulation.protocol.agent_parts import AgentParts, HostedDelivery
from penstock_simulation.protocol.world import Parts


class AcknowledgesFirst(Link):
    """The outbox is trimmed before the target has the entries."""

    def _deliver(
        self, source: NodeStore, home_of: HomeOf, pairs: Sequence[Pair], bytes_max: int, refused: Refused
    ) -> Delivered:
        for producer, target in pairs:
            home = home_of(target)
            waiting = source.call(ReadOutbox(producer, target, bytes_max))
            if home is not None and waiting:
                source.call(Acknowledge(producer, target, waiting[-1][0]))
                home.pipeline([Append(producer, target, n, p, rows, us) for n, us, rows, p in waiting])
        return Delivered(0, more=False, obstacles={})


class LooksForNothingAfterAFault(Link):
    """When its own store fails, what an earlier try of the same turn has left is not looked for."""

    def _work(self, source: NodeStore, fresh: list[Pair], targets: list[str], *, is_retry: bool) -> bool:
        look_again, self._exchange.look_again = self._exchange.look_again, lambda: None  # type: ignore[method-assign]
        try:
            return super()._work(source, fresh, targets, is_retry=is_retry)
        finally:
            self._exchange.look_again = look_again  # type: ignore[method-assign]


class KeepsRoutes(Routes):
    """Whoever is known to have been at another store than the schedule says is always sought there."""

    def _set(self, shard: str, store: str, home: str | None) -> None:
        if store != home:
            super()._set(shard, store, home)


class ForgetsTheBell(HostedDelivery):
    """The bell rang, and the look that it rang for failed: it is not made again."""

    def _look(self, store: NodeStore) -> None:
        try:
            super()._look(store)
        except StoreUnreachable:
            self._look_now = False
            raise


class TakesThePast(ScheduleCache):
    """An object that is told as it was before takes the place of what it is."""

    def _take(self, item: Object) -> None:
        self._seen.pop(item["metadata"]["name"], None)
        super()._take(item)


class NotesBeforehand(StoreSide):
    """What a turn is about to do counts as done, whatever the store answers."""

    notes_made = notes_published = False

    def _bring_up(
        self, uid: str, schedules: Sequence[SeenSchedule], *, may_create: bool
    ) -> dict[str, ShardStatus] | None:
        for seen in schedules:
            step = decisions.step_for(seen, self._node, self._store_id, self._standing_of(seen))
            before, version = self._standing_of(seen), seen.schedule.version
            try:
                statuses = super()._bring_up(uid, [seen], may_create=may_create)
            except StoreUnreachable:
                self._note(
                    seen,
                    created=version if step.create and self.notes_made else before.created,
                    published=version if step.publish and self.notes_published else before.published,
                )
                raise
        return statuses if len(schedules) == 1 else None


class ReportsTheUnmade(NotesBeforehand):
    """Shards are reported as made by a store that never answered."""

    notes_made = True


class ReportsTheRefused(NotesBeforehand):
    """A schedule is reported as applied that the store did not take."""

    notes_published = True


AGENT_BUGS = {
    "acknowledged before it is delivered": Parts(agent=AgentParts(link=AcknowledgesFirst)),
    "nothing looked for after a fault": Parts(agent=AgentParts(link=LooksForNothingAfterAFault)),
    "a route kept after MOVED": Parts(moves=True, agent=AgentParts(routes=KeepsRoutes)),
    "a bell forgotten when the look failed": Parts(agent=AgentParts(delivery=ForgetsTheBell)),
    "an old schedule taken for the newest": Parts(moves=True, agent=AgentParts(cache=TakesThePast)),
    "shards reported before they are made": Parts(agent=AgentParts(side=ReportsTheUnmade)),
    "a schedule reported that the store refused": Parts(agent=AgentParts(side=ReportsTheRefused)),
}
