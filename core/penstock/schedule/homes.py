"""Homes beside executors, for a schedule that another decider made.

Pure. Neighbours: `spread` and `draft` see to it for what they plan themselves; policies (`penstock.control`)
move shards between executors and know no stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule, StorePlace


def placed_beside(
    old: OperatorSchedule, new: OperatorSchedule, stores: Mapping[str, StorePlace]
) -> OperatorSchedule:
    """`new`, made from `old` by moving shards between executors, with the homes of those shards beside their
    new executors; `stores` are by id. Workers without executor are left out, and stores that
    neither `old` names nor anything needs."""
    workers = {executor.worker for executor in new.executors}
    places = tuple(place for place in new.workers if place.name in workers)
    store_of = {place.name: place.store for place in places}
    home_of = {executor.name: stores[store_of[executor.worker]] for executor in new.executors}
    shards = {
        shard: place
        if shard in old.shards and old.shards[shard].executor == place.executor
        else replace(place, home=home_of[place.executor].id)
        for shard, place in new.shards.items()
    }
    named = {store.id: store for store in (*old.stores, *home_of.values())}
    return replace(new, workers=places, shards=shards, stores=tuple(named.values()))
