"""Which stores Schedules name, and whether that is known: what a store holds that none names can go.

A Schedule that is gone though its Topology has had it still has its state in the stores: until it is rebuilt
nobody can say which ones it needs. Pure. Neighbours: `schedule_index` keeps it
for all together; `node_stores` and `store_renewal` go by what is named.
"""

from __future__ import annotations

from penstock_operator.cluster.kubernetes_api.names import schedule_name
from penstock_operator.cluster.kubernetes_api.port import Object, name_of


def begun_schedules(topology: Object) -> tuple[str, ...]:
    """The names of the Schedules that a Topology has had."""
    begun = (topology.get("status") or {}).get("begun") or ()
    return tuple(schedule_name(name_of(topology), str(operator)) for operator in begun)


def stores_named(schedule: Object) -> set[str]:
    """The ids of the stores that a Schedule names."""
    spec = schedule["spec"]
    return {str(one["id"]) for one in spec.get("stores") or ()} | {
        str(one["home"]) for one in spec.get("shards") or ()
    }
