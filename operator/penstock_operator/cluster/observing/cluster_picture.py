"""What the mirror shows, as decisions read it: nodes with what is asked of them, stores, pods, schedules.

What was worked out from an object is kept as long as its version stands. Neighbours: `mirror` has the
objects, `observe` reads one, `reconcile` asks at each turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PenstockError
from penstock.manifest.faults import InvalidManifest
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    NODES,
    PODS,
    SCHEDULES,
    STATEFUL_SETS,
    ClusterApi,
    NotAllowed,
    Object,
    name_of,
    uid_of,
    version_of,
)
from penstock_operator.cluster.observing.node_requests import NodeRequests
from penstock_operator.cluster.observing.observe import (
    Request,
    is_of,
    is_spark_worker,
    is_store,
    is_worker,
    observe_node,
    observe_pod,
    observe_schedule,
    observe_store,
    observe_topology,
    requests_by_node,
)
from penstock_operator.cluster.observing.observed import (
    ObservedNode,
    ObservedPod,
    ObservedSchedule,
    ObservedStore,
    ObservedTopology,
)

_LOG = logging.getLogger(__name__)

_FOREIGN_S = 30.0


@dataclass(slots=True)
class TopologyLook:
    """What the last look at a topology made of its documents. It may be lost."""

    parsed: ObservedTopology | None = None
    code: tuple[str, Mapping[str, str]] | None = None
    """(resourceVersion and name, data) of the ConfigMap with the code."""


class ClusterPicture:
    """Of one namespace, and of what pods of the others take of its nodes."""

    def __init__(self, cluster: ClusterApi, mirror: Mirror, config: OperatorConfig) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._config = config
        self._schedules: dict[str, ObservedSchedule] = {}
        self._foreign: dict[str, tuple[Request, ...]] = {}
        self._requests = NodeRequests(mirror)
        self._nodes: dict[str, tuple[Object, tuple[Request, ...], ObservedNode]] = {}
        """Name -> (object, requests, what follows), for those whose requests are the same ones."""
        self._all_nodes: tuple[tuple[object, ...], tuple[ObservedNode, ...]] | None = None
        """(what they follow from, all nodes), while nobody's pod is pinned and not bound."""
        self._pods: dict[str, tuple[Object, ObservedPod]] = {}
        """Name -> (object, what follows), of those that are bound."""
        self._stores: dict[str, tuple[Object, Object | None, ObservedStore]] = {}
        """Name -> (StatefulSet, its pod, what follows)."""
        self._all_stores: tuple[int, tuple[ObservedStore, ...]] | None = None
        """(the mirror's revision, all stores)."""

    async def foreign_forever(self) -> None:
        """What pods of other namespaces take of the nodes. Without the right to see them it stays unknown:
        a pod for which there is no room is then found by the scheduler's word alone."""
        while True:
            try:
                listing = await self._cluster.list(PODS, everywhere=True, keep=_request_only)
                own = self._cluster.namespace
                others = (pod for pod in listing.items if pod["metadata"]["namespace"] != own)
                self._foreign = requests_by_node(others)
            except NotAllowed:
                _LOG.info("pods of other namespaces cannot be seen; rooms on nodes are judged without them")
                return
            except PenstockError as error:
                _LOG.warning("pods of other namespaces could not be listed: %s", error)
            await asyncio.sleep(_FOREIGN_S)

    def parse(self, look: TopologyLook, manifest: Object) -> ObservedTopology:
        """The manifest's meaning; worked out again when its generation is another."""
        known = look.parsed
        metadata = manifest["metadata"]
        if known is None or (known.uid, known.generation) != (
            uid_of(manifest),
            metadata.get("generation", 0),
        ):
            look.parsed = known = observe_topology(manifest)
        return replace(known, manifest=manifest, is_deleting="deletionTimestamp" in metadata)

    async def code(self, look: TopologyLook) -> Mapping[str, str] | None:
        """The data of the ConfigMap that the topology names; read when its version is another."""
        name = code_map(look)
        held = self._mirror.get(CONFIG_MAPS, name) if name else None
        if not name or held is None:
            return None
        version = f"{version_of(held)} {name}"
        if look.code is None or look.code[0] != version:
            now = await self._cluster.get(CONFIG_MAPS, name)
            if now is None:
                return None
            look.code = (f"{version_of(now)} {name}", now.get("data") or {})
        return look.code[1]

    def workers_of(self, topology: str) -> tuple[ObservedPod, ...]:
        return self._pods_of(topology, is_worker)

    def spark_workers_of(self, topology: str) -> tuple[ObservedPod, ...]:
        return self._pods_of(topology, is_spark_worker)

    def _pods_of(self, topology: str, is_one: Callable[[Object], bool]) -> tuple[ObservedPod, ...]:
        pods = (pod for pod in self._mirror.of(PODS, topology) if is_one(pod))
        return tuple(self._pod(pod) for pod in pods)

    def _pod(self, pod: Object) -> ObservedPod:
        name = name_of(pod)
        known = self._pods.get(name)
        if known is None or known[0] is not pod:
            nodes = [name_of(node) for node in self._mirror.all(NODES)]
            seen = observe_pod(pod, nodes)
            if not seen.is_bound:
                return seen  # which node its label means may be another the next time
            if len(self._pods) > 2 * self._mirror.count(PODS):
                self._pods.clear()
            known = self._pods[name] = (pod, seen)
        return known[1]

    def schedules_but_of(self, topologies: Collection[str]) -> tuple[ObservedSchedule, ...]:
        """Those of no such topology, of which each can be read."""
        found = []
        for name in sorted(self._mirror.owners(SCHEDULES) - set(topologies)):
            for one in self._mirror.of(SCHEDULES, name):
                try:
                    found.append(self._schedule(one))
                except InvalidManifest as fault:
                    _LOG.debug("Schedule %s cannot be read: %s", name_of(one), fault)
        return tuple(found)

    def schedules_of(self, topology: str) -> tuple[ObservedSchedule, ...]:
        return tuple(self._schedule(one) for one in self._mirror.of(SCHEDULES, topology))

    def topology_uids(self) -> set[str]:
        """Whose states the Schedules name; what was read of those that are gone is forgotten."""
        there = {name_of(one): one for one in self._mirror.all(SCHEDULES)}
        for name in self._schedules.keys() - there.keys():
            del self._schedules[name]
        return {str((one.get("spec") or {}).get("topologyUid", "")) for one in there.values()}

    def _schedule(self, thing: Object) -> ObservedSchedule:
        """To read one of 4 096 shards takes a while, and it is looked at often."""
        name = name_of(thing)
        known = self._schedules.get(name)
        if known is None or (known.uid, known.resource_version) != (uid_of(thing), version_of(thing)):
            known = self._schedules[name] = observe_schedule(thing)
        return known

    def nodes(self, topology: str) -> tuple[ObservedNode, ...]:
        """With what is requested on each; worker pods of other topologies count where they are pinned to. The
        same tuple as long as nothing of it has changed."""
        pinned = [pod for pod in self._requests.pinned() if not is_of(pod, topology)]
        basis = (self._mirror.all(NODES), self._requests.edition, self._foreign)
        if not pinned and self._all_nodes is not None and _are_same(self._all_nodes[0], basis):
            return self._all_nodes[1]
        others = requests_by_node(pinned)
        found = tuple(self._node(node, others.get(name_of(node), ())) for node in self._mirror.all(NODES))
        if len(self._nodes) > 2 * len(found):
            self._nodes.clear()
        if not pinned:
            self._all_nodes = (basis, found)
        return found

    def _node(self, node: Object, pinned: tuple[Request, ...]) -> ObservedNode:
        name = name_of(node)
        requests = (*self._requests.on(name), *pinned, *self._foreign.get(name, ()))
        known = self._nodes.get(name)
        if known is None or known[0] is not node or known[1] != requests:
            known = self._nodes[name] = (node, requests, observe_node(node, requests))
        return known[2]

    def stores(self) -> tuple[ObservedStore, ...]:
        """The same tuple as long as nothing of it has changed."""
        if self._all_stores is not None and not self._are_stores_touched_since(self._all_stores[0]):
            self._all_stores = (self._mirror.revision, self._all_stores[1])
            return self._all_stores[1]
        found = tuple(self._store(one) for one in self._mirror.all(STATEFUL_SETS) if is_store(one))
        there = {one.stateful_set for one in found}
        self._stores = {name: known for name, known in self._stores.items() if name in there}
        self._all_stores = (self._mirror.revision, found)
        return found

    def _are_stores_touched_since(self, revision: int) -> bool:
        if revision == self._mirror.revision:
            return False
        changes = self._mirror.changes_since(revision)
        return changes is None or any(
            kind == STATEFUL_SETS or (kind == PODS and name.removesuffix("-0") in self._stores)
            for kind, name in changes
        )

    def _store(self, stateful_set: Object) -> ObservedStore:
        name = name_of(stateful_set)
        pod = self._mirror.get(PODS, f"{name}-0")
        known = self._stores.get(name)
        if known is None or known[0] is not stateful_set or known[1] is not pod:
            nodes = [name_of(node) for node in self._mirror.all(NODES)]
            seen = observe_store(stateful_set, pod, nodes, self._config)
            known = self._stores[name] = (stateful_set, pod, seen)
        return known[2]


def _are_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether these are the very same things."""
    return all(a is b or (isinstance(a, int) and a == b) for a, b in zip(one, other, strict=True))


def code_map(look: TopologyLook) -> str | None:
    """The ConfigMap that its topology's code comes from."""
    topology = look.parsed.topology if look.parsed is not None else None
    code = topology.spec.code if topology is not None else None
    return code.config_map if code is not None else None


def _request_only(pod: Object) -> Object:
    """A pod without all that its request does not follow from: there may be thousands."""
    spec, status = pod["spec"], pod.get("status") or {}
    kept = ("nodeName", "containers", "initContainers", "resources", "overhead")
    containers = ("name", "resources", "restartPolicy")

    def small(name: str) -> object:
        if name not in {"containers", "initContainers"}:
            return spec[name]
        return [{key: one[key] for key in containers if key in one} for one in spec[name]]

    running = [
        {key: one[key] for key in ("name", "allocatedResources") if key in one}
        for one in status.get("containerStatuses") or ()
    ]
    return {
        "metadata": {"name": name_of(pod), "namespace": pod["metadata"]["namespace"]},
        "spec": {name: small(name) for name in kept if name in spec},
        "status": {"phase": status.get("phase"), "containerStatuses": running},
    }
