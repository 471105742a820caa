"""Which nodes have a store: one StatefulSet for each schedulable node that fits the selector.

A node that is cordoned or gone loses its store only when no Schedule names it any more: until then it holds
state. Neighbours: `manifests.node_store` builds the object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock.api.pod_settings import PodSettings
from penstock_operator.cluster.decisions.actions import ApplyNodeStore, DeleteNodeStore, StoresDecision
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.workers.node_room import PlacementRules


def decide_stores(
    config: OperatorConfig,
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    named: Collection[str] | None,
) -> StoresDecision:
    """`named` are the ids of all stores that any Schedule of the namespace names; None while the Schedules
    could not be listed completely: then none is removed.

    A store that exists stays on a node that is not ready, and one whose volume differs from what is
    configured now stays as it is as long as it is named.
    """
    existing = {store.node: store for store in stores}
    by_name = {node.name: node for node in nodes}
    actions: list[ApplyNodeStore | DeleteNodeStore] = []
    for name in sorted(by_name.keys() | existing.keys()):
        node, store = by_name.get(name), existing.get(name)
        if store is not None and store.is_deleting:
            continue
        if store is not None and (reason := _out_of_place(node, store, config)):
            if named is not None and store.id not in named:
                actions.append(DeleteNodeStore(store.stateful_set, name, store.uid, reason))
            continue
        if node is None or (store is None and not _is_wanted(node, config)):
            continue
        document = node_store(name, node.hostname or name, config)
        metadata: Mapping[str, str] = document["metadata"]["annotations"]
        if store is None or store.template_hash != metadata[ANNOTATION_TEMPLATE]:
            actions.append(ApplyNodeStore(document["metadata"]["name"], name, document))
    return StoresDecision(tuple(actions))


def _is_wanted(node: ObservedNode, config: OperatorConfig) -> bool:
    return node.ready and not _misfit(node, config)


def _out_of_place(node: ObservedNode | None, store: ObservedStore, config: OperatorConfig) -> str:
    """Why the store should not be as it is; "" when it should."""
    if node is None:
        return f"node {store.node} is gone"
    if misfit := _misfit(node, config):
        return f"node {store.node} {misfit}"
    has_pvc = config.store.storage_class_name is not None
    if store.has_pvc != has_pvc:
        return f"its volume is {'none' if has_pvc else 'a claim'}, which is not what is configured now"
    return ""


def _misfit(node: ObservedNode, config: OperatorConfig) -> str:
    """As for a worker, but a node that is only not ready just now keeps its store."""
    ready = ObservedNode(
        node.name,
        ready=True,
        schedulable=node.schedulable,
        cpu_allocatable_millis=0,
        memory_allocatable_bytes=0,
        labels=node.labels,
        taints=tuple(taint for taint in node.taints if not taint.key.startswith("node.kubernetes.io/")),
    )
    rules = PlacementRules(
        PodSettings(), config.store.node_selector, config.store.tolerations, config.store.durability
    )
    anything = ObservedStore(node.name, node.name, "", True, "Disk", True, "", "")
    return rules.refuses(ready, anything)
