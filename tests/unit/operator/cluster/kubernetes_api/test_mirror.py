from __future__ import annotations

from typing import Any

from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    NODES,
    PODS,
    TOPOLOGIES,
    Kind,
    Listing,
    name_of,
)

Object = dict[str, Any]


class Scene:
    def __init__(self) -> None:
        self.woken: list[tuple[str, str]] = []
        self.mirror = Mirror(lambda kind, thing: self.woken.append((kind.kind, name_of(thing))))

    def names(self, kind: Kind = PODS) -> list[str]:
        return [name_of(one) for one in self.mirror.all(kind)]


def pod(name: str, version: int, uid: str = "", **status: Any) -> Object:
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}, "status": status}


def test_what_is_put_is_there_and_told_once() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 5))
    scene.mirror.put(PODS, pod("a", 5))
    scene.mirror.put(PODS, pod("a", 6))  # written, but nothing in it is different
    assert scene.woken == [("Pod", "a")]
    scene.mirror.put(PODS, pod("a", 7, phase="Running"))
    assert scene.woken == [("Pod", "a")] * 2


def test_a_list_that_shows_what_is_known_changes_nothing() -> None:
    """What follows from an object is kept as long as it is the very same one."""
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 5))
    held, revision = scene.mirror.get(PODS, "a"), scene.mirror.revision
    list(scene.mirror.relisting(PODS, Listing((pod("a", 5),), "9")))
    assert scene.mirror.get(PODS, "a") is held
    assert scene.mirror.revision == revision


def test_what_comes_while_a_list_is_put_in_counts_for_more_than_the_list() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("gone", 3))
    listed = tuple(pod(f"p{number:04}", 5) for number in range(1_200))
    steps = scene.mirror.relisting(PODS, Listing(listed, "9"))
    next(steps)
    first = len(scene.names())
    assert 1 < first < len(listed), "in steps"
    scene.mirror.remove(PODS, pod("p1199", 10))
    scene.mirror.put(PODS, pod("p1198", 11, phase="Failed"))
    scene.mirror.put(PODS, pod("new", 12))
    for _ in steps:
        pass
    assert scene.names() == sorted([*(name_of(one) for one in listed[:-1]), "new"])
    changed = scene.mirror.get(PODS, "p1198")
    assert changed is not None
    assert changed["status"] == {"phase": "Failed"}


def test_who_lists_anew_is_given_what_is_held_of_the_same_state_and_else_what_would_be_kept() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 5))
    held = scene.mirror.get(PODS, "a")
    assert scene.mirror.kept(PODS, pod("a", 5)) is held
    newer, other, new = pod("a", 6), pod("a", 5, uid="another"), pod("b", 5)
    for listed in (newer, other, new):
        assert scene.mirror.kept(PODS, listed) == listed
    big = {**pod("c", 5), "data": {"lib.py": "x" * 1000}}
    assert "data" not in scene.mirror.kept(CONFIG_MAPS, big)


def test_an_older_state_does_not_take_the_place_of_a_newer_one() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 7, phase="Running"))
    scene.mirror.put(PODS, pod("a", 6, phase="Pending"))
    held = scene.mirror.get(PODS, "a")
    assert held is not None
    assert held["status"] == {"phase": "Running"}


def test_an_event_from_before_a_deletion_brings_nothing_back() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 5))
    scene.mirror.remove(PODS, pod("a", 9))
    scene.mirror.put(PODS, pod("a", 8))
    assert scene.names() == []
    scene.mirror.put(PODS, pod("a", 10, uid="u-new"))
    assert scene.names() == ["a"]


def test_a_late_deletion_of_the_one_before_leaves_the_present_one() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("a", 10, uid="u-new"))
    scene.mirror.remove(PODS, pod("a", 9, uid="u-old"))
    assert scene.names() == ["a"]


def test_a_list_takes_away_what_a_watch_missed_but_nothing_that_came_since() -> None:
    scene = Scene()
    scene.mirror.put(PODS, pod("gone", 5))
    scene.mirror.put(PODS, pod("new", 12))
    list(scene.mirror.relisting(PODS, Listing((pod("there", 3),), "10")))
    assert scene.names() == ["new", "there"]
    assert ("Pod", "gone") in scene.woken


def test_it_is_complete_when_every_kind_was_listed() -> None:
    scene = Scene()
    for kind in WATCHED:
        assert not scene.mirror.is_complete()
        list(scene.mirror.relisting(kind, Listing((), "1")))
    assert scene.mirror.is_complete()


def test_a_nodes_heartbeat_is_no_change() -> None:
    def node(version: int, beat: str, ready: str = "True") -> Object:
        conditions = [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}]
        status = {"conditions": conditions, "images": [{"names": ["x"]}], "allocatable": {"cpu": "4"}}
        return {"metadata": {"name": "n1", "uid": "u", "resourceVersion": str(version)}, "status": status}

    scene = Scene()
    scene.mirror.put(NODES, node(1, "10:00"))
    scene.mirror.put(NODES, node(2, "10:05"))
    assert len(scene.woken) == 1
    scene.mirror.put(NODES, node(3, "10:10", ready="Unknown"))
    assert len(scene.woken) == 2


def test_a_topologys_own_status_wakes_nobody() -> None:
    scene = Scene()
    scene.mirror.put(TOPOLOGIES, pod("words", 1))
    scene.mirror.put(TOPOLOGIES, pod("words", 2, phase="Running"))
    assert len(scene.woken) == 1


def test_data_of_config_maps_is_not_kept_but_its_change_is_told() -> None:
    scene = Scene()
    for version in (1, 2):
        held = {"metadata": pod("code", version)["metadata"], "data": {"a.py": "x" * 1000}}
        scene.mirror.put(CONFIG_MAPS, held)
    assert len(scene.woken) == 2
    assert "data" not in (scene.mirror.get(CONFIG_MAPS, "code") or {})
