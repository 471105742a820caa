"""Which stores Schedules name, and whether that is known: what a store holds that none names can go.

A Schedule that is gone though its Topology has had it still has its state in the stores: until it is rebuilt
nobody can say which ones it needs. Pure. Neighbours: `node_stores` and `store_renewal` go by what is named.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_operator.cluster.kubernetes_api.names import schedule_name
from penstock_operator.cluster.kubernetes_api.port import Object, name_of


def named_stores(schedules: Iterable[Object], topologies: Iterable[Object]) -> set[str] | None:
    """The ids of all stores that a Schedule names; None while a Schedule of a Topology is missing."""
    there = {name_of(one): one for one in schedules}
    for topology in topologies:
        begun = (topology.get("status") or {}).get("begun") or ()
        if any(schedule_name(name_of(topology), str(operator)) not in there for operator in begun):
            return None
    return {store for one in there.values() for store in _stores_named(one)}


def _stores_named(schedule: Object) -> set[str]:
    spec = schedule["spec"]
    return {str(one["id"]) for one in spec.get("stores") or ()} | {
        str(one["home"]) for one in spec.get("shards") or ()
    }
