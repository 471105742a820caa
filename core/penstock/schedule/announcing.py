"""Announcements: new executors come into the schedule before their shards do.

Their tasks are then up when shards come: no record is late for a task's start (promise 10). Pure.
Neighbours: `planner` makes the plan that is announced; who publishes waits for the tasks, or for a deadline,
and plans anew.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.schedule.hosts_and_wishes import CLUSTER, Runtime
from penstock.schedule.naming import changed_to
from penstock.schedule.record import OperatorSchedule


def announce(
    old: OperatorSchedule, planned: OperatorSchedule, *, runtime: Runtime = CLUSTER
) -> OperatorSchedule:
    """`old` and the executors that only `planned` has or that have no shard in `old`, still without shards.

    Written before `planned`. What was announced before and is planned no longer goes.
    """
    holders = {place.executor for place in old.shards.values()}
    coming = {executor.name: executor for executor in planned.executors}
    kept = [coming.get(e.name) if e.name not in holders else e for e in old.executors]
    known = {executor.name for executor in old.executors}
    new = (executor for executor in planned.executors if executor.name not in known)
    executors = (*(executor for executor in kept if executor is not None), *new)
    hosts = {executor.worker for executor in executors}
    renewed = {worker.name: worker for worker in (*old.workers, *planned.workers)}
    workers = tuple(w for name, w in renewed.items() if runtime.names_idle_workers or name in hosts)
    stores = {store.id: store for store in (*old.stores, *planned.stores)}
    announced = replace(old, executors=executors, workers=workers, stores=tuple(stores.values()))
    return changed_to(old, announced)


def announced_executors(old: OperatorSchedule | None, planned: OperatorSchedule) -> tuple[str, ...]:
    """Executors of `planned` that are to take shards and have none in `old`; none for a first schedule."""
    if old is None:
        return ()
    holders = {place.executor for place in old.shards.values()}
    return tuple(e.name for e in planned.executors if e.tasks > 0 and e.name not in holders)
