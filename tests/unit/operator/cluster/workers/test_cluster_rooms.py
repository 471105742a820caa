"""Where a worker may go, and which nodes have a store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.api.pods.pod_settings import PodSettings
from penstock_operator.cluster.decisions.actions import ApplyNodeStore, DeleteNodeStore
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.observing.observed import Need, ObservedNode, ObservedStore, Taint
from penstock_operator.cluster.stores.node_stores import decide_stores
from penstock_operator.cluster.workers.node_room import NodeRooms, PlacementRules, Size, served_before
from worlds.cluster_world import CONFIG
from worlds.cluster_world_parts import GIB

SIZE = Size(1000, GIB)


def node(name: str, cpu: int = 4000, **more: Any) -> ObservedNode:
    return ObservedNode(name, True, True, cpu, 8 * GIB, **more)


def store(name: str, **more: Any) -> ObservedStore:
    document = node_store(name, name, CONFIG)
    template = document["metadata"]["annotations"]["penstock.dev/template"]
    plain = ObservedStore(name, name, "s:6379", True, "Process", False, f"pen-store-{name}", "uid", template)
    return replace(plain, **more)


def rules(durability: str = "Process", **pod: Any) -> PlacementRules:
    return PlacementRules(PodSettings.model_validate(pod), {}, (), durability)


def rooms(*nodes: ObservedNode, needs: tuple[Need, ...] = (), **pod: Any) -> NodeRooms:
    stores = [store(one.name) for one in nodes]
    return NodeRooms(nodes, stores, rules(**pod), {}, needs)


def placed(found: NodeRooms, times: int, preferred: str = "") -> list[str | None]:
    chosen = [found.place(SIZE, preferred) for _ in range(times)]
    return [one.name if one is not None else None for one in chosen]


def test_workers_are_spread_and_what_is_placed_takes_its_room() -> None:
    assert placed(rooms(node("a", 2000), node("b", 1000)), 4) == ["a", "b", "a", None]


def test_a_preferred_node_is_taken_as_long_as_it_has_room() -> None:
    assert placed(rooms(node("a", 2000), node("b")), 3, "a") == ["a", "a", "b"]


def test_a_node_that_took_no_pod_is_the_last_choice() -> None:
    nodes = [node("a"), node("b", 1000)]
    found = NodeRooms(nodes, [store("a"), store("b")], rules(), {}, (), {"a"})
    assert placed(found, 2) == ["b", "a"]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (replace(node("a"), ready=False), "is not ready"),
        (replace(node("a"), schedulable=False), "is cordoned"),
        (node("a", taints=(Taint("team", "b", "NoSchedule"),)), "has the taint team"),
        (node("a", cpu=400), "Insufficient cpu (0.4 of 0.4 cores free)"),
        (node("a", memory_requested_bytes=8 * GIB), "Insufficient memory (0 of 8192 MiB free)"),
        (node("a", pods=110), "Too many pods (110)"),
    ],
)
def test_why_a_node_will_not_do_is_said_in_words_and_figures(seen: ObservedNode, told: str) -> None:
    found = rooms(seen)
    assert found.place(SIZE) is None
    assert told in found.why_none(SIZE)


def test_a_node_without_a_ready_store_of_the_right_kind_takes_none() -> None:
    def refusal(durability: str, *stores: ObservedStore) -> str:
        return NodeRooms([node("a")], stores, rules(durability), {}).refusal("a")

    assert refusal("Process") == "has no store"
    assert refusal("Disk", store("a")) == "has a store of durability Process"
    assert refusal("Process", store("a", ready=False, message="ImagePullBackOff")) == (
        "has no store that is ready (ImagePullBackOff)"
    )
    assert refusal("Disk", store("a", durability="Disk")) == ""


def test_tolerations_selectors_and_affinity_of_the_user_are_kept() -> None:
    tainted = node("a", labels={"zone": "x", "size": "8"}, taints=(Taint("team", "b", "NoSchedule"),))
    other = node("b", labels={"zone": "y", "size": "2"})
    tolerant = {"tolerations": [{"key": "team", "value": "b"}]}
    assert rooms(tainted, other).open_nodes() == ["b"]
    assert rooms(tainted, other, **tolerant).open_nodes() == ["a", "b"]
    assert rooms(tainted, other, nodeSelector={"zone": "x"}, **tolerant).open_nodes() == ["a"]

    def with_term(key: str, operator: str, *values: str) -> list[str]:
        expression = {"key": key, "operator": operator, "values": list(values)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return rooms(tainted, other, affinity=affinity, **tolerant).open_nodes()

    assert with_term("zone", "In", "x", "z") == ["a"]
    assert with_term("zone", "NotIn", "x") == ["b"]
    assert with_term("zone", "Exists") == ["a", "b"]
    assert with_term("zone", "DoesNotExist") == []
    assert with_term("size", "Gt", "4") == ["a"]
    assert with_term("size", "Lt", "4") == ["b"]
    assert with_term("zone", "Gt", "4") == []


def need(name: str, priority: int, cpu: int, pods: int = 1, created: str = "2026") -> Need:
    return Need(name, priority, created, pods, cpu, GIB)


def test_what_goes_first_takes_its_room_and_where_it_does_not_fit_nobody_else_does() -> None:
    assert placed(rooms(node("a"), needs=(need("first", 9, 3000),)), 2) == ["a", None]
    blocked = rooms(node("a"), needs=(need("first", 9, 3000, pods=2),))
    assert blocked.is_reserved
    assert placed(blocked, 1) == [None]
    assert blocked.why_none(SIZE) == "Topology first goes first: it waits for room too"


def test_what_could_never_fit_keeps_nobody_waiting() -> None:
    assert placed(rooms(node("a"), needs=(need("huge", 9, 64_000),)), 1) == ["a"]


def test_higher_priority_is_served_first_and_of_one_priority_the_older() -> None:
    needs = [
        need("a", 1, 1, created="2027"),
        need("b", 0, 1, created="2025"),
        need("c", 0, 1, created="2027"),
    ]
    assert [one.topology for one in served_before(needs, "mine", 0, "2026")] == ["a", "b"]


# --- stores -------------------------------------------------------------------------------------


def done(nodes: list[ObservedNode], stores: list[ObservedStore], named: set[str] | None) -> list[str]:
    names = {ApplyNodeStore: "apply", DeleteNodeStore: "delete"}
    return [f"{names[type(a)]} {a.store}" for a in decide_stores(CONFIG, nodes, stores, named).actions]


def test_each_schedulable_node_gets_a_store_once() -> None:
    assert done([node("a"), node("b")], [], set()) == ["apply a", "apply b"]
    assert done([node("a"), node("b")], [store("a")], set()) == ["apply b"]


def test_a_store_of_another_template_is_applied_again() -> None:
    assert done([node("a")], [store("a", template_hash="old")], {"a"}) == ["apply a"]


@pytest.mark.parametrize(
    "nodes",
    [
        [replace(node("a"), schedulable=False)],
        [],
        [node("a", taints=(Taint("team", "b", "NoSchedule"),))],
    ],
)
def test_a_node_that_is_cordoned_gone_or_closed_keeps_its_store_while_it_is_named(
    nodes: list[ObservedNode],
) -> None:
    assert done(nodes, [store("a")], {"a"}) == []
    assert done(nodes, [store("a")], None) == []
    assert done(nodes, [store("a")], set()) == ["delete a"]
    assert done(nodes, [], set()) == []


def test_a_node_that_is_only_not_ready_keeps_its_store_and_gets_no_new_one() -> None:
    away = replace(node("a"), ready=False, taints=(Taint("node.kubernetes.io/not-ready", "", "NoExecute"),))
    assert done([away], [store("a")], set()) == []
    assert done([away], [], set()) == []


def test_a_store_whose_volume_is_of_another_kind_is_made_anew_when_nothing_names_it() -> None:
    assert done([node("a")], [store("a", has_pvc=True)], {"a"}) == []
    assert done([node("a")], [store("a", has_pvc=True)], set()) == ["delete a"]
    assert done([node("a")], [store("a", has_pvc=True, is_deleting=True)], set()) == []
