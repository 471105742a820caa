"""Faults of a node's agent that the simulation must catch, planted in the product's own parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.schedule.record import AppliedPlace
from penstock.store.port import Acknowledge, Answer, Append, Create, Moved, NodeStore, ReadOutbox
from penstock.store.sender import Pair
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.link import Link
from penstock_operator.agent.moving import MoveDriver
from penstock_operator.agent.reports import Reports
from penstock_operator.agent.routes import Routes
from penstock_operator.agent.schedule_feed import SeenSchedule, Snapshot
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import DueMove, StoreSide, Turn
from penstock_operator.agent.store_turns import StoreTurns
from penstock_simulation.protocol.hosted_agent import AgentParts
from penstock_simulation.protocol.world import Parts


class _PlantedDelivery(TopologyDelivery):
    link: type[Link]

    def _new_link(self, peer: str) -> Link:
        return self.link(peer, self)


class _Planted(Deliveries):
    """Whose routes and links are of other kinds."""

    routes: type[Routes] = Routes
    link: type[Link] = Link

    def _begin(self, uid: str) -> tuple[Routes, TopologyDelivery]:
        routes, delivery = super()._begin(uid)
        routes.__class__ = self.routes
        delivery.__class__, delivery.link = _PlantedDelivery, self.link
        return routes, delivery


class _AcknowledgesFirst(Link):
    def _pass(self, source: NodeStore, pairs: Sequence[Pair], bytes_max: int) -> bool:
        target = self._target
        for producer, shard in pairs:
            waiting = source.call(ReadOutbox(producer, shard, bytes_max))
            if target is not None and waiting:
                source.call(Acknowledge(producer, shard, waiting[-1][0]))
                target.pipeline([Append(producer, shard, n, p, rows, us) for n, us, rows, p in waiting])
        return super()._pass(source, pairs, bytes_max)


class AcknowledgesFirst(_Planted):
    """An outbox is trimmed before the target has the entries."""

    link = _AcknowledgesFirst


class _ForgetsStuck(Link):
    def _plan_retry(self, began_s: float, *, progress: bool, is_retry: bool) -> None:
        self._stuck.clear()
        super()._plan_retry(began_s, progress=progress, is_retry=is_retry)


class ForgetsWhatIsStuck(_Planted):
    """A link that could not deliver waits for the bell, which does not ring again."""

    link = _ForgetsStuck


class _NeverLooks(Link):
    def _look(self, source: NodeStore) -> None:
        pass


class NeverLooksAgain(_Planted):
    """What came to wait during a pass, behind what the pass took, rang no bell and is forgotten."""

    link = _NeverLooks


class _LearnsNothing(Routes):
    def refused(self, shard: str, asked: str, answer: Answer | Moved) -> None:
        pass

    def moved(self, shard: str, store_id: str) -> None:
        pass


class LearnsNothing(_Planted):
    """Where a shard that moves is, is never found out: entries go to where it was."""

    routes = _LearnsNothing


class MakesMissingShards(StoreSide):
    """A shard whose home this store is, and that it lacks, is made: also one that is on its way."""

    def turn(
        self, snapshot: Snapshot, opened: OpenedStore, now_s: float, unlisted: frozenset[str] = frozenset()
    ) -> Turn:
        for seen in snapshot.schedules.values():
            homes = seen.schedule.shards.items()
            here = [shard for shard, place in homes if place.home == self._store_id]
            store = self._store(seen.topology_uid)
            if snapshot.listing and seen.schedule.version > 1:
                store.pipeline([Create(shard, source=seen.schedule.is_source) for shard in here])
        return super().turn(snapshot, opened, now_s, unlisted)


class PublishesUnconfirmed(StoreSide):
    """A schedule is published as soon as its shards were asked for, whether that was reported or not."""

    def _note(self, seen: SeenSchedule, *, created: int = 0, published: int = 0) -> None:
        super()._note(seen, created=created, published=created or published)


class ForgetsReports(Reports):
    """A report that was not written is not written again."""

    def due(self) -> list[tuple[SeenSchedule, AppliedPlace]]:
        told = super().due()
        self._told.clear()
        return told


class NeverTriesAMoveAgain(MoveDriver):
    """A move that met an obstacle is left alone."""

    def end(self, move: DueMove, again_s: float | None) -> None:
        super().end(move, again_s)
        if again_s is not None:
            self._not_before_s[move.topology_uid, move.shard] = float("inf")


class RemembersAcrossStarts(StoreTurns):
    """What was done to the first start of the store that was seen counts for all."""

    _first: OpenedStore | None = None

    def turn(self, opened: OpenedStore) -> Turn:
        self._first = self._first or opened
        return super().turn(self._first)


def _agent(*, moves: bool = False, **parts: Any) -> Parts:
    return Parts(moves=moves, agent=AgentParts(**parts))


AGENT_BUGS = {
    "acknowledged before it is delivered": _agent(deliveries=AcknowledgesFirst),
    "what is stuck is forgotten": _agent(deliveries=ForgetsWhatIsStuck),
    "nobody looks for who came during a pass": _agent(deliveries=NeverLooksAgain),
    "nothing is learned of moves": _agent(moves=True, deliveries=LearnsNothing),
    "a shard on its way is made anew": _agent(moves=True, side=MakesMissingShards),
    "published before the birth is confirmed": _agent(side=PublishesUnconfirmed),
    "a report is written once": _agent(reports=ForgetsReports),
    "a move is tried once": _agent(moves=True, driver=NeverTriesAMoveAgain),
    "a restart of the store is not noticed": _agent(turns=RemembersAcrossStarts),
}
