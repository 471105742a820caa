"""Which workers are to work on another store of their node, and why: in words.

A worker works on the store that it began with. Where its node has several, it is made anew to get another
one: when its own is to be left, when there is none of that id any more, or when it runs nothing yet and its
own takes no more. When more of its topology's workers run something on its own than on another, it is for the
better: only where there is room for who takes its place. Pure. Neighbours: `pods` asks, `node_room` chooses
a new worker's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from penstock.schedule.store_ids import node_of, server_of
from penstock_operator.cluster.kubernetes_api.names import worker_index
from penstock_operator.cluster.observing.observed import Observed, ObservedPod
from penstock_operator.cluster.workers.node_room import PlacementRules

CROWDED_BY = 2
"""So many workers more than on another store are too many: with one more or less somewhere is always one."""


@dataclass(frozen=True, slots=True)
class LeavingStores:
    """Of one topology at one look. `leaves` is store id -> why its workers leave it, `closed` why it takes no
    more, `absent` are ids that no store has though the node is there, `crowded` is worker -> why it would
    better go elsewhere."""

    leaves: Mapping[str, str]
    closed: Mapping[str, str]
    absent: frozenset[str]
    crowded: Mapping[str, str]

    @classmethod
    def of(cls, observed: Observed, rules: PlacementRules | None, holders: Collection[str]) -> Self:
        """`holders` are the workers that run something, as far as they may go for the better."""
        leaves = {store.id: store.leaves for store in observed.stores if store.leaves}
        closed = {store.id: store.closed for store in observed.stores if store.closed}
        standing = {store.id for store in observed.stores if not store.is_deleting}
        nodes = {node.name for node in observed.nodes}
        absent = frozenset(
            pod.store
            for pod in observed.pods
            if server_of(pod.store) and pod.store not in standing and node_of(pod.store) in nodes
        )
        # One after the other: of two that are to go, one's work might be given to the new one of the other.
        is_calm = rules is not None and not closed and not absent
        crowded = _crowded(observed, rules, holders) if is_calm and rules is not None else {}
        return cls(leaves, closed, absent, crowded)

    def why(self, store: str, *, holds: bool) -> str:
        """Why a worker on this store is to be made anew; "" where it stays. What it `holds` is in its store:
        if that is not there it is made again."""
        if reason := self.leaves.get(store):
            return reason
        if holds:
            return ""
        return "there is no such store any more" if store in self.absent else self.closed.get(store, "")


def _crowded(observed: Observed, rules: PlacementRules, holders: Collection[str]) -> dict[str, str]:
    """One worker of the store that has most of the topology's workers more than another one of its node.

    Who runs nothing yet does not count: so what is decided here stands until its place is taken.
    """
    pods = [pod for pod in observed.pods if pod.deletion_timestamp is None]
    on: dict[str, list[ObservedPod]] = {}
    for pod in pods:
        if pod.name in holders:
            on.setdefault(pod.store, []).append(pod)
    fullest, most, least = "", 0, 0
    for node in observed.nodes:
        able = sorted(
            store.id
            for store in observed.stores
            if store.node == node.name and not store.is_elsewhere and not rules.refuses(node, store)
        )
        counts = [len(on.get(store, ())) for store in able]
        if len(able) < 2 or max(counts) - min(counts) < max(CROWDED_BY, most - least + 1):
            continue
        store = able[counts.index(max(counts))]
        if any(pod.node == node.name and pod.store != store and pod.name not in holders for pod in pods) or (
            node.has_room_for(on[store][0].cpu_request_millis, on[store][0].memory_request_bytes)
        ):
            fullest, most, least = store, max(counts), min(counts)
    if not fullest:
        return {}
    name = max((pod.name for pod in on[fullest]), key=worker_index)
    return {name: f"{most} of the topology's workers are on it, and {least} on another"}
