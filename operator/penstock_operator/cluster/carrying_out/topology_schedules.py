"""A topology's Schedules as the mirror has them, and how one that an SLA decided on gets among them.

A write rests on what was seen: where somebody else's comes first, it is refused. Neighbours: `sla.keeper`
writes, `apply` carries out; `decisions.schedule_writing` makes objects of what the book writes, `homes` puts
homes beside executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.schedule.homes import placed_beside
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.decisions.schedule_writing import book_of, write_schedule
from penstock_operator.cluster.observing.observed import ObservedSchedule, ObservedTopology


class TopologySchedules:
    """Of one topology. `seen` answers them as they are now; `term` is the leader's."""

    def __init__(
        self,
        applier: Applier,
        seen: Callable[[], tuple[ObservedSchedule, ...]],
        namespace: str,
        term: int,
    ) -> None:
        self._applier = applier
        self._seen = seen
        self._namespace = namespace
        self._term = term

    def seen(self) -> tuple[ObservedSchedule, ...]:
        """As the mirror has them now."""
        return self._seen()

    async def write(
        self, schedule: OperatorSchedule, observed: ObservedTopology, stores: Mapping[str, StorePlace]
    ) -> bool:
        """Whether the schedule was taken. `stores` are those that are there, by id. Raises
        LeaseLost, and the cluster's errors."""
        found = {seen.schedule.operator: seen for seen in self._seen()}
        seen = found.get(schedule.operator)
        topology, plan = observed.topology, observed.plan
        if seen is None or topology is None or plan is None:
            return False
        old = seen.schedule
        stores = {store.id: store for store in old.stores} | dict(stores)
        workers = {executor.worker for executor in schedule.executors}
        beside = {place.store for place in schedule.workers if place.name in workers}
        book = book_of([seen])
        if not book.is_current(schedule) or not beside <= stores.keys():
            return False
        placed = placed_beside(old, schedule, stores)
        leaves = {one for one, place in old.shards.items() if placed.shards[one].home != place.home}
        if leaves & book.unborn([schedule.operator]):
            return False
        # The topology's own loop says where tasks run: until it has looked, they are where they were.
        written = book.written([placed], term=self._term).schedules
        if not written:
            return True
        (new,) = written
        action = write_schedule(
            new,
            seen,
            topology,
            plan,
            topology_uid=observed.uid,
            state_uid=seen.topology_uid,
            namespace=self._namespace,
        )
        return not (await self._applier.carry_out([action])).stopped
