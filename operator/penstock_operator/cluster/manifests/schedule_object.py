"""The Schedule object of one operator of a topology, around core's `to_spec`.

With deletionPolicy Retain it has no owner: it outlives its Topology, and the next one of that name finds it.
"""

from __future__ import annotations

from typing import Any

from penstock.api.schedule_object import to_spec
from penstock.api.topology import DURABILITY_IN_CLUSTER, Topology
from penstock.manifest.document import API_VERSION, memory_bytes
from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_IDENTITY,
    COMPONENT_SCHEDULE,
    LABEL_OPERATOR,
    LABEL_TOPOLOGY_UID,
    schedule_name,
    topology_labels,
)
from penstock_operator.cluster.manifests.ownership import owned_by_topology


def schedule_object(
    schedule: OperatorSchedule,
    topology: Topology,
    topology_uid: str,
    state_uid: str,
    namespace: str,
    identity: str,
) -> dict[str, Any]:
    """The whole object. `topology_uid` owns it, `state_uid` is what its state goes by, `identity` tells
    whether a later Topology may go on with it.

    Raises InvalidManifest when the schedule cannot be written.
    """
    name = topology.metadata.name
    metadata: dict[str, Any] = {
        "name": schedule_name(name, schedule.operator),
        "namespace": namespace,
        "annotations": {ANNOTATION_IDENTITY: identity},
        "labels": {
            **topology_labels(name, COMPONENT_SCHEDULE),
            LABEL_TOPOLOGY_UID: state_uid,
            LABEL_OPERATOR: schedule.operator,
        },
    }
    if topology.spec.deletion_policy == "Delete":
        metadata["ownerReferences"] = owned_by_topology(name, topology_uid)
    durability = topology.spec.durability or DURABILITY_IN_CLUSTER
    quota_bytes = memory_bytes(topology.spec.store_memory)
    return {
        "apiVersion": API_VERSION,
        "kind": "Schedule",
        "metadata": metadata,
        "spec": to_spec(schedule, name, state_uid, quota_bytes, durability),
    }
