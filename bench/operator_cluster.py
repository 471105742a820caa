"""A cluster of many Topologies on many nodes, on the twin of the Kubernetes API, for `make bench-operator`.

The operator itself brings one Topology to run on two nodes; that one is then written a thousand times, with
names, uids and nodes of its own each. So everything stands as an operator left it that ran for a while, and
the one that is measured finds it as a new leader does. Kubelets, agents and workers are those of the tests'
world. All nodes' stores are databases of one redis-server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.api.load import read_topology
from penstock.store.port import Bounds, NodeStore
from penstock.store.redis.connection import Wire
from penstock.store.redis.store import RedisStore
from penstock_operator.cluster.kubernetes_api.loop_thread import ThisLoop
from penstock_operator.cluster.kubernetes_api.names import store_address, store_name
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.main import Replica, Surroundings
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.manifests.template import template_hash
from penstock_operator.cluster.manifests.worker_pod import worker_image
from penstock_operator.cluster.observing.asked_store import OpenWire
from penstock_operator.cluster.observing.store_reader import OpenStoreClient
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.operator_world import NAMESPACE, OperatorWorld, fed_by, operator_config

CONFIG = operator_config(1)
"""But for the port, which each process has of its own."""
CODE = {"words.py": "class Count: ...\n"}
TEMPLATE = "template-topology"
TEMPLATE_NODES = ("template-node-one", "template-node-two")
SHARDS = 4
_WIRE_TIMEOUT_S = 5.0


def node_name(number: int) -> str:
    return f"node-{number:04}"


class Databases:
    """The stores of nodes `node_name(0)` on, and of the template's, in the databases of one redis-server."""

    def __init__(self, port: int, nodes: int) -> None:
        self._port = port
        names = [*TEMPLATE_NODES, *map(node_name, range(nodes))]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._at = {store_address("pen", name, "pen-stores", NAMESPACE): name for name in names}
        self._clients: dict[tuple[str, str], NodeStore] = {}

    def url(self, node: str) -> str:
        return f"redis://127.0.0.1:{self._port}/{self._numbers[node]}"

    def shared(self, node: str, topology_uid: str) -> NodeStore:
        """One client for each of a node's topologies."""
        found = self._clients.get((node, topology_uid))
        if found is None:
            found = self._clients[node, topology_uid] = RedisStore(self.url(node), topology_uid, Bounds())
        return found

    def wire(self, node: str) -> Wire:
        return Wire(self.url(node), _WIRE_TIMEOUT_S)

    def open_at(self, address: str, topology_uid: str) -> NodeStore:
        """As the operator opens one, by its address in the cluster."""
        return RedisStore(self.url(self._at[address]), topology_uid)

    def wire_at(self, address: str) -> Wire:
        return self.wire(self._at[address])


def template(operators: int) -> Object:
    """A generator, keyed processors one after the other, and a sink beside the last."""
    source = {"zipf": {"keys": 100, "partitions": 4, "ratePerSecond": 100}}
    stages: list[Object] = [{"name": "numbers", "source": source, "tasks": {"initial": 2}}]
    for number in range(1, operators):
        stages.append(
            {
                "name": f"count{number}",
                "inputs": [stages[-1]["name"]],
                "keyBy": ["key"],
                "processor": "words:Count",
                "shards": SHARDS,
                "tasks": {"initial": 2, "max": 4},
                "outputSchema": "key string",
            }
        )
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": TEMPLATE},
        "spec": {
            "durability": "Process",
            "code": {"configMap": "words-code"},
            "workers": {"min": 2, "max": 2, "memory": "256Mi", "cores": {"min": "0.1", "max": "1"}},
            "taskCpu": "0.01",
            "operators": [*stages, {"name": "out", "inputs": [stages[-1]["name"]], "sink": {"console": {}}}],
        },
    }


async def bring_up_template(databases: Databases, operators: int, within_s: float = 60.0) -> MemoryCluster:
    """A cluster in which the operator has brought the template to run. Raises TimeoutError."""
    cluster = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
    cluster.put(CONFIG_MAPS, _code())
    world = OperatorWorld(cluster, databases.shared, databases.wire, node_names=TEMPLATE_NODES)
    stop = asyncio.Event()
    replica = replica_on(cluster, world.open_store, world.open_wire, "template")
    running = asyncio.create_task(replica.run(stop))
    await cluster.create(TOPOLOGIES, template(operators))
    try:
        async with asyncio.timeout(within_s):
            while not await _is_settled(cluster, operators):
                await asyncio.sleep(0.2)
    finally:
        stop.set()
        await running
    return cluster


def replica_on(
    cluster: MemoryCluster, open_store: OpenStoreClient, open_wire: OpenWire, identity: str
) -> Replica:
    """The operator in this process, on the twin itself."""
    around = Surroundings(
        cluster,
        open_store,
        open_wire,
        fed_by(cluster),
        identity,
        "bench",
        lease_cluster=cluster,
        lease_runs=ThisLoop(),
    )
    return Replica(operator_config(free_port()), around)


async def _is_settled(cluster: MemoryCluster, operators: int) -> bool:
    topology = await cluster.get(TOPOLOGIES, TEMPLATE) or {}
    schedules = (await cluster.list(SCHEDULES)).items
    ready = [one for one in schedules if (one.get("status") or {}).get("tasksReady", 0) >= 2]
    return (topology.get("status") or {}).get("phase") == "Running" and len(ready) == operators


def _code() -> Object:
    return {"metadata": {"name": "words-code"}, "data": CODE}


@dataclass(frozen=True, slots=True)
class Written:
    """The template's objects, to be written many times."""

    topology: Object
    plan: Object
    budget: Object
    pods: tuple[Object, ...]
    schedules: tuple[Object, ...]
    secrets: tuple[Object, ...]
    """With the stores' passwords."""

    @staticmethod
    async def of(cluster: MemoryCluster) -> Written:
        async def all_of(kind: Kind) -> tuple[Object, ...]:
            return (await cluster.list(kind)).items

        workers = tuple(one for one in await all_of(PODS) if name_of(one).startswith(TEMPLATE))
        (plan,) = (one for one in await all_of(CONFIG_MAPS) if name_of(one).startswith(TEMPLATE))
        (topology,), (budget,) = await all_of(TOPOLOGIES), await all_of(DISRUPTION_BUDGETS)
        schedules, secrets = await all_of(SCHEDULES), await all_of(SECRETS)
        return Written(topology, plan, budget, workers, schedules, secrets)

    def hash(self) -> str:
        return name_of(self.plan).removeprefix(f"{TEMPLATE}-plan-")


@dataclass
class ManyTopologies:
    """`topologies` of them, with two workers each, on `nodes` nodes in turn, in `cluster`."""

    cluster: MemoryCluster
    databases: Databases
    topologies: int
    nodes: int
    world: OperatorWorld = field(init=False)
    workers: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(node, topology uid, pod, uid)"""

    def names(self) -> list[str]:
        return [f"topology-{number:05}" for number in range(self.topologies)]

    def write(self, written: Written) -> Iterator[int]:
        """Write everything; yields how many Topologies there are, now and then."""
        nodes = [node_name(number) for number in range(self.nodes)]
        self.world = OperatorWorld(
            self.cluster, self.databases.shared, self.databases.wire, node_names=nodes, agents_remember=False
        )
        self.cluster.put(CONFIG_MAPS, _code())
        for secret in written.secrets:
            self.cluster.put(SECRETS, _fresh(secret, {}))
        for node in nodes:
            self.cluster.put(STATEFUL_SETS, node_store(node, node, CONFIG))
            pod = f"{store_name(CONFIG.fullname, node)}-0"
            self.world.run_pod(self.cluster.held(PODS, pod))
        for number, name in enumerate(self.names()):
            pair = [nodes[(2 * number + place) % self.nodes] for place in range(2)]
            self._write_one(written, name, dict(zip(TEMPLATE_NODES, pair, strict=True)))
            if number % 20 == 0:
                yield number

    def _write_one(self, written: Written, name: str, nodes: Mapping[str, str]) -> None:
        topology = _fresh(written.topology, {TEMPLATE: name})
        topology["status"] = {}
        uid = uid_of(self.cluster.put(TOPOLOGIES, topology))
        parsed = read_topology(self.cluster.held(TOPOLOGIES, name))
        template = template_hash(parsed, worker_image(parsed, CONFIG), CODE, uid)
        renamed = {**nodes, TEMPLATE: name, uid_of(written.topology): uid, written.hash(): template}
        status = json.loads(_text(written.topology["status"], renamed))
        self.cluster.set_status(TOPOLOGIES, name, status)
        self.cluster.put(CONFIG_MAPS, _fresh(written.plan, renamed))
        self.cluster.put(DISRUPTION_BUDGETS, _fresh(written.budget, renamed))
        for pod in written.pods:
            made = self.cluster.put(PODS, _fresh({**pod, "status": {}}, renamed, is_bound=False))
            renamed[uid_of(pod)] = uid_of(made)
            self.workers.append(
                (made["metadata"]["labels"]["penstock.dev/node"], uid, name_of(made), uid_of(made))
            )
        for schedule in written.schedules:
            figures = {k: v for k, v in schedule["status"].items() if k != "applied"}
            self.cluster.put(SCHEDULES, _fresh({**schedule, "status": figures}, renamed))

    def refresh_rows(self, part: int, parts: int) -> None:
        """Of every `parts`-th worker, as these write them anew every few seconds."""
        for node, topology_uid, pod, uid in self.workers[part::parts]:
            self.world.tell(self.databases.shared(node, topology_uid), pod, uid)


def _fresh(thing: Object, renamed: Mapping[str, str], *, is_bound: bool = True) -> Object:
    """The object as if it had just been written, under other names."""
    made: Object = json.loads(_text(thing, renamed))
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        made["metadata"].pop(name, None)
    if not is_bound:
        made["spec"].pop("nodeName", None)
    return made


def _text(thing: Any, renamed: Mapping[str, str]) -> str:
    text = json.dumps(thing)
    for old, new in renamed.items():
        text = text.replace(old, new)
    return text
