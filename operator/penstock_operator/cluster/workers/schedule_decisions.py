"""Which schedules are to be: first ones, and those that follow from who hosts and what is wanted.

Pure. Neighbours: `penstock.supervision` says who hosts, when what was decided is settled, and when announced
executors take their shards; `penstock.schedule.planner` says what runs where, `decisions.schedule_writing`
makes objects of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import Host, Wish
from penstock.schedule.naming import forget_stores
from penstock.schedule.planner import plan
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, StorePlace
from penstock.supervision.bringing_up import next_step
from penstock.supervision.hosts import Hosts
from penstock.supervision.settled import Settling, settling
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker
from penstock_operator.cluster.observing.observed import Observed, stores_there
from penstock_operator.cluster.workers.pods import worker_place


def settling_of(observed: Observed, since: SinceWhen) -> Settling:
    """Whether the Schedules that stand are applied, by the stores that are there with their nodes."""
    there = stores_there(observed.nodes, observed.stores)

    def is_there(store: StorePlace) -> bool:
        return store.id in there

    return settling(((seen.schedule, seen.applied) for seen in observed.schedules), is_there, since)


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
        self._pods = {pod.name: pod for pod in observed.pods}
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
        changes = []
        for wish in able:
            change = self._change(old.get(wish.operator), planned[wish.operator], is_urgent=hosts.is_urgent)
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
        step = next_step(old, planned, self._is_up, self._since, is_urgent=is_urgent)
        if step.is_warming:
            self.warming.append(planned.operator)
        return step.schedule if step.schedule is not old else None

    def _is_up(self, executor: ExecutorPlace) -> bool:
        """Whether its pod says that its tasks run."""
        pod = self._pods.get(executor.worker)
        reading = self._observed.readings.get(pod.store) if pod is not None else None
        row = reading.workers.get(executor.worker) if reading is not None else None
        is_its_own = row is not None and pod is not None and row.uid == pod.uid
        return is_its_own and row is not None and bool(row.tasks.get(executor.name))

    def _host(self, worker: Worker, *, is_pinned: bool) -> Host:
        place = worker_place(worker, self._observed.schedules)
        store = self._stores.get(place.store) or StorePlace(place.store, place.node, "")
        return Host(place, store, self._room, is_pinned)
