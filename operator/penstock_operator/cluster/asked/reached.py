"""A cluster as a user's command reaches it: with the rights of the user, for as long as the command lasts.

Neighbours: `asked_cluster` and `worker_logs` work with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import PermanentError
from penstock_operator.cluster.kubernetes_api.client import KubernetesCluster
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.names import COMPONENT_WORKER, LABEL_COMPONENT, LABEL_TOPOLOGY
from penstock_operator.cluster.kubernetes_api.names import label_value as as_label
from penstock_operator.cluster.kubernetes_api.pod_access import PodAccess
from penstock_operator.cluster.kubernetes_api.port import (
    PODS,
    TOPOLOGIES,
    ClusterApi,
    ClusterUnreachable,
    Object,
    name_of,
)
from penstock_operator.cluster.observing.observe import WORKER_CONTAINER
from penstock_operator.kubernetes_client.json_requests import KubernetesJson
from penstock_operator.kubernetes_client.login import api_client


@dataclass(frozen=True, slots=True)
class Reached:
    """`cluster` and `pods` belong to the loop."""

    loop: LoopThread
    cluster: ClusterApi
    pods: PodAccess


@contextmanager
def reached(namespace: str, kubeconfig: str | None, context: str | None) -> Iterator[Reached]:
    """PermanentError: there is no way to a cluster."""
    loop = LoopThread("cluster")
    try:
        client = loop.wait(api_client(kubeconfig, context))
        api = KubernetesJson(client, ClusterUnreachable)
        try:
            yield Reached(loop, KubernetesCluster(api, namespace), PodAccess(api, namespace))
        finally:
            loop.wait(api.close())
    finally:
        loop.stop()


async def topology_named(cluster: ClusterApi, name: str) -> Object:
    """The Topology. PermanentError: there is none."""
    found = await cluster.get(TOPOLOGIES, name)
    if found is None:
        raise PermanentError(
            f"there is no Topology {name} in namespace {cluster.namespace}; see kubectl get topologies -A"
        )
    return found


async def workers_of(cluster: ClusterApi, topology: str) -> Sequence[Object]:
    """The pods of its workers, by name."""
    labels = {LABEL_COMPONENT: COMPONENT_WORKER, LABEL_TOPOLOGY: as_label(topology)}
    return sorted((await cluster.list(PODS, labels)).items, key=name_of)


def runs(pod: Object) -> bool:
    """Whether its worker runs, and is not told to go."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        one["name"] == WORKER_CONTAINER and "running" in (one.get("state") or {}) for one in containers
    )


def is_ready(pod: Object) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one["name"] == WORKER_CONTAINER and one.get("ready") for one in containers)
