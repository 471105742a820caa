"""What pods take of nodes, by what has changed: the same as reckoned anew, whatever happens."""

from __future__ import annotations

import random

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_WORKER,
    LABEL_COMPONENT,
    LABEL_NAME,
    LABEL_NODE,
    LABEL_TOPOLOGY,
)
from penstock_operator.cluster.kubernetes_api.port import CONFIG_MAPS, NODES, PODS, Object, name_of
from penstock_operator.cluster.observing.node_requests import NodeRequests
from penstock_operator.cluster.observing.observe import is_of, requests_by_node

NODE_NAMES = ("a", "b", "c")


def thing(name: str, version: int, **parts: object) -> Object:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": {}},
        **parts,
    }


def pod(name: str, version: int, node: str, *, is_bound: bool, cpu: int, phase: str, topology: str) -> Object:
    resources = {"requests": {"cpu": f"{cpu}m", "memory": "1Mi"}}
    spec: Object = {"containers": [{"name": "worker", "resources": resources}]}
    if is_bound:
        spec["nodeName"] = node
    made = thing(name, version, spec=spec, status={"phase": phase})
    made["metadata"]["labels"] = {
        LABEL_NAME: "penstock",
        LABEL_COMPONENT: COMPONENT_WORKER,
        LABEL_NODE: node,
        LABEL_TOPOLOGY: topology,
    }
    return made


def test_what_is_kept_up_to_date_is_what_would_be_reckoned_anew() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        mirror = Mirror(lambda kind, thing: None)
        kept = NodeRequests(mirror, mirror)
        for version in range(1, 120):
            name = f"p{rng.randrange(12)}"
            held = mirror.get(PODS, name)
            match rng.randrange(8):
                case 0 if held is not None:
                    mirror.remove(
                        PODS, {**held, "metadata": {**held["metadata"], "resourceVersion": str(version)}}
                    )
                case 1:
                    mirror.put(NODES, thing(rng.choice(NODE_NAMES), version, spec={}, status={}))
                case _:
                    made = pod(
                        name,
                        version,
                        rng.choice(NODE_NAMES),
                        is_bound=rng.random() < 0.7,
                        cpu=rng.randrange(1, 9) * 100,
                        phase=rng.choice(["Pending", "Running", "Succeeded"]),
                        topology=rng.choice(["one", "two"]),
                    )
                    mirror.put(PODS, made)
            if rng.random() < 0.5:
                anew = requests_by_node(mirror.all(PODS))
                assert {node: kept.on(node) for node in NODE_NAMES} == {
                    node: anew.get(node, ()) for node in NODE_NAMES
                }
                unbound = [name_of(one) for one in mirror.all(PODS) if not one["spec"].get("nodeName")]
                assert [name_of(one) for one in kept.pinned()] == unbound


def test_its_edition_is_another_when_what_is_taken_is_and_stays_when_a_pod_only_says_more() -> None:
    mirror = Mirror(lambda kind, thing: None)
    kept = NodeRequests(mirror, mirror)

    def edition(version: int, cpu: int, **changes: object) -> int:
        made = pod("p", version, "a", is_bound=True, cpu=cpu, phase="Running", topology="t")
        mirror.put(PODS, {**made, **changes})
        kept.on("a")
        return kept.edition

    first = edition(1, 100)
    assert edition(2, 100, status={"phase": "Running", "podIP": "10.0.0.1"}) == first
    assert edition(3, 200) > first
    before = kept.edition
    mirror.put(NODES, thing("a", 4, spec={}, status={}))
    kept.on("a")
    assert kept.edition > before


def test_pods_are_not_reckoned_anew_for_a_node_that_says_something_else_of_itself() -> None:
    mirror = Mirror(lambda kind, thing: None)
    mirror.put(NODES, thing("a", 1, spec={}, status={}))
    mirror.put(PODS, pod("p", 2, "a", is_bound=True, cpu=100, phase="Running", topology="one"))
    kept = NodeRequests(mirror, mirror)
    assert len(kept.on("a")) == 1
    edition = kept.edition
    relabelled = thing("a", 3, spec={}, status={})
    relabelled["metadata"]["labels"] = {"team": "b"}
    mirror.put(NODES, relabelled)
    assert len(kept.on("a")) == 1
    assert kept.edition == edition
    mirror.put(NODES, thing("b", 4, spec={}, status={}))
    kept.on("a")
    assert kept.edition > edition, "a label may mean another node now"


def test_objects_are_found_by_whose_they_are() -> None:
    rng = random.Random(1)
    mirror = Mirror(lambda kind, thing: None)
    for version in range(1, 300):
        name, topology = f"c{rng.randrange(9)}", rng.choice(["one", "two", "a.name:that is no label"])
        made = thing(name, version)
        made["metadata"]["labels"] = {LABEL_TOPOLOGY: topology} if rng.random() < 0.8 else {}
        if rng.random() < 0.2:
            mirror.remove(CONFIG_MAPS, made)
        else:
            mirror.put(CONFIG_MAPS, made)
        for of in ("one", "two"):
            assert list(mirror.of(CONFIG_MAPS, of)) == [
                one for one in mirror.all(CONFIG_MAPS) if is_of(one, of)
            ]


def test_changes_of_long_ago_are_not_told() -> None:
    mirror = Mirror(lambda kind, thing: None)
    for version in range(1, 21_000):
        mirror.put(CONFIG_MAPS, thing("c", version))
    assert mirror.revision == 20_999
    assert mirror.changes_since(0) is None
    assert mirror.changes_since(20_998) == [(CONFIG_MAPS, "c")]
    assert mirror.changes_since(mirror.revision) == []
