"""What a namespace's pods take of each node, kept up to date by what has changed.

Worker pods that are pinned to a node and not bound yet are kept apart: they count for all topologies but
their own. Neighbours: `mirror` says what has changed, `cluster_picture` adds what pods elsewhere take.
"""

from __future__ import annotations

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import NODES, PODS, Object, name_of
from penstock_operator.cluster.observing.observe import (
    Request,
    bound_where_pinned,
    is_spark_worker,
    is_worker,
    requests_by_node,
)


class NodeRequests:
    """Of the pods in `mirror`. `nodes` is the mirror that has the nodes. Belongs to one event loop."""

    def __init__(self, mirror: Mirror, nodes: Mirror) -> None:
        self._mirror = mirror
        self._nodes = nodes
        self._nodes_seen: tuple[Object, ...] = ()
        self._node_names: list[str] = []
        self._revision = -1
        self._of_pod: dict[str, tuple[str, tuple[Request, ...]]] = {}
        """Pod -> (node, what it takes there), of those that are bound and not ended."""
        self._on_node: dict[str, dict[str, tuple[Request, ...]]] = {}
        """Node -> pod -> what it takes."""
        self._pinned: dict[str, Object] = {}
        """Pods that are pinned and not bound, as if they were."""
        self.edition = 0
        """One more whenever what is taken of some node may be another."""
        self._sums: dict[str, tuple[Request, ...]] = {}

    def on(self, node: str) -> tuple[Request, ...]:
        """Of the pods that are bound to the node."""
        self._refresh()
        found = self._sums.get(node)
        if found is None:
            pods = self._on_node.get(node, {})
            found = self._sums[node] = tuple(one for name in sorted(pods) for one in pods[name])
        return found

    def pinned(self) -> list[Object]:
        """The pods that are pinned and not bound yet, as if they were."""
        self._refresh()
        return [self._pinned[name] for name in sorted(self._pinned)]

    def _refresh(self) -> None:
        nodes, are_nodes_new = self._nodes.all(NODES), False
        if nodes is not self._nodes_seen:
            names = [name_of(node) for node in nodes]
            are_nodes_new = names != self._node_names
            self._nodes_seen, self._node_names = nodes, names
        if self._revision == self._mirror.revision and not are_nodes_new:
            return
        # which node a label means may be another
        since = -1 if are_nodes_new else self._revision
        touched = self._mirror.names_touched(PODS, since, (*self._of_pod, *self._pinned))
        self._revision = self._mirror.revision
        if are_nodes_new:
            self.edition += 1
        for name in touched:
            self._take(name, self._mirror.get(PODS, name))

    def _take(self, name: str, pod: Object | None) -> None:
        taken = None if pod is None else next(iter(requests_by_node([pod]).items()), None)
        if taken is not None and self._of_pod.get(name) == taken:
            return
        self.edition += 1
        before = self._of_pod.pop(name, None)
        if before is not None:
            del self._on_node[before[0]][name]
            self._sums.pop(before[0], None)
        self._pinned.pop(name, None)
        if pod is None:
            return
        if taken is not None:
            node, requests = self._of_pod[name] = taken
            self._on_node.setdefault(node, {})[name] = requests
            self._sums.pop(node, None)
        if not pod["spec"].get("nodeName") and (is_worker(pod) or is_spark_worker(pod)):
            self._pinned[name] = bound_where_pinned(pod, self._node_names)
