"""A namespace's budget of cores over Topologies and Schedules that a test writes down."""

from __future__ import annotations

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES, Object
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observed import TopologyKey

NAMESPACE = "streams"


def key(topology: str) -> TopologyKey:
    return TopologyKey(NAMESPACE, topology)


def topology(name: str, task_cpu: str | None = "500m") -> Object:
    spec = {} if task_cpu is None else {"taskCpu": task_cpu}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec}


def schedule(name: str, topology: str, tasks: int, version: int) -> Object:
    """Of the operator that `name` ends with, in one executor of all its tasks and one of none."""
    executors = [{"name": "a", "tasks": tasks}, {"name": "b", "tasks": 0}]
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version)},
        "spec": {"topology": topology, "operator": name.rpartition(".")[2], "executors": executors},
    }


def budget_of(
    cores_max: float | None, topologies: list[Object], *schedules: Object
) -> tuple[CoreBudget, Mirror]:
    mirror = Mirror(lambda *_: None)
    for one in topologies:
        mirror.put(TOPOLOGIES, one)
    for one in schedules:
        mirror.put(SCHEDULES, one)
    return CoreBudget(cores_max, {NAMESPACE: mirror}), mirror
