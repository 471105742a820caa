"""How node stores come to a new template: homes are moved off, then the pod is deleted, one node at a time.

A StatefulSet with OnDelete keeps its pod as it is when the template changes, as with a chart's upgrade. The
node whose turn it is counts as cordoned for placement: the topologies take their work elsewhere, as for a
drain. Once no Schedule names its store, the pod goes, and comes back of the new template. A store that nobody
can take the shards of is started anew in place if its state is on a volume: its shards wait for a moment and
nothing is lost. Without a volume its state would go with the pod, so it stays as it is, and an event says so.
A store that is to have another volume has its shards moved off in the same way, and is then made anew.
Pure. Neighbours: `node_stores` decides which stores there are, `decide` sees the node as cordoned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_operator.cluster.decisions.actions import DeletePod, Event
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore

PATIENCE_S = 300.0
"""So long the topologies have to take their shards elsewhere."""


NOTHING_REPLACED: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class RenewalMemory:
    """The node whose store is being renewed, "" for none. `begun_s` is pod uid -> since when its shards are
    asked away. May be lost: then the patience begins anew."""

    node: str = ""
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
    node -> why its store is to be made anew: that is done elsewhere, once nobody names it."""
    able = {node.name for node in nodes if node.ready and node.schedulable}
    outdated = {
        store.node: store
        for store in stores
        if (store.is_outdated or store.node in replaced) and not store.is_deleting
    }
    begun_s = {uid: at for uid, at in memory.begun_s.items() if uid in {s.pod_uid for s in outdated.values()}}
    is_one_away = any(not store.ready and not store.is_outdated and store.node in able for store in stores)
    if named is None or (is_one_away and memory.node not in outdated):
        return Renewal(RenewalMemory(memory.node if memory.node in outdated else "", begun_s))
    notices: list[tuple[str, Event]] = []
    for name in sorted(outdated, key=lambda name: (name != memory.node, name)):
        store = outdated[name]
        if name not in {node.name for node in nodes if node.ready}:
            continue
        if store.id not in named and name in replaced:
            return Renewal(RenewalMemory(name, begun_s), notices=tuple(notices))
        if store.id not in named:
            return Renewal(RenewalMemory(name, begun_s), _restart(store, "no shard is there", is_one_away))
        since_s = begun_s.setdefault(store.pod_uid, now_s)
        can_leave = any(other.ready and other.node in able - {name} for other in stores)
        if can_leave and store.ready and now_s - since_s < PATIENCE_S:
            return Renewal(RenewalMemory(name, begun_s), notices=tuple(notices))
        if name in replaced:
            told = f"{replaced[name]}; it stays as it is: no other node takes its shards"
            notices.append((store.stateful_set, Event("Warning", "StoreVolumeKept", told)))
        if not store.is_outdated:
            continue
        if store.has_pvc:
            told = f"store pod {store.stateful_set}-0 is started anew: its shards wait until it is back"
            event = Event("Normal", "StoreRestarted", told)
            restart = _restart(store, "no other node takes its shards; its state is on a volume", is_one_away)
            return Renewal(RenewalMemory("", begun_s), restart, (*notices, (store.stateful_set, event)))
        told = (
            f"store pod {store.stateful_set}-0 keeps an outdated template: no other node takes its shards, "
            "and without a volume (store.storageClassName) its state would go with it"
        )
        notices.append((store.stateful_set, Event("Warning", "StoreOutdated", told)))
    return Renewal(RenewalMemory("", begun_s), notices=tuple(notices))


def as_cordoned(nodes: Sequence[ObservedNode], node: str) -> tuple[ObservedNode, ...]:
    """The nodes as topologies are to see them while the store of `node` is being renewed."""
    return tuple(replace(one, schedulable=False) if one.name == node else one for one in nodes)


def _restart(store: ObservedStore, reason: str, is_one_away: bool) -> DeletePod | None:
    """Not while another store is on its way back."""
    if is_one_away:
        return None
    return DeletePod(f"{store.stateful_set}-0", store.pod_uid, f"its template is outdated; {reason}")
