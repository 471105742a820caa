"""How node stores come to a new template: homes are moved off, then the pod is deleted, one store at a time.

A StatefulSet with OnDelete keeps its pod as it is when the template changes, as with a chart's upgrade. The
store whose turn it is is to be left, and with it its node where that has no other one, which then counts as
cordoned: the topologies take their work elsewhere, as for a drain. Once no Schedule names the store, its pod
goes, and comes back of the new template. A store that nobody can take the shards of is started anew in place
if its state is on a volume: its shards wait for a moment and nothing is lost. Without a volume its state
would go with the pod, so it stays as it is, and an event says so.
A store that is to have another volume has its shards moved off in the same way, and is then made anew.
Pure. Neighbours: `node_stores` decides which stores there are, `decide` sees the node as cordoned, or the
store as one to be left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.api.operator_config import OperatorConfig
from penstock.schedule.store_ids import node_of, server_of
from penstock_operator.cluster.decisions.actions import DeletePod, Event
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.node_stores import why_surplus

PATIENCE_S = 300.0
"""So long the topologies have to take their shards elsewhere."""
PASSED_OVER_S = 300.0
"""A store that they did not leave in that time has its turn again after so long: there may be room then."""

NOTHING_REPLACED: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class RenewalMemory:
    """The id of the store that is being renewed, "" for none. `begun_s` is pod uid -> since when its shards
    are asked away. May be lost: then the patience begins anew."""

    store: str = ""
    begun_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Renewal:
    """`restart` is the pod to delete now. `notices` are (StatefulSet, event), as long as they hold."""

    memory: RenewalMemory
    restart: DeletePod | None = None
    notices: tuple[tuple[str, Event], ...] = ()


def decide_renewal(
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    named: Collection[str] | None,
    memory: RenewalMemory,
    now_s: float,
    replaced: Mapping[str, str] = NOTHING_REPLACED,
) -> Renewal:
    """`named` are the ids of all stores that any Schedule names, None while that is not known. `replaced` is
    store id -> why it is to be made anew, or to go: that is done elsewhere, once nobody names it."""
    able = {node.name for node in nodes if node.ready and node.schedulable}
    outdated = {
        store.id: store
        for store in stores
        if (store.is_outdated or store.id in replaced) and not store.is_deleting
    }
    begun_s = {uid: at for uid, at in memory.begun_s.items() if uid in {s.pod_uid for s in outdated.values()}}
    is_one_away = any(
        not store.ready and not store.is_outdated and store.node in able
        for store in stores
        if store.id in (named or ()) or not store.finds_no_place
    )
    if named is None or (is_one_away and memory.store not in outdated):
        return Renewal(RenewalMemory(memory.store if memory.store in outdated else "", begun_s))
    notices: list[tuple[str, Event]] = []
    for name in sorted(outdated, key=lambda name: (name != memory.store, name not in replaced, name)):
        store = outdated[name]
        if store.node not in {node.name for node in nodes if node.ready}:
            continue
        if name not in named and name in replaced:
            return Renewal(RenewalMemory(name, begun_s), notices=tuple(notices))
        if name not in named:
            return Renewal(RenewalMemory(name, begun_s), _restart(store, "no shard is there", is_one_away))
        since_s = begun_s.get(store.pod_uid, now_s)
        if now_s - since_s >= PATIENCE_S + PASSED_OVER_S:
            since_s = now_s
        begun_s[store.pod_uid] = since_s
        can_leave = any(other.ready and other.node in able and other.id != name for other in stores)
        if can_leave and store.ready and now_s - since_s < PATIENCE_S:
            return Renewal(RenewalMemory(name, begun_s), notices=tuple(notices))
        if name in replaced:
            told = f"{replaced[name]}; it stays as it is: no other store takes its shards"
            notices.append((store.stateful_set, Event("Warning", _kept(name), told)))
        if not store.is_outdated:
            continue
        if store.has_pvc:
            told = f"store pod {store.stateful_set}-0 is started anew: its shards wait until it is back"
            event = Event("Normal", "StoreRestarted", told)
            restart = _restart(
                store, "no other store takes its shards; its state is on a volume", is_one_away
            )
            return Renewal(RenewalMemory("", begun_s), restart, (*notices, (store.stateful_set, event)))
        told = (
            f"store pod {store.stateful_set}-0 keeps an outdated template: no other store takes its shards, "
            "and without a volume (store.storageClassName) its state would go with it"
        )
        notices.append((store.stateful_set, Event("Warning", "StoreOutdated", told)))
    return Renewal(RenewalMemory("", begun_s), notices=tuple(notices))


def as_cordoned(
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    config: OperatorConfig,
    renewing: str,
) -> tuple[ObservedNode, ...]:
    """The nodes as topologies are to see them while the store with the id `renewing` is renewed."""
    if not renewing or _others_stay(nodes, stores, config, renewing):
        return tuple(nodes)
    return tuple(replace(one, schedulable=False) if one.name == node_of(renewing) else one for one in nodes)


def as_to_be_left(
    nodes: Sequence[ObservedNode],
    stores: Sequence[ObservedStore],
    config: OperatorConfig,
    renewing: str,
) -> tuple[ObservedStore, ...]:
    """The stores as topologies are to see them: of those that their nodes are to have no more, and of the one
    that is renewed, workers keep off where there is another; and the one whose turn it is they leave."""
    if not renewing and not any(server_of(store.id) for store in stores):
        return tuple(stores)
    by_name = {node.name: node for node in nodes}

    def seen(store: ObservedStore) -> ObservedStore:
        surplus = why_surplus(store.id, by_name.get(store.node), config)
        reason = surplus or ("it is being renewed" if store.id == renewing else "")
        if not reason or not _others_stay(nodes, stores, config, store.id):
            return store
        return replace(store, closed=reason, leaves=reason if store.id == renewing else "")

    found = tuple(seen(store) for store in stores)
    return tuple(stores) if all(a is b for a, b in zip(found, stores, strict=True)) else found


def _others_stay(
    nodes: Sequence[ObservedNode], stores: Sequence[ObservedStore], config: OperatorConfig, but: str
) -> bool:
    """Whether the node of the store `but` has another one that stays."""
    node = next((node for node in nodes if node.name == node_of(but)), None)
    return any(
        one.node == node_of(but)
        and one.id != but
        and not one.is_deleting
        and not one.finds_no_place
        and not why_surplus(one.id, node, config)
        for one in stores
    )


def _kept(store: str) -> str:
    """What an event is called that says that a store is not left: the first one of a node is to be for its
    volume alone."""
    return "StoreKept" if server_of(store) else "StoreVolumeKept"


def _restart(store: ObservedStore, reason: str, is_one_away: bool) -> DeletePod | None:
    """Not while another store is on its way back."""
    if is_one_away:
        return None
    return DeletePod(f"{store.stateful_set}-0", store.pod_uid, f"its template is outdated; {reason}")
