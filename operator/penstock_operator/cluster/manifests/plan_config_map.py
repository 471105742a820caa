"""The ConfigMap that a topology's workers read their plan from. Immutable: another plan has another name."""

from __future__ import annotations

from typing import Any

import yaml

from penstock.api.topology import Topology
from penstock_operator.cluster.kubernetes_api.names import COMPONENT_PLAN, plan_name, topology_labels
from penstock_operator.cluster.manifests.ownership import owned_by_topology
from penstock_operator.cluster.manifests.template import workers_manifest

TOPOLOGY_FILE = "topology.yaml"


def plan_config_map(
    topology: Topology, topology_uid: str, namespace: str, template_hash: str
) -> dict[str, Any]:
    """The document. `topology_uid` is the Topology's own uid, which owns it."""
    name = topology.metadata.name
    text = yaml.safe_dump(workers_manifest(topology), sort_keys=False, allow_unicode=True)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": plan_name(name, template_hash),
            "namespace": namespace,
            "labels": topology_labels(name, COMPONENT_PLAN),
            "ownerReferences": owned_by_topology(name, topology_uid),
        },
        "immutable": True,
        "data": {TOPOLOGY_FILE: text},
    }
