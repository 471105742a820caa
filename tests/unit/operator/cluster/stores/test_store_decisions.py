"""A kept decision about the node stores is the one that would be made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore, Taint
from penstock_operator.cluster.stores.homeless import Homeless
from penstock_operator.cluster.stores.node_stores import decide_stores
from penstock_operator.cluster.stores.store_decisions import StoreDecisions
from worlds.cluster_world import CONFIG
from worlds.cluster_world_parts import GIB


@dataclass(frozen=True)
class Seen:
    nodes: tuple[ObservedNode, ...] = tuple(
        ObservedNode(name, True, True, 4000, 8 * GIB, labels={"zone": "a"}) for name in ("n1", "n2", "n3")
    )
    stores: tuple[ObservedStore, ...] = tuple(
        ObservedStore(name, name, "s:6379", True, "Process", False, f"pen-store-{name}", "uid")
        for name in ("n1", "n2")
    )
    named: frozenset[str] | None = frozenset({"n1"})
    homeless: Homeless = field(default_factory=Homeless)

    def with_node(self, **changes: object) -> Seen:
        return replace(self, nodes=(replace(self.nodes[0], **changes), *self.nodes[1:]))  # type: ignore[arg-type]


CHANGES: dict[str, Callable[[Seen], Seen]] = {
    "a node is cordoned": lambda seen: seen.with_node(schedulable=False),
    "a node is not ready": lambda seen: seen.with_node(ready=False),
    "a node is tainted": lambda seen: seen.with_node(taints=(Taint("own", "", "NoExecute"),)),
    "a node has other labels": lambda seen: seen.with_node(labels={"zone": "b"}),
    "a node has another host name": lambda seen: seen.with_node(hostname="another"),
    "a node is gone": lambda seen: replace(seen, nodes=seen.nodes[1:]),
    "a node has come": lambda seen: replace(
        seen, nodes=(*seen.nodes, ObservedNode("n4", True, True, 1, GIB))
    ),
    "a store is another": lambda seen: replace(
        seen, stores=(replace(seen.stores[0], template_hash="x"), seen.stores[1])
    ),
    "a store is gone": lambda seen: replace(seen, stores=seen.stores[:1]),
    "another store is named": lambda seen: replace(seen, named=frozenset({"n2"})),
    "none is named": lambda seen: replace(seen, named=frozenset()),
    "what is named is not known": lambda seen: replace(seen, named=None),
    "a store may go": lambda seen: replace(seen, homeless=Homeless(may_go=frozenset({"n1"}))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_it_follows_from_is_decided_on_anew(what: str) -> None:
    decisions, seen = StoreDecisions(CONFIG), Seen()
    decisions.about(seen.nodes, seen.stores, seen.named, seen.homeless)
    now = CHANGES[what](seen)
    told = decisions.about(now.nodes, now.stores, now.named, now.homeless)
    assert told == decide_stores(CONFIG, now.nodes, now.stores, now.named, now.homeless)


def test_what_pods_take_of_nodes_is_nothing_to_it() -> None:
    decisions, seen = StoreDecisions(CONFIG), Seen()
    told = decisions.about(seen.nodes, seen.stores, seen.named, seen.homeless)
    assert told.actions
    now = seen.with_node(cpu_requested_millis=1000, memory_requested_bytes=GIB, pods=7)
    again = decisions.about(now.nodes, now.stores, now.named, now.homeless)
    assert [id(one) for one in again.actions] == [id(one) for one in told.actions]
    assert decide_stores(CONFIG, now.nodes, now.stores, now.named, now.homeless) == told


def test_only_the_store_of_a_node_that_is_another_is_decided_about_anew() -> None:
    decisions, seen = StoreDecisions(CONFIG), Seen()
    more = tuple(replace(seen.nodes[0], name=f"more-{number}") for number in range(3))
    before = decisions.about((*seen.nodes, *more), seen.stores, seen.named, seen.homeless)
    relabelled = (*more[:2], replace(more[2], labels={"is": "another"}))
    now = decisions.about((*seen.nodes, *relabelled), seen.stores, seen.named, seen.homeless)
    kept = {id(one) for one in before.actions}
    assert [one.store for one in now.actions if id(one) not in kept] == ["more-2"]
