"""Another place for what nobody runs: of a topology that finished, or whose Schedules were retained.

Where workers run, who hosts decides and homes go along. Here no worker is there, and only state moves: each
worker that is named beside a store that goes is named beside another one, with the homes of what it held, so
that a home stays beside its executor for who goes on with it. Pure. Neighbours: `naming` forgets the stores
that were left, `spread` and `draft` place what is run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule, StorePlace, WorkerPlace


def rehomed(
    schedules: Mapping[str, OperatorSchedule],
    leaving: Collection[str],
    targets: Sequence[StorePlace],
    unborn: Collection[str] = (),
) -> dict[str, OperatorSchedule]:
    """Operator -> its schedule, of those that change, with nothing left in the stores `leaving` (ids).
    `targets` are those to go to, the one with the fewest shards first. A worker of an `unborn` shard stays:
    its home may still have to make that."""
    if not targets:
        return {}
    counts = Counter({store.id: 0 for store in targets})
    held = Counter[str]()
    stuck, named = set[str](), dict[str, str]()
    for schedule in schedules.values():
        worker_of = {executor.name: executor.worker for executor in schedule.executors}
        named |= {place.name: place.store for place in schedule.workers}
        for shard, place in schedule.shards.items():
            held[worker_of[place.executor]] += 1
            if place.home in counts:
                counts[place.home] += 1
            if shard in unborn:
                stuck.add(worker_of[place.executor])
    goes_to: dict[str, StorePlace] = {}
    for worker in sorted(name for name, store in named.items() if store in leaving and name not in stuck):
        goes_to[worker] = min(targets, key=lambda store: (counts[store.id], store.id))
        counts[goes_to[worker].id] += held[worker]
    changes = {operator: _moved(schedule, goes_to) for operator, schedule in schedules.items()}
    return {operator: new for operator, new in changes.items() if new is not schedules[operator]}


def _moved(old: OperatorSchedule, goes_to: Mapping[str, StorePlace]) -> OperatorSchedule:
    """`old` with its workers where they go to; the very object where none does."""
    if not any(place.name in goes_to for place in old.workers):
        return old
    workers = tuple(
        _beside(goes_to[place.name], place) if place.name in goes_to else place for place in old.workers
    )
    worker_of = {executor.name: executor.worker for executor in old.executors}
    shards = {
        shard: replace(place, home=goes_to[worker_of[place.executor]].id)
        if worker_of[place.executor] in goes_to
        else place
        for shard, place in old.shards.items()
    }
    new = [goes_to[place.name] for place in old.workers if place.name in goes_to]
    stores = {store.id: store for store in (*old.stores, *new)}
    return replace(old, workers=workers, shards=shards, stores=tuple(stores.values()))


def _beside(store: StorePlace, place: WorkerPlace) -> WorkerPlace:
    return replace(place, node=store.node, host=store.node, server=store.server)
