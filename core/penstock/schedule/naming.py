"""Who is named in a schedule: workers, with their start as it is now, and stores.

Every change of a schedule has this in common. What comes out has the version of the schedule that it was made
from, and is that very object where nothing differs. Pure. Neighbours: `record` is the value, `book` gives the
next version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.schedule.hosts_and_wishes import Host, Setting
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace


def changed_to(old: OperatorSchedule, new: OperatorSchedule) -> OperatorSchedule:
    """`new`; `old` itself when nothing differs."""
    return old if new == old else new


def changed(
    old: OperatorSchedule,
    executors: tuple[ExecutorPlace, ...],
    shards: Mapping[str, ShardPlace],
    setting: Setting,
) -> OperatorSchedule:
    """`old` with these executors and shards, and with the workers and stores that they need."""
    workers = _workers(old, executors, setting)
    stores = _stores(old, executors, setting.hosts) if setting.runtime.has_agents else old.stores
    new = replace(old, workers=workers, executors=executors, shards=shards, stores=stores)
    return changed_to(old, new)


def renewed(old: OperatorSchedule, setting: Setting) -> OperatorSchedule:
    """`old` with its workers' starts as they are now."""
    hosts = setting.hosts
    workers = tuple(hosts[place.name].place if place.name in hosts else place for place in old.workers)
    return changed_to(old, replace(old, workers=workers))


def name_worker(
    schedules: Mapping[str, OperatorSchedule], worker: WorkerPlace
) -> dict[str, OperatorSchedule]:
    """Name a worker's new start (or a new worker) in every schedule; it runs what its last one ran.

    To be published before the worker enrols.
    """
    return {
        operator: changed_to(old, replace(old, workers=_with(old.workers, worker)))
        for operator, old in schedules.items()
    }


def forget_worker(schedules: Mapping[str, OperatorSchedule], worker: str) -> dict[str, OperatorSchedule]:
    """`schedules` without a worker that has left and holds no executor."""
    return {
        operator: changed_to(old, replace(old, workers=tuple(w for w in old.workers if w.name != worker)))
        for operator, old in schedules.items()
    }


def forget_stores(old: OperatorSchedule) -> OperatorSchedule:
    """`old` without the stores that are no shard's home and host no worker any more.

    Only once every store has applied `old` and nothing moves: until then a store that lost its
    shards still holds what is on its way.
    """
    needed = {place.home for place in old.shards.values()}
    needed |= {worker.store for worker in old.workers}
    stores = tuple(store for store in old.stores if store.id in needed)
    return changed_to(old, replace(old, stores=stores))


def _with(workers: tuple[WorkerPlace, ...], worker: WorkerPlace) -> tuple[WorkerPlace, ...]:
    """`worker` in its own place, or at the end."""
    return tuple({**{place.name: place for place in workers}, worker.name: worker}.values())


def _workers(
    old: OperatorSchedule, executors: Iterable[ExecutorPlace], setting: Setting
) -> tuple[WorkerPlace, ...]:
    """Who is named, as it is now: who holds an executor, and where workers enrol by it everybody."""
    named = {place.name: place for place in old.workers}
    named |= {name: host.place for name, host in setting.hosts.items()}
    if setting.runtime.names_idle_workers:
        return tuple(named.values())
    holders = {executor.worker for executor in executors}
    return tuple(place for name, place in named.items() if name in holders)


def _stores(
    old: OperatorSchedule, executors: Iterable[ExecutorPlace], hosts: Mapping[str, Host]
) -> tuple[StorePlace, ...]:
    """Those named so far (addresses as they are now), and those of the hosts that take something: one that
    only keeps what it has may be where no store is any more."""
    stores = {store.id: store for store in old.stores}
    for executor in executors:
        host = hosts.get(executor.worker)
        if host is not None and (not host.is_pinned or host.store.id in stores):
            stores[host.store.id] = host.store
    return tuple(stores.values())
