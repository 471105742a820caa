"""Which schedules are to be: first ones, and those that follow from who hosts and what is wanted.

New executors are announced without shards first, and take theirs once their tasks are up (not when a worker
died: then shards go at once). A Schedule is settled when every store that it names and that is there has
applied it and has nothing on the move; until all are, no new placement decision is made, except for
the dead, and except after a deadline. Pure. Neighbours: `penstock.schedule.planner` says what runs where,
`decisions.schedule_writing` makes objects of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.schedule.announcing import announce, announced_executors
from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import Host, Wish
from penstock.schedule.naming import forget_stores
from penstock.schedule.planner import plan
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock_operator.cluster.observing.observed import Observed, ObservedSchedule
from penstock_operator.cluster.workers.groups import Hosts
from penstock_operator.cluster.workers.workers import SinceWhen, Worker, worker_place

WARM_S = 15.0
"""Executors that were announced take their shards after this time, their tasks up or not."""
TREATMENT_DEADLINE_S = 120.0
"""What has not settled by then does not hold up other decisions any more."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Whether what was decided last has been done. `waits` says in words what for, `shards_moving` over all
    Schedules; `is_overdue` after the deadline. `is_complete`: also by stores that are away."""

    waits: tuple[str, ...]
    shards_moving: Mapping[str, int]
    is_overdue: bool
    is_complete: bool

    @property
    def may_change(self) -> bool:
        return not self.waits or self.is_overdue


def settling(observed: Observed, schedules: Sequence[ObservedSchedule], since: SinceWhen) -> Settling:
    there = {store.id for store in observed.stores if store.ready}
    nodes_there = {node.name for node in observed.nodes if node.ready}
    waits: list[str] = []
    moving: dict[str, int] = {}
    is_complete = True
    for seen in schedules:
        applied = {place.node: place for place in seen.applied}
        schedule = seen.schedule
        moving[schedule.operator] = sum(place.shards_moving for place in seen.applied)
        for store in schedule.stores:
            place = applied.get(store.node)
            has_applied = place is not None and place.version >= schedule.version
            if has_applied and place is not None and place.shards_moving == 0:
                continue
            is_complete = False
            if store.id not in there or store.node not in nodes_there:
                continue
            if has_applied and place is not None:
                waits.append(f"{place.shards_moving} shards of {schedule.operator} leave node {store.node}")
            else:
                told = f"has not applied version {schedule.version} of {schedule.operator}"
                waits.append(f"the store of node {store.node} {told}")
    is_overdue = bool(waits) and since.lasts_s("unsettled") >= TREATMENT_DEADLINE_S
    return Settling(tuple(waits), moving, is_overdue, is_complete)


class ScheduleChanges:
    """What is common to the schedules of one topology at one look. `book` has them as they stand."""

    def __init__(
        self,
        observed: Observed,
        book: ScheduleBook,
        settled: Settling,
        tasks_per_worker: int,
        since: SinceWhen,
    ) -> None:
        self._observed = observed
        self._book = book
        self._settled = settled
        self._room = tasks_per_worker
        self._since = since
        self.warming: list[str] = []
        """Operators whose new executors have yet to start their tasks."""
        self._stores = {
            store.id: StorePlace(store.id, store.node, store.address) for store in observed.stores
        }
        for schedule in book.schedules.values():
            for store in schedule.stores:
                self._stores.setdefault(store.id, store)

    def of_group(self, wishes: Sequence[Wish], hosts: Hosts) -> list[OperatorSchedule]:
        """Of the operators of one group. An operator that has no schedule yet needs an active host."""
        standing = self._book.schedules
        old = {wish.operator: standing[wish.operator] for wish in wishes if wish.operator in standing}
        able = [wish for wish in wishes if wish.operator in old or hosts.active]
        places = [self._host(worker, is_pinned=False) for worker in hosts.active]
        places += [self._host(worker, is_pinned=True) for worker in hosts.pinned]
        if not any(not place.is_pinned for place in places):
            able = [wish for wish in able if wish.operator in old]
        planned = plan(old, able, places, unborn=self._book.unborn(old))
        is_urgent = any(worker.executors for worker in hosts.leaving if not self._is_up(worker))
        changes = []
        for wish in able:
            change = self._change(old.get(wish.operator), planned[wish.operator], is_urgent=is_urgent)
            if change is not None:
                changes.append(change)
        return changes

    def _change(
        self, old: OperatorSchedule | None, planned: OperatorSchedule, *, is_urgent: bool
    ) -> OperatorSchedule | None:
        if old is None:
            return planned
        if planned is old:
            planned = forget_stores(old) if self._settled.is_complete else old
            return planned if planned is not old else None
        news = [] if is_urgent else self._not_up(old, planned)
        if news and self._since.lasts_s(f"announced:{planned.operator}") < WARM_S:
            self.warming.append(planned.operator)
            announced = announce(old, planned)
            return announced if announced is not old else None
        return planned

    def _not_up(self, old: OperatorSchedule, planned: OperatorSchedule) -> list[str]:
        """New executors of `planned` whose tasks do not run yet."""
        worker_of = {executor.name: executor.worker for executor in planned.executors}
        pods = {pod.name: pod for pod in self._observed.pods}
        waiting = []
        for name in announced_executors(old, planned):
            pod = pods.get(worker_of[name])
            reading = self._observed.readings.get(pod.node) if pod is not None else None
            row = reading.workers.get(worker_of[name]) if reading is not None else None
            if row is None or pod is None or row.uid != pod.uid or not row.tasks.get(name):
                waiting.append(name)
        return waiting

    def _is_up(self, worker: Worker) -> bool:
        return worker.pod is not None and worker.state.value == "ready"

    def _host(self, worker: Worker, *, is_pinned: bool) -> Host:
        place = worker_place(worker, self._observed.schedules)
        store = self._stores.get(worker.node) or StorePlace(worker.node, worker.node, "")
        return Host(place, store, self._room, is_pinned)
