"""Who may reach whom for remote tasks: a worker and its Spark workers each other, and these its home's store.

A NetworkPolicy cannot say "of the same worker", so each worker that lends tasks has policies of its own. They
go with its pod, which owns them. Incoming only, as the chart's; Spark's ports are any. What admits Spark
workers of another namespace than the stores' has to be in the stores', where no pod of theirs can own it: the
chart has that, for all stores and Spark workers of a served namespace. Pure builder.
Neighbours: `spark_worker_pod`, and the chart's `network/policies.yaml`, by which all is closed otherwise.
"""

from __future__ import annotations

from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    LABEL_COMPONENT,
    LABEL_TOPOLOGY,
    LABEL_WORKER,
    store_labels,
    topology_labels,
)
from penstock_operator.cluster.manifests.node_store import STORE_PORT
from penstock_operator.cluster.manifests.pod_parts import Part
from penstock_operator.cluster.manifests.spark_worker_pod import Home


def spark_network_policies(
    home: Home, topology: str, namespace: str, config: OperatorConfig
) -> tuple[dict[str, Any], ...]:
    """Documents, for a topology of `namespace`. What else may reach a worker or a store, the chart says."""
    ours = {LABEL_TOPOLOGY: topology, LABEL_WORKER: home.worker}
    spark_workers = {**ours, LABEL_COMPONENT: COMPONENT_SPARK_WORKER}
    store = store_labels(home.store)
    to_store = [{"protocol": "TCP", "port": STORE_PORT}]
    joined = _policy(f"{home.worker}-spark", ours, {"from": _pods(ours)}, home, topology, namespace)
    if namespace != config.namespace:
        return (joined,)
    reached = {"from": _pods(spark_workers), "ports": to_store}
    return joined, _policy(f"{home.worker}-spark-store", store, reached, home, topology, namespace)


def _pods(labels: Part) -> list[Part]:
    return [{"podSelector": {"matchLabels": labels}}]


def _policy(
    name: str, selected: Part, rule: Part, home: Home, topology: str, namespace: str
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**topology_labels(topology, COMPONENT_SPARK_WORKER), LABEL_WORKER: home.worker},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": home.worker, "uid": home.uid}],
        },
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    }
