"""Remote tasks in a cluster: a full node, a Spark worker pod on another one, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.supervision.beside import LINGER_S
from penstock_operator.cluster.kubernetes_api.names import LABEL_HOME_UID
from penstock_operator.cluster.observing.observed import Observed, Refused
from penstock_operator.cluster.workers.misplaced_pods import UNSCHEDULABLE_GRACE_S
from worlds.cluster_world import World, manifest
from worlds.cluster_world_parts import GIB

HOME, BESIDE = "node-a", "node-b"
POD = f"words-w0-on-{BESIDE}"
STEADY_S = 20


def full_home(**changes: Any) -> World:
    """One worker, on a node that has cores for the source's task and two of `count`, which are there."""
    spec: dict[str, Any] = {
        "spec__remoteTasks": "Allowed",
        "spec__workers": {"min": 1, "memory": "1Gi", "cores": {"min": "0.5", "max": "8"}},
        "spec__operators__2__tasks": {"min": 2, "max": 8},
    }
    world = World(manifest(**(spec | changes)))
    world.nodes[BESIDE].schedulable = False
    world.nodes[HOME].cpu_millis = 3000
    world.run(15)
    world.nodes[BESIDE].schedulable = True
    world.run(5)
    assert world.ready_pods() == {"words-w0": HOME}
    assert world.status["phase"] == "Running", world.status
    return world


def want(world: World, tasks: int) -> None:
    """Of `count`."""
    world.edit(spec__operators__2__tasks={"min": tasks, "max": 8, "initial": tasks})


def lending(**changes: Any) -> World:
    """Two of four tasks of `count` are on the other node."""
    world = full_home(**changes)
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {"count-words-w0": {BESIDE: 2}}
    assert world.spark_workers() == {POD: BESIDE}
    assert world.pods[POD].ready
    return world


def assert_steady(world: World) -> None:
    """Nothing more is done, also not by an operator that starts now."""
    for _ in range(STEADY_S):
        assert world.step().actions == ()
    assert world.step(keep_memory=False).actions == ()


def count_status(world: World) -> dict[str, Any]:
    return next(dict(entry) for entry in world.status["operators"] if entry["name"] == "count")


def told(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def test_nothing_is_remote_while_home_has_cores() -> None:
    world = full_home()
    assert world.remote("count") == {}
    assert world.spark_workers() == {}
    assert "tasksRemote" not in count_status(world)


def test_what_a_full_node_has_no_cores_for_runs_on_another_node() -> None:
    world = lending()
    assert world.tasks("count") == {"words-w0": 4}
    assert world.pods[POD].cpu_millis == 2000
    assert world.pods["words-w0"].cpu_millis == 3000
    assert world.nodes_of("count") == {HOME: 8}, "state stays at home"
    assert world.is_whole()
    assert count_status(world)["tasksDesired"] == 4
    assert count_status(world)["tasksRemote"] == 2
    assert told(world, "RemoteTasks") == [
        f"worker words-w0, on node {HOME}, has 2 remote tasks on node {BESIDE}"
    ]
    assert_steady(world)


def test_the_workers_cores_never_shrink_on_the_way_to_remote_tasks() -> None:
    world = full_home()
    want(world, 4)
    for _ in range(10):
        world.step()
        assert world.pods["words-w0"].cpu_millis == 3000


def test_without_remote_tasks_no_schedule_names_another_node() -> None:
    world = full_home(spec__remoteTasks="Never")
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {}
    assert world.spark_workers() == {}


def test_remote_tasks_go_first_and_their_pod_after_a_while() -> None:
    world = lending()
    want(world, 3)
    world.run(4)
    assert world.remote("count") == {"count-words-w0": {BESIDE: 1}}
    assert world.pods[POD].cpu_millis == 1000
    want(world, 2)
    world.run(4)
    assert world.remote("count") == {}
    assert world.spark_workers() == {POD: BESIDE}
    world.run(int(LINGER_S) + 3)
    assert world.spark_workers() == {}
    assert world.deleted == [POD]
    assert told(world, "SparkWorkerRemoved") == [
        f"Spark worker {POD} is removed: no remote task is wanted there any more"
    ]


def test_tasks_come_home_when_the_node_has_cores_again() -> None:
    world = lending()
    world.nodes[HOME].cpu_millis = 8000
    world.run(5)
    assert world.remote("count") == {}
    assert world.pods["words-w0"].cpu_millis == 5000


def test_tasks_come_home_from_a_node_that_is_cordoned() -> None:
    world = lending()
    world.nodes[BESIDE].schedulable = False
    world.run(int(LINGER_S) + 5)
    assert world.remote("count") == {}
    assert world.spark_workers() == {}
    assert world.condition("Progressing") == ("False", "InsufficientResources")
    assert world.message("Progressing") == (
        f"node {HOME} has no cores for 2 of the tasks of worker words-w0, and no other node takes them: "
        f"node {BESIDE} is cordoned"
    )


def test_a_lack_of_cores_everywhere_is_told_once_in_figures() -> None:
    world = full_home()
    world.nodes[BESIDE].cpu_millis = 900
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {}
    assert world.spark_workers() == {}
    assert "node node-b has Insufficient cpu (0.9 of 0.9 cores free)" in world.message("Progressing")
    assert world.message("Progressing").endswith("; it would fit with taskCpu: 900m")
    assert len(told(world, "InsufficientResources")) == 1


def test_as_many_tasks_are_remote_as_the_other_node_has_cores_for() -> None:
    world = full_home()
    world.nodes[BESIDE].cpu_millis = 1900
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {"count-words-w0": {BESIDE: 1}}
    assert "no cores for 1 of the tasks" in world.message("Progressing")


def test_a_node_without_memory_for_another_pod_takes_no_remote_task() -> None:
    world = full_home()
    world.nodes[BESIDE].memory_bytes = GIB - 1
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {}
    assert "Insufficient memory" in world.message("Progressing")


def test_a_spark_worker_that_fills_its_node_goes_on() -> None:
    """No second one would fit there, and none is needed."""
    world = full_home()
    world.nodes[BESIDE].cpu_millis = 2000
    world.nodes[BESIDE].memory_bytes = GIB
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {"count-words-w0": {BESIDE: 2}}
    assert_steady(world)


def test_an_edit_of_cores_reaches_spark_workers_too() -> None:
    world = lending()
    world.edit(spec__workers={"min": 1, "memory": "1Gi", "cores": {"min": "0.5", "max": "6"}})
    world.run(5)
    limits = {name: pod.observed().cpu_limit_millis for name, pod in world.pods.items()}
    assert limits == {"words-w0": 6000, POD: 6000}
    assert world.pods[POD].cpu_millis == 2000
    assert_steady(world)


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_a_spark_worker_that_dies_or_is_deleted_is_made_anew(phase: str) -> None:
    world = lending()
    world.nodes[BESIDE].cpu_millis = 2000
    before = world.pods[POD].uid
    if phase == "Failed":
        world.pods[POD].phase, world.pods[POD].reason = "Failed", "Evicted"
    else:
        world.delete_pod(POD)
    for _ in range(10):
        world.step()
        assert world.remote("count") == {"count-words-w0": {BESIDE: 2}}
    assert world.spark_workers() == {POD: BESIDE}
    assert world.pods[POD].uid != before


def test_a_node_that_does_not_take_the_pod_is_told_of_and_the_tasks_come_home() -> None:
    world = full_home()
    want(world, 4)
    world.step()
    pod = world.pods[POD]
    pod.is_bound, pod.ready_in, pod.phase, pod.reason = False, None, "Pending", "Unschedulable"
    world.run(3)
    assert world.condition("Progressing") == ("True", "SparkWorkersStarting")
    assert f"Spark worker {POD} does not run yet (Unschedulable)" in world.message("Progressing")
    world.run(int(UNSCHEDULABLE_GRACE_S) + 5)
    assert world.spark_workers() == {}
    assert world.remote("count") == {}
    assert "did not take a pod lately" in world.message("Progressing")


def test_a_spark_worker_that_is_not_let_in_is_told_of() -> None:
    """By a ResourceQuota, say."""
    world = full_home()
    want(world, 4)

    def with_quota(observed: Observed) -> Observed:
        return replace(observed, refused=(Refused(POD, "exceeded quota: requests.cpu"),))

    world.step(look=with_quota)
    assert world.condition("Progressing") == ("False", "PodRefused")
    assert world.message("Progressing") == f"pod {POD} is refused: exceeded quota: requests.cpu"


def test_a_spark_worker_belongs_to_one_start_of_its_worker() -> None:
    world = lending()
    assert world.pods[POD].document["metadata"]["labels"][LABEL_HOME_UID] == world.pods["words-w0"].uid
    world.pods["words-w0"].uid = "uid-of-the-next"
    world.step()
    assert world.deleted == [POD]


def test_a_worker_that_died_on_its_full_node_comes_back_there_and_has_remote_tasks_again() -> None:
    world = lending()
    before = world.pods["words-w0"].uid
    world.nodes[BESIDE].cpu_millis = 2500
    world.lose_pod("words-w0")
    world.run(30)
    assert world.ready_pods() == {"words-w0": HOME, POD: BESIDE}
    assert world.pods["words-w0"].uid != before
    assert world.remote("count") == {"count-words-w0": {BESIDE: 2}}
    assert world.pods["words-w0"].cpu_millis == 3000
    assert world.is_whole()


def test_workers_that_cannot_lend_yet_have_no_remote_tasks() -> None:
    """Allowed afterwards: pods have a session without a master until they are replaced."""
    world = full_home(spec__remoteTasks="Never")
    world.start_takes_s = None
    world.edit(spec__remoteTasks="Allowed")
    want(world, 4)
    world.run(10)
    assert world.remote("count") == {}
    assert world.spark_workers() == {}


def test_remote_tasks_that_are_forbidden_again_come_home() -> None:
    world = lending()
    world.edit(spec__remoteTasks="Never")
    world.run(5)
    assert world.remote("count") == {}
    world.run(int(LINGER_S) + 3)
    assert world.spark_workers() == {}


def test_a_pause_takes_spark_workers_away_and_its_end_brings_them_back() -> None:
    world = lending()
    world.edit(spec__paused=True)
    world.run(8)
    assert world.status["phase"] == "Paused"
    assert world.remote("count") == {}
    assert world.spark_workers() == {}
    assert told(world, "SparkWorkerRemoved")[-1].endswith("the topology is paused")
    world.edit(spec__paused=False)
    world.run(10)
    assert world.remote("count") == {"count-words-w0": {BESIDE: 2}}
    assert world.spark_workers() == {POD: BESIDE}


def test_the_end_of_the_input_ends_spark_workers_too() -> None:
    world = lending()
    world.finished = True
    world.run(8)
    assert world.pods == {}
    assert told(world, "SparkWorkerRemoved")[-1].endswith("all input is worked off")


def test_an_sla_may_count_on_cores_of_other_nodes_only_with_remote_tasks() -> None:
    """Of the 8 cores that one worker may use, its node has 3, and the other one 8."""
    for allowed, room in (("Allowed", 5), ("Never", 0)):
        world = full_home(spec__remoteTasks=allowed)
        (host,) = world.step().leeway.hosts
        assert (host.tasks, host.room) == (3, room)
    world.nodes[BESIDE].cpu_millis = 2000
    world = lending()
    world.nodes[BESIDE].cpu_millis = 3500
    (host,) = world.step().leeway.hosts
    assert (host.tasks, host.room) == (5, 1), "two are there already, and a third fits"
