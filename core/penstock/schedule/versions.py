"""A schedule's next version: one more where something differs, the very object where nothing does.

Here stands what every change of a schedule has in common: who is named in it (workers, and their start as it
is now), which stores it names, and its number. Pure. Neighbours: `record` is the value, `births` says since
which version a shard is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.schedule.hosts_and_wishes import Host, Setting
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace


def next_version(old: OperatorSchedule, new: OperatorSchedule, term: int) -> OperatorSchedule:
    """`new` as the version after `old`; `old` itself when nothing differs but who would write it."""
    return old if new == old else replace(new, version=old.version + 1, term=term)


def changed(
    old: OperatorSchedule,
    executors: tuple[ExecutorPlace, ...],
    shards: Mapping[str, ShardPlace],
    setting: Setting,
) -> OperatorSchedule:
    """The version after `old`, with these executors and shards, and with the workers and stores that they
    need."""
    workers = _workers(old, executors, setting)
    stores = _stores(old, executors, setting.hosts) if setting.runtime.has_agents else old.stores
    if (executors, workers, shards, stores) == (old.executors, old.workers, old.shards, old.stores):
        return old
    return replace(
        old,
        version=old.version + 1,
        term=setting.term,
        workers=workers,
        executors=executors,
        shards=shards,
        stores=stores,
    )


def renewed(old: OperatorSchedule, setting: Setting) -> OperatorSchedule:
    """`old` with its workers' starts as they are now."""
    hosts = setting.hosts
    workers = tuple(hosts[place.name].place if place.name in hosts else place for place in old.workers)
    return next_version(old, replace(old, workers=workers), setting.term)


def name_worker(
    schedules: Mapping[str, OperatorSchedule], worker: WorkerPlace
) -> dict[str, OperatorSchedule]:
    """Name a worker's new start (or a new worker) in every schedule; it runs what its last one ran.

    To be published before the worker enrols.
    """
    return {
        operator: next_version(old, replace(old, workers=_with(old.workers, worker)), old.term)
        for operator, old in schedules.items()
    }


def forget_worker(schedules: Mapping[str, OperatorSchedule], worker: str) -> dict[str, OperatorSchedule]:
    """`schedules` without a worker that has left and holds no executor."""
    return {
        operator: next_version(
            old, replace(old, workers=tuple(w for w in old.workers if w.name != worker)), old.term
        )
        for operator, old in schedules.items()
    }


def forget_stores(old: OperatorSchedule, *, term: int) -> OperatorSchedule:
    """`old` without the stores that are no shard's home and host no worker any more.

    Only once every store has applied `old` and nothing moves: until then a store that lost its
    shards still holds what is on its way.
    """
    needed = {place.home for place in old.shards.values()}
    nodes = {worker.node for worker in old.workers}
    stores = tuple(store for store in old.stores if store.id in needed or store.node in nodes)
    return next_version(old, replace(old, stores=stores), term)


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
    """Those named so far (addresses as they are now), and those of the hosts."""
    stores = {store.id: store for store in old.stores}
    for executor in executors:
        if (host := hosts.get(executor.worker)) is not None:
            stores[host.store.id] = host.store
    return tuple(stores.values())
