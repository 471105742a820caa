"""Which nodes have stores: a StatefulSet for each server of each schedulable node that fits the selector.

A node that is cordoned or gone, or that is to have fewer servers, loses a store only when no Schedule names
it any more: until then it holds state. Neighbours: `manifests.node_store` builds the object, `store_volumes`
says what can become of a volume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock.api.operator_config import OperatorConfig
from penstock.api.pods.pod_settings import PodSettings
from penstock.api.specs.sizes_spec import SERVERS_MAX
from penstock.control.wording import counted
from penstock.manifest.document import cpu_millis, memory_bytes
from penstock.schedule.store_ids import node_of, server_of, store_id
from penstock_operator.cluster.decisions.actions import (
    ApplyNodeStore,
    DeleteNodeStore,
    Event,
    GrowVolume,
    StoresDecision,
)
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.homeless import Homeless
from penstock_operator.cluster.stores.store_volumes import (
    as_it_may_be,
    grown_volume,
    kept_volume,
    why_another_volume,
)
from penstock_operator.cluster.workers.node_room import PlacementRules

NONE_HOMELESS = Homeless()


class _Stands(Enum):
    """How a store stands."""

    NOT_WANTED = "there is none, and the node is to have none"
    MISSING = "there is none: the node is to have one, or a Schedule names the one that went with its node"
    WAITS = "there is none, and the node has no room for a further one, or an earlier one is not ready yet"
    GOING = "it is being deleted"
    MISPLACED = "it should not be where it is"
    SURPLUS = "its node is to have fewer, and it is not one of the first"
    HOMELESS = "it should not be where it is, and may go wherever its volume can be mounted"
    OTHER_VOLUME = "its volume is another than what is configured"
    IN_PLACE = "it is as it should be, but perhaps for its template"


class _Care(Enum):
    """What is done about it."""

    LEAVE = "nothing"
    KEEP = "it is written where it is missing or its template is another"
    EMPTY = "as KEEP, and its shards are moved off: it is to be replaced"
    REMOVE = "it is deleted"


_CARE = {
    # how it stands: (while a Schedule names it, or that is not known; while none does)
    _Stands.NOT_WANTED: (_Care.LEAVE, _Care.LEAVE),
    _Stands.MISSING: (_Care.KEEP, _Care.KEEP),
    _Stands.WAITS: (_Care.KEEP, _Care.LEAVE),
    _Stands.GOING: (_Care.LEAVE, _Care.LEAVE),
    _Stands.MISPLACED: (_Care.LEAVE, _Care.REMOVE),
    _Stands.SURPLUS: (_Care.EMPTY, _Care.REMOVE),
    _Stands.HOMELESS: (_Care.KEEP, _Care.REMOVE),
    _Stands.OTHER_VOLUME: (_Care.EMPTY, _Care.REMOVE),
    _Stands.IN_PLACE: (_Care.KEEP, _Care.KEEP),
}


@dataclass(frozen=True, slots=True)
class OneStore:
    """What a decision about the store with the id `name` follows from. `node` is None for one that is gone,
    `store` where there is none; `is_unnamed`: that no Schedule names it is known; `may_go`: it is homeless,
    and its volume may be mounted elsewhere. `may_begin`: it may be made now, where it is not there."""

    name: str
    node: ObservedNode | None
    store: ObservedStore | None
    is_unnamed: bool
    may_go: bool
    may_begin: bool = True


def decide_store(one: OneStore, config: OperatorConfig) -> StoresDecision:
    """A store that exists stays on a node that is not ready. One that is named and was deleted with its node
    is made again, for its volume may be there. A homeless one is held by its volume alone where that may go.
    One whose volume is another than what is configured now keeps it as long as it is named: what else is
    configured reaches it all the same.
    """
    name, store = one.name, one.store
    actions: list[ApplyNodeStore | DeleteNodeStore | GrowVolume] = []
    notices: list[tuple[str, Event]] = []
    stands, reason = _stands(one, config)
    care = _CARE[stands][one.is_unnamed]
    if care is _Care.REMOVE and store is not None:
        actions.append(DeleteNodeStore(store.stateful_set, name, store.uid, reason))
    if care in (_Care.REMOVE, _Care.LEAVE):
        return StoresDecision(tuple(actions))
    own = node_of(name) if one.node is None else one.node.hostname or one.node.name
    document = node_store(name, None if one.may_go else own, as_it_may_be(store, config))
    metadata: Mapping[str, str] = document["metadata"]["annotations"]
    if store is None or store.template_hash != metadata[ANNOTATION_TEMPLATE]:
        actions.append(ApplyNodeStore(document["metadata"]["name"], name, document))
    if store is not None and not why_another_volume(store, config):
        if grown := grown_volume(store, config):
            actions.append(grown)
        elif told := kept_volume(store, config):
            notices.append((store.stateful_set, told))
    replaced = {name: reason} if care is _Care.EMPTY else {}
    return StoresDecision(tuple(actions), replaced, tuple(notices))


def decide_stores(
    config: OperatorConfig,
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    named: Collection[str] | None,
    homeless: Homeless = NONE_HOMELESS,
    decide: Callable[[OneStore, OperatorConfig], StoresDecision] = decide_store,
) -> StoresDecision:
    """`named` are the ids of all stores that any Schedule of the namespace names; None while the Schedules
    could not be listed completely: then none is removed. `decide` says it of each store."""
    existing = {store.id: store for store in stores}
    by_name = {node.name: node for node in nodes}
    wanted = {
        store_id(node.name, server)
        for node in nodes
        for server in range(config.store.servers_of(node.cpu_allocatable_millis))
    }
    decisions = [
        decide(
            OneStore(
                name,
                by_name.get(node_of(name)),
                existing.get(name),
                is_unnamed=named is not None and name not in named,
                may_go=name in homeless.may_go,
                may_begin=name in existing or _may_begin(name, by_name.get(node_of(name)), existing, config),
            ),
            config,
        )
        for name in sorted(wanted | existing.keys() | set(named or ()))
    ]
    return StoresDecision(
        tuple(action for one in decisions for action in one.actions),
        {name: reason for one in decisions for name, reason in one.replaced.items()},
        tuple(notice for one in decisions for notice in one.notices),
    )


def _stands(one: OneStore, config: OperatorConfig) -> tuple[_Stands, str]:
    """How it stands; and why it is not to stay as it is, where it is not."""
    node, store = one.node, one.store
    surplus = why_surplus(one.name, node, config)
    if store is None:
        is_wanted = node is None or _is_wanted(node, config)
        if not is_wanted or (surplus and one.is_unnamed):
            return _Stands.NOT_WANTED, ""
        return (_Stands.MISSING if one.may_begin else _Stands.WAITS), ""
    if store.is_deleting:
        return _Stands.GOING, ""
    if reason := _out_of_place(node, store, config):
        return (_Stands.HOMELESS if one.may_go else _Stands.MISPLACED), reason
    if surplus:
        return _Stands.SURPLUS, surplus
    if reason := why_another_volume(store, config):
        return _Stands.OTHER_VOLUME, reason
    return _Stands.IN_PLACE, ""


def as_left(nodes: Sequence[ObservedNode], config: OperatorConfig) -> tuple[ObservedNode, ...]:
    """The nodes as topologies are to see them: one whose store has to leave takes no worker either."""
    rules = _rules(config)
    return tuple(replace(one, schedulable=False) if rules.sends_away(one) else one for one in nodes)


def why_surplus(store: str, node: ObservedNode | None, config: OperatorConfig) -> str:
    """Why a node that is there is to have no such server; "" when it is."""
    servers = config.store.servers_of(node.cpu_allocatable_millis) if node is not None else SERVERS_MAX
    if server_of(store) < servers:
        return ""
    return f"node {node_of(store)} is to have {counted(servers, 'store server')}"


def _may_begin(
    name: str, node: ObservedNode | None, existing: Mapping[str, ObservedStore], config: OperatorConfig
) -> bool:
    """Whether a store that is not there may be made. The first of a node takes its place; a further one waits
    until the one before is ready and there is room for it: with a priority class it would drive out others,
    and where it waits for room it might take that of a store that is started anew."""
    if node is None or not (server := server_of(name)):
        return True
    before = existing.get(store_id(node.name, server - 1))
    store, agent = config.store, config.agent
    return (
        before is not None
        and before.ready
        and node.has_room_for(
            cpu_millis(store.cpu) + cpu_millis(agent.cpu),
            memory_bytes(store.memory) + memory_bytes(agent.memory),
        )
    )


def _is_wanted(node: ObservedNode, config: OperatorConfig) -> bool:
    return node.ready and not _misfit(node, config)


def _out_of_place(node: ObservedNode | None, store: ObservedStore, config: OperatorConfig) -> str:
    """Why the store should not be as it is; "" when it should."""
    if node is None:
        return f"node {store.node} is gone"
    if store.is_elsewhere:
        return f"node {store.node} is back, and the store is on node {store.runs_on}"
    if misfit := _misfit(node, config):
        return f"node {store.node} {misfit}"
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
    anything = ObservedStore(node.name, node.name, "", True, "Disk", True, "", "")
    return _rules(config).refuses(ready, anything)


def _rules(config: OperatorConfig) -> PlacementRules:
    return PlacementRules(
        PodSettings(), config.store.node_selector, config.store.tolerations, config.store.durability
    )
