"""What surrounds the operator in a cluster, on the twin: kubelets, schedulers, agents and workers, by hand.

Nodes' stores are real redis-servers. Node agents are played by what they do: make the shards, publish, say
so in the status. Workers are played by their rows. Everything happens when the twin tells of a change.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock.api.schedule_object import from_object, owner_of
from penstock.metrics.rows import (
    PartitionsRow,
    WorkerRow,
    pack,
    partitions_row_name,
    worker_row_name,
)
from penstock.schedule.record import OperatorSchedule
from penstock.store.keys import kept_schedule
from penstock.store.port import Create, NodeStore, OpenStore, PutMetrics
from penstock.store.publishing import put_table, to_publish
from penstock.store.redis.connection import Wire
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import LABEL_NODE, store_address
from penstock_operator.cluster.kubernetes_api.port import (
    NODES,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    TOPOLOGIES,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.kubernetes_api.watches import Watch
from penstock_simulation.twins.memory_cluster import MemoryCluster, MemoryNamespace

NAMESPACE = "streams"
NODE_NAMES = ("n1", "n2")


def fed_by(cluster: MemoryCluster) -> Watch:
    """What watches the twin for an operator that runs in the same process: its mirrors follow each change."""

    def watch(mirror: Mirror, namespace: str, _: Callable[[str], None]) -> Callable[[], None]:
        is_on = True

        def take(kind: Kind, change: str, thing: Object) -> None:
            if is_on and kind in mirror.kinds and thing["metadata"].get("namespace", namespace) == namespace:
                (mirror.remove if change == "DELETED" else mirror.put)(kind, thing)

        def stop() -> None:
            nonlocal is_on
            is_on = False

        cluster.subscribe(take)
        return stop

    return watch


def operator_config(
    metrics_port: int, volume: str = "EmptyDir", namespaces: Sequence[str] = ()
) -> OperatorConfig:
    return OperatorConfig.model_validate(
        {
            "fullname": "pen",
            "namespace": NAMESPACE,
            "namespaces": list(namespaces),
            "images": {"operator": "pen/operator:1", "worker": "pen/worker:1", "store": "pen/store:1"},
            "metricsPorts": {"operator": metrics_port},
            "store": {
                "durability": "Process",
                "volume": volume,
                "authSecret": "pen-store-auth",
                "serviceAccount": "pen-agent",
                "headlessService": "pen-stores",
                "localService": "pen-store-local",
            },
        }
    )


def topology(name: str = "words", records_per_second: int = 100, **spec: Any) -> Object:
    """A generator of four partitions whose rows go to the console."""
    source = {"zipf": {"keys": 100, "partitions": 4, "ratePerSecond": records_per_second}}
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": name},
        "spec": {
            "durability": "Process",
            "operators": [
                {"name": "numbers", "source": source, "tasks": {"initial": 2}},
                {"name": "out", "inputs": ["numbers"], "sink": {"console": {}}},
            ],
            **spec,
        },
    }


@dataclass
class OperatorWorld:
    """`stores` opens a client of a node's store: (node, topology uid); `wires` a plain connection to one."""

    cluster: MemoryCluster
    stores: Callable[[str, str], NodeStore]
    wires: Callable[[str], Wire]
    lazy_kubelets: bool = False
    """While they are, new pods stay as they are."""
    node_names: Sequence[str] = NODE_NAMES
    agents_remember: bool = True
    """Whether they keep Schedules in their stores."""
    _tasks: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Worker's uid -> operator -> executor -> tasks."""

    def __post_init__(self) -> None:
        for name in self.node_names:
            self.cluster.put(NODES, _node(name))
            self.stores(name, "nobody").call(OpenStore(name))
        self._by_address = {
            store_address("pen", name, "pen-stores", NAMESPACE): name for name in self.node_names
        }
        self.cluster.subscribe(self._changed)

    def open_store(self, address: str, topology_uid: str) -> NodeStore:
        """As the operator opens one, by its address in the cluster."""
        return self.stores(self._by_address[address], topology_uid)

    def open_wire(self, address: str) -> Wire:
        return self.wires(self._by_address[address])

    def _changed(self, kind: Kind, change: str, thing: Object) -> None:
        if kind == STATEFUL_SETS and change == "ADDED":
            self._start_store(thing)
        elif kind == PODS and change == "ADDED" and not self.lazy_kubelets:
            self.run_pod(thing)
        elif kind == PODS and "deletionTimestamp" in thing["metadata"] and change == "MODIFIED":
            self._in(thing).finish(PODS, name_of(thing))
        elif kind == SCHEDULES and change != "DELETED":
            self._apply(thing)

    def _in(self, thing: Object) -> MemoryNamespace:
        """The cluster as the namespace of an object sees it."""
        return self.cluster.within(thing["metadata"]["namespace"])

    def _start_store(self, stateful_set: Object) -> None:
        template = copy.deepcopy(stateful_set["spec"]["template"])
        name = f"{name_of(stateful_set)}-0"
        self.cluster.put(PODS, {**template, "metadata": {**template["metadata"], "name": name}})

    def run_pod(self, pod: Object) -> None:
        """Its node starts it: bound, running, ready; a worker announces itself."""
        node = pod["metadata"]["labels"][LABEL_NODE]
        present = copy.deepcopy(pod)
        present["spec"]["nodeName"] = node
        present["status"] = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        }
        self.cluster.put(PODS, present)
        settings = _environment(pod, "worker")
        if settings:
            self._announce(node, name_of(pod), uid_of(pod), settings["PENSTOCK_TOPOLOGY_UID"])

    def _announce(self, node: str, worker: str, uid: str, topology_uid: str) -> None:
        now_us = time.time_ns() // 1000
        shards = tuple(f"numbers/{part}" for part in range(4))
        row = WorkerRow(worker, uid, 0, 1, "ready", "", now_us, {}, ("numbers",))
        found = PartitionsRow("numbers", worker, uid, 1, now_us, shards)
        rows = ((worker_row_name(worker), pack(row)), (partitions_row_name("numbers"), pack(found)))
        self.stores(node, topology_uid).call(PutMetrics(rows))

    def _apply(self, thing: Object) -> None:
        """What the agent of each store in it does."""
        schedule = from_object(thing)
        applied = {one["node"]: one["version"] for one in (thing.get("status") or {}).get("applied") or ()}
        for place in schedule.stores:
            if applied.get(place.node, -1) >= schedule.version:
                continue
            store = self.stores(place.node, owner_of(thing).topology_uid)
            put_table(store, schedule)
            for shard, home in schedule.shards.items():
                if home.home == place.id and home.fresh_since > applied.get(place.node, 0):
                    store.call(Create(shard, source=schedule.is_source, life=home.life))
            store.call(to_publish(schedule))
            if self.agents_remember:
                memory = ScheduleMemory(self.wires(place.node))
                memory.keep({kept_schedule(thing["metadata"]["namespace"], name_of(thing), NAMESPACE): thing})
                memory.close()
            self._report(place.node, store, schedule)
            told = {"node": place.node, "version": schedule.version, "generation": 1}
            status = {"metadata": {"name": name_of(thing)}, "status": {"applied": [told]}}
            self._in(thing).status_by(f"penstock-agent-{place.node}", SCHEDULES, status)

    def _report(self, node: str, store: NodeStore, schedule: OperatorSchedule) -> None:
        """Its workers on the node run what they are given."""
        for worker in schedule.workers:
            if worker.node != node:
                continue
            running = self._tasks.setdefault(worker.uid, {})
            running[schedule.operator] = {
                one.name: one.tasks for one in schedule.executors if one.worker == worker.name
            }
            self.tell(store, worker.name, worker.uid)

    def tell(self, store: NodeStore, worker: str, uid: str) -> None:
        """The worker writes its row anew."""
        tasks = {name: count for of in self._tasks.get(uid, {}).values() for name, count in of.items()}
        row = WorkerRow(worker, uid, 0, 1, "ready", "", time.time_ns() // 1000, tasks, ("numbers",))
        store.call(PutMetrics(((worker_row_name(worker), pack(row)),)))


def _node(name: str) -> Object:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _environment(pod: Mapping[str, Any], container: str) -> dict[str, str]:
    for one in pod["spec"]["containers"]:
        if one["name"] == container:
            return {entry["name"]: entry["value"] for entry in one["env"] if "value" in entry}
    return {}
