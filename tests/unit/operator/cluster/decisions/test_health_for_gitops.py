"""How tools that apply manifests from Git see a topology, by kstatus's rules, from its first moment on."""

from __future__ import annotations

from penstock.store.failure_names import failure_name
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE
from worlds.cluster_world import World
from worlds.kstatus import kstatus
from worlds.started_world import started


def health(world: World) -> str:
    return kstatus({**world.document, "status": world.status})


def kinds(world: World) -> set[str]:
    return {one["type"] for one in world.status["conditions"]}


def test_a_topology_that_starts_is_in_progress_until_it_runs() -> None:
    world = World()
    seen = []
    for _ in range(15):
        world.step()
        seen.append((world.status["phase"], health(world)))
    assert set(seen) == {("Pending", "InProgress"), ("Starting", "InProgress"), ("Running", "Current")}
    assert not {"Reconciling", "Stalled"} & kinds(world)


def test_what_is_paused_or_finished_has_settled() -> None:
    paused = started()
    paused.edit(spec__paused=True)
    paused.inbox_entries = {"count": 3}
    paused.run(3)
    assert (paused.status["phase"], health(paused)) == ("Draining", "InProgress")
    paused.inbox_entries = {}
    paused.run(3)
    assert (paused.status["phase"], health(paused)) == ("Paused", "Current")
    finished = started()
    finished.finished = True
    finished.run(6)
    assert (finished.status["phase"], health(finished)) == ("Finished", "Current")
    assert finished.condition("Ready") == ("True", "Finished")


def test_a_new_image_is_in_progress_until_the_last_worker_has_it() -> None:
    world = started()
    before = set(world.uids().values())
    world.edit(spec__image="words:2")
    while before & set(world.uids().values()):
        world.step()
        assert health(world) == "InProgress", world.status["conditions"]
    world.run(15)
    assert health(world) == "Current"


def test_a_node_that_is_drained_is_the_course_of_things() -> None:
    world = World(nodes=3)
    world.run(15)
    world.nodes["node-a"].schedulable = False
    world.run(3)
    assert world.condition("Progressing")[0] == "True"
    assert health(world) == "Current"


def test_what_waits_for_a_change_by_somebody_has_failed_and_says_so_once() -> None:
    world = started()
    annotations = [pod.document["metadata"]["annotations"] for pod in world.pods.values()]
    (template,) = {found[ANNOTATION_TEMPLATE] for found in annotations}
    world.failures = {failure_name("count", template): "ValueError: no such word"}
    world.run(3)
    assert health(world) == "Failed"
    assert world.condition("Stalled") == ("True", "UserCodeFailed")
    assert [event.reason for event in world.events].count("UserCodeFailed") == 1
    world.failures = {}
    world.run(3)
    assert health(world) == "Current"
    assert "Stalled" not in kinds(world)


def test_what_may_come_by_itself_is_waited_for() -> None:
    world = World(nodes=1)
    world.nodes["node-a"].cpu_millis = 400
    world.run(30)
    assert world.condition("Ready") == ("False", "InsufficientResources")
    assert health(world) == "InProgress"
