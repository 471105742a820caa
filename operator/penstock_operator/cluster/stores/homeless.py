"""Stores whose node is gone: what becomes of each follows from its volume.

A Node object that is deleted says that its machine is off. Kubernetes then removes the pods that were on it,
and a store's StatefulSet makes its only pod again, never a second one beside it. One on a volume that other
nodes can mount is not held to its node any more: the scheduler lets it go wherever the volume goes. Its
shards are moved off from there, as off a node that is drained. Where the volume stays with the machine, or is
gone, or was the machine's own disk, nothing comes back by itself: the store is *lost*, and `decisions.losses`
has the rest. Pure. Neighbours: `stores_turn` asks the API server for claims and volumes, `node_stores` writes
the StatefulSets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.schedule.store_ids import server_of
from penstock_operator.cluster.decisions.actions import DeletePod
from penstock_operator.cluster.kubernetes_api.port import Object, name_of
from penstock_operator.cluster.manifests.node_store import claim_name
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.workers.node_terms import fits_terms

GONE_AFTER_S = 30.0
"""So long a node must have been away from the list: who registers it anew under its name needs less."""


@dataclass(frozen=True, slots=True)
class Homeless:
    """`may_go` are stores that are to come up wherever their volume can be mounted. `lost` is store id -> why
    nothing of it will be back by itself."""

    may_go: frozenset[str] = frozenset()
    lost: Mapping[str, str] = field(default_factory=dict)


def gone_since(
    before: Mapping[str, float], nodes: Iterable[ObservedNode], stores: Iterable[ObservedStore], now_s: float
) -> dict[str, float]:
    """Node -> since when it is not there, of those that have a store."""
    there = {node.name for node in nodes}
    return {store.node: before.get(store.node, now_s) for store in stores if store.node not in there}


def homeless_stores(
    stores: Iterable[ObservedStore],
    named: Collection[str] | None,
    gone: Mapping[str, float],
    now_s: float,
) -> list[ObservedStore]:
    """Those whose volume has to be asked for: their node is gone, and Schedules name them."""
    return [
        store
        for store in stores
        if store.node in gone
        and now_s - gone[store.node] >= GONE_AFTER_S
        and not store.is_deleting
        and (named is None or store.id in named)
    ]


def why_lost(
    store: ObservedStore, claim: Object | None, volume: Object | None, nodes: Sequence[ObservedNode]
) -> str:
    """Why nothing of a homeless store comes back by itself; "" where its volume can be mounted by some node.
    `claim` and `volume` are as the API server has them, None: it has none."""
    gone, server = f"node {store.node} is gone", server_of(store.id)
    its_store = f"its store of server {server}" if server else "its store"
    if not store.has_pvc:
        return f"{gone}, and {its_store} was on that machine's own disk (an emptyDir)"
    name = claim_name(store.stateful_set)
    if claim is None:
        return f"{gone}, and so is {its_store}'s claim {name}"
    bound = (claim.get("spec") or {}).get("volumeName")
    if not bound:
        return f"{gone}, and {its_store}'s claim {name} has no volume"
    if volume is None:
        return f"{gone}, and so is {its_store}'s volume {bound}"
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    terms = (required or {}).get("nodeSelectorTerms")
    if terms is not None and not any(fits_terms(terms, node.name, node.labels) for node in nodes):
        return (
            f"{gone}, and no other one can mount {its_store}'s volume {name_of(volume)}; if a node of that "
            "name and its disk come back, so does the state"
        )
    return ""


def pods_to_make_anew(stores: Iterable[ObservedStore], may_go: Collection[str]) -> list[DeletePod]:
    """Pods of stores that may go elsewhere, which are still held to the node that is gone: the StatefulSet
    makes them anew as it is now. One that is bound to a node is left to Kubernetes: it may run."""
    return [
        DeletePod(
            f"{store.stateful_set}-0",
            store.pod_uid,
            f"node {store.node} is gone; its volume can be mounted by others",
        )
        for store in stores
        if store.id in may_go and store.pod_uid and store.is_outdated and not store.runs_on
    ]
