"""What the mirrors show of what all topologies share: nodes with what is asked of them, and the stores.

What was worked out from an object is kept as long as its version stands. Neighbours: `mirror` has the
objects, `observe` reads one, `namespace_picture` has what is one namespace's, `reconcile` asks at each turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PenstockError
from penstock_operator.cluster.kubernetes_api.listing_anew import rest_after
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    NODES,
    PODS,
    STATEFUL_SETS,
    ClusterApi,
    NotAllowed,
    Object,
    name_of,
)
from penstock_operator.cluster.observing.node_requests import NodeRequests
from penstock_operator.cluster.observing.observe import (
    Request,
    is_of,
    is_store,
    observe_node,
    observe_store,
    requests_by_node,
)
from penstock_operator.cluster.observing.observed import (
    ObservedNode,
    ObservedStore,
    TopologyKey,
)

_LOG = logging.getLogger(__name__)

_FOREIGN_S = 30.0


class ClusterPicture:
    """`mirrors` is by namespace, with the release's, which has nodes and stores, among them; what pods of all
    other namespaces take of the nodes is asked for now and then."""

    def __init__(self, cluster: ClusterApi, mirrors: Mapping[str, Mirror], config: OperatorConfig) -> None:
        self._cluster = cluster
        self._mirrors = mirrors
        self._mirror = mirrors[config.namespace]
        self._config = config
        self._foreign: dict[str, tuple[Request, ...]] = {}
        self._requests = {name: NodeRequests(mirror, self._mirror) for name, mirror in mirrors.items()}
        self._nodes: dict[str, tuple[Object, tuple[Request, ...], ObservedNode]] = {}
        """Name -> (object, requests, what follows), for those whose requests are the same ones."""
        self._all_nodes: tuple[tuple[object, ...], tuple[ObservedNode, ...]] | None = None
        """(what they follow from, all nodes), while nobody's pod is pinned and not bound."""
        self._stores: dict[str, tuple[Object, Object | None, ObservedStore]] = {}
        """Name -> (StatefulSet, its pod, what follows)."""
        self._all_stores: tuple[int, tuple[ObservedStore, ...]] | None = None
        """(the mirror's revision, all stores)."""

    async def foreign_forever(self) -> None:
        """What pods of other namespaces take of the nodes. Without the right to see them it stays unknown:
        a pod for which there is no room is then found by the scheduler's word alone."""
        between = None  # what is there at first is wanted soon
        while True:
            try:
                listing = await self._cluster.list(PODS, everywhere=True, keep=_request_only, between=between)
                between = rest_after
                own = {name for name, mirror in self._mirrors.items() if mirror.is_complete()}
                others = (pod for pod in listing.items if pod["metadata"]["namespace"] not in own)
                self._foreign = requests_by_node(others)
            except NotAllowed:
                _LOG.info("pods of other namespaces cannot be seen; rooms on nodes are judged without them")
                return
            except PenstockError as error:
                _LOG.warning("pods of other namespaces could not be listed: %s", error)
            await asyncio.sleep(_FOREIGN_S)

    def nodes(self, topology: TopologyKey | None = None) -> tuple[ObservedNode, ...]:
        """With what is requested on each; worker pods of other topologies count where they are pinned to. The
        same tuple as long as nothing of it has changed."""
        pinned = [
            pod
            for namespace, requests in self._requests.items()
            for pod in requests.pinned()
            if topology is None or namespace != topology.namespace or not is_of(pod, topology.name)
        ]
        editions = (requests.edition for requests in self._requests.values())
        basis = (self._mirror.all(NODES), self._foreign, *editions)
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
        of_ours = (one for requests in self._requests.values() for one in requests.on(name))
        requests = (*of_ours, *pinned, *self._foreign.get(name, ()))
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
