"""The budget that guards a topology's workers: a drain waits until the operator has moved their work away.

minAvailable is the number of its workers, so that none may be evicted; the operator itself deletes them.
(maxUnavailable needs an owner with a scale, which a Topology is not.)
"""

from __future__ import annotations

from typing import Any

from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_WORKER,
    disruption_budget_name,
    topology_labels,
)
from penstock_operator.cluster.manifests.ownership import owned_by_topology


def disruption_budget(topology: str, topology_uid: str, namespace: str, workers: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": disruption_budget_name(topology),
            "namespace": namespace,
            "labels": topology_labels(topology, COMPONENT_WORKER),
            "ownerReferences": owned_by_topology(topology, topology_uid),
        },
        "spec": {
            "minAvailable": workers,
            "selector": {"matchLabels": topology_labels(topology, COMPONENT_WORKER)},
        },
    }
