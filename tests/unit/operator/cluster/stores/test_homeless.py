"""What becomes of a store whose node is gone, by its volume."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.homeless import (
    GONE_AFTER_S,
    gone_since,
    homeless_stores,
    pods_to_make_anew,
    why_lost,
)


def node(name: str, **labels: str) -> ObservedNode:
    return ObservedNode(name, True, True, 1000, 1 << 30, labels=labels)


def store(name: str, *, has_pvc: bool = True, **fields: Any) -> ObservedStore:
    return ObservedStore(
        name, name, f"{name}:6379", False, "Disk", has_pvc, f"pen-store-{name}", "u", **fields
    )


CLAIM = {"spec": {"volumeName": "pv-1"}}
OTHERS = [node("b", zone="z1", size="9"), node("c", zone="z2")]


def volume(*requirements: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    terms = [{"matchExpressions": list(requirements), "matchFields": list(fields)}]
    return {
        "metadata": {"name": "pv-1"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }


def need(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    "seen",
    [
        {"metadata": {"name": "pv-1"}, "spec": {}},
        volume(need("zone", "In", "z2", "z3")),
        volume(need("zone", "NotIn", "z2")),
        volume(need("size", "Gt", "8"), need("zone", "Exists")),
        volume(need("size", "DoesNotExist")),
        volume(fields=(need("metadata.name", "In", "c"),)),
    ],
)
def test_a_volume_that_some_node_can_mount_loses_nothing(seen: dict[str, Any]) -> None:
    assert why_lost(store("a"), CLAIM, seen, OTHERS) == ""


@pytest.mark.parametrize(
    ("claim", "seen", "told"),
    [
        (None, None, "so is its store's claim data-pen-store-a-0"),
        ({"spec": {}}, None, "has no volume"),
        (CLAIM, None, "so is its store's volume pv-1"),
        (CLAIM, volume(need("zone", "In", "z9")), "no other one can mount its store's volume pv-1"),
        (CLAIM, volume(need("zone", "In", "z1"), need("size", "Lt", "9")), "no other one can mount"),
        (CLAIM, volume(need("kubernetes.io/hostname", "In", "a")), "if a node of that name"),
    ],
)
def test_a_volume_that_is_gone_or_that_no_node_can_mount_is_lost(claim: Any, seen: Any, told: str) -> None:
    why = why_lost(store("a"), claim, seen, OTHERS)
    assert why.startswith("node a is gone")
    assert told in why


def test_an_emptydir_is_lost_with_its_machine_whatever_claims_there_are() -> None:
    assert "emptyDir" in why_lost(store("a", has_pvc=False), CLAIM, volume(), OTHERS)


def test_a_node_counts_as_gone_after_a_while_and_one_that_is_back_does_not() -> None:
    stores = [store("a"), store("b")]
    gone = gone_since({}, OTHERS, stores, 100.0)
    assert gone == {"a": 100.0}
    gone = gone_since(gone, OTHERS, stores, 110.0)
    assert homeless_stores(stores, {"a", "b"}, gone, 100.0 + GONE_AFTER_S - 1) == []
    assert homeless_stores(stores, {"a", "b"}, gone, 100.0 + GONE_AFTER_S) == stores[:1]
    assert homeless_stores(stores, {"b"}, gone, 100.0 + GONE_AFTER_S) == [], "nobody needs it"
    assert gone_since(gone, [*OTHERS, node("a")], stores, 200.0) == {}


def test_only_a_pod_that_is_bound_to_no_node_is_deleted_for_another_one() -> None:
    waits = store("a", pod_uid="p1", is_outdated=True)
    may_run = store("b", pod_uid="p2", is_outdated=True, runs_on="b")
    is_right = store("c", pod_uid="p3")
    made = pods_to_make_anew([waits, may_run, is_right], {"a", "b", "c"})
    assert [(one.name, one.uid) for one in made] == [("pen-store-a-0", "p1")]
    assert pods_to_make_anew([waits], ()) == []
