"""Schedules of a topology that cannot be decided about now, or that nobody runs: off nodes that go, too.

A node that is drained waits for no mended manifest. Work goes from workers on such nodes to those that run
elsewhere, as they are, and shards that no worker runs get another home. No worker is made: what it would be
made from is not known. Pure. Neighbours: `decide` asks where it touches nothing else,
`penstock.schedule.rehoming` finds homes, `stores.retained_homes` asks for Schedules without a Topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock.api.pods.pod_settings import PodSettings
from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import Manner, Wish
from penstock.schedule.naming import forget_stores
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock.schedule.rehoming import rehomed
from penstock.supervision.hosts import Group, choose_hosts
from penstock.supervision.numbers import workers_to_end
from penstock.supervision.settled import Settling
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker
from penstock_operator.cluster.decisions.actions import DeletePod, WriteSchedule
from penstock_operator.cluster.decisions.schedule_writing import book_of, rewrite_schedule
from penstock_operator.cluster.observing.observed import (
    Observed,
    ObservedNode,
    ObservedSchedule,
    ObservedStore,
    stores_there,
)
from penstock_operator.cluster.workers.node_room import PlacementRules
from penstock_operator.cluster.workers.pods import judge_workers
from penstock_operator.cluster.workers.schedule_decisions import ScheduleChanges, settling_of

_ANY_ROOM = 1 << 20
"""Who took on too much is better off than who is drained with its work."""


def off_leaving_nodes(
    observed: Observed, rules: PlacementRules, since: SinceWhen
) -> tuple[WriteSchedule | DeletePod, ...]:
    """What is done for the Schedules of `observed`, whatever its Topology means. `rules` say which nodes are
    to be left, and which stores do."""
    settled, book = settling_of(observed, since), book_of(observed.schedules)
    workers = judge_workers(observed, observed.schedules, None, since, rules, balances=False)
    changes: dict[str, OperatorSchedule] = {}
    ends: list[DeletePod] = []
    if any(worker.is_there for worker in workers):
        planned = ScheduleChanges(observed, book, settled, _ANY_ROOM, since)
        for group in sorted({worker.group for worker in workers}):
            own = [worker for worker in workers if worker.group == group]
            hosting = Group(group, sum(worker.holds_executors for worker in own), 0)
            hosts = choose_hosts(hosting, own, may_change=settled.may_change, has_room=False)
            if hosts.leaving and hosts.active:
                wishes = list(_as_they_are(book, own))
                changes |= {one.operator: one for one in planned.of_group(wishes, hosts)}
            gone = workers_to_end(hosting, own, hosts.staying, is_settled=settled.may_change)
            ends += [
                DeletePod(end.worker.name, end.worker.uid, end.reason)
                for end in gone
                if end.worker.must_go and end.worker.is_there
            ]
        changes = (_forgotten(book) if settled.is_complete else {}) | changes
    elif settled.may_change:
        changes = rehomed_schedules(book, settled, observed.nodes, observed.stores, rules)
    return (
        *writes(observed.schedules, book, changes.values(), observed.term, observed.namespace),
        *ends,
    )


def placement_without_topology(
    config: OperatorConfig, schedules: Iterable[ObservedSchedule]
) -> PlacementRules:
    """What the configuration says of where workers may be, and the strictest durability of the Schedules."""
    is_process = all(seen.durability == "Process" for seen in schedules)
    selector = {**config.store.node_selector, **config.worker.node_selector}
    tolerations = (*config.store.tolerations, *config.worker.tolerations)
    return PlacementRules(PodSettings(), selector, tolerations, "Process" if is_process else "Disk")


def rehomed_schedules(
    book: ScheduleBook,
    settled: Settling,
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    rules: PlacementRules,
) -> dict[str, OperatorSchedule]:
    """Operator -> its schedule, of those that change, where nobody runs any: shards leave stores that
    are to be left, those of nodes that are, and those that are on another node than their own; and stores
    that are nobody's home are named no more."""
    there = stores_there(nodes, stores)
    by_node = {node.name: node for node in nodes}
    leaving = [
        store.id
        for store in stores
        if store.id in there and (store.is_elsewhere or store.leaves or rules.sends_away(by_node[store.node]))
    ]
    targets = [
        StorePlace(store.id, store.node, store.address)
        for store in stores
        if not store.is_elsewhere
        and (node := by_node.get(store.node)) is not None
        and not rules.refuses(node, store)
    ]
    changes = rehomed(book.schedules, leaving, targets, book.unborn(book.schedules))
    return (_forgotten(book) if settled.is_complete else {}) | changes


def writes(
    seen: Iterable[ObservedSchedule],
    book: ScheduleBook,
    changes: Iterable[OperatorSchedule],
    term: int,
    namespace: str,
) -> Iterator[WriteSchedule]:
    """The changes, each over the object as it was seen: all else in it stays."""
    objects = {one.schedule.operator: one for one in seen}
    for schedule in book.written(changes, term=term).schedules:
        yield rewrite_schedule(schedule, objects[schedule.operator], namespace)


def _forgotten(book: ScheduleBook) -> dict[str, OperatorSchedule]:
    """Without the stores that have been left."""
    found = {operator: forget_stores(old) for operator, old in book.schedules.items()}
    return {operator: new for operator, new in found.items() if new is not book.schedules[operator]}


def _as_they_are(book: ScheduleBook, workers: Sequence[Worker]) -> Iterator[Wish]:
    """Nothing is wanted but that what runs in these workers goes on."""
    names = {worker.name for worker in workers}
    for schedule in book.schedules.values():
        if any(executor.worker in names for executor in schedule.executors):
            yield Wish(
                operator=schedule.operator,
                shards=tuple(schedule.shards),
                tasks=schedule.tasks,
                is_source=schedule.is_source,
                manner=Manner.TAKE_OVER,
            )
