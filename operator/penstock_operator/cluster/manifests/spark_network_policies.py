"""Who may reach whom for remote tasks: a worker and its Spark workers each other, and these its home's store.

A NetworkPolicy cannot say "of the same worker", so each worker that lends tasks has policies of its own. They
go with its pod, which owns them. Incoming only, as the chart's; Spark's ports are any. Pure builder.
Neighbours: `spark_worker_pod`, and the chart's `network/policies.yaml`, by which all is closed otherwise.
"""

from __future__ import annotations

from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    COMPONENT_STORE,
    LABEL_COMPONENT,
    LABEL_NODE,
    LABEL_TOPOLOGY,
    LABEL_WORKER,
    component_labels,
    label_value,
    topology_labels,
)
from penstock_operator.cluster.manifests.node_store import STORE_PORT
from penstock_operator.cluster.manifests.pod_parts import Part
from penstock_operator.cluster.manifests.spark_worker_pod import Home


def spark_network_policies(home: Home, topology: str, config: OperatorConfig) -> tuple[dict[str, Any], ...]:
    """Documents. What else may reach a worker or a store, the chart's policies say."""
    ours = {LABEL_TOPOLOGY: topology, LABEL_WORKER: home.worker}
    spark_workers = {**ours, LABEL_COMPONENT: COMPONENT_SPARK_WORKER}
    store = {**component_labels(COMPONENT_STORE), LABEL_NODE: label_value(home.node)}
    to_store = [{"protocol": "TCP", "port": STORE_PORT}]
    return (
        _policy(f"{home.worker}-spark", ours, {"from": _pods(ours)}, home, topology, config),
        _policy(
            f"{home.worker}-spark-store",
            store,
            {"from": _pods(spark_workers), "ports": to_store},
            home,
            topology,
            config,
        ),
    )


def _pods(labels: Part) -> list[Part]:
    return [{"podSelector": {"matchLabels": labels}}]


def _policy(
    name: str, selected: Part, rule: Part, home: Home, topology: str, config: OperatorConfig
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": config.namespace,
            "labels": {**topology_labels(topology, COMPONENT_SPARK_WORKER), LABEL_WORKER: home.worker},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": home.worker, "uid": home.uid}],
        },
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    }
