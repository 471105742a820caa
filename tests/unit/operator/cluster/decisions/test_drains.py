"""Nodes that are drained are left by everybody: who runs, who does not, and whatever a manifest says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock_operator.cluster.observing.observed import ObservedTopology, Taint
from worlds.cluster_world import World, manifest, read_topology
from worlds.cluster_world_parts import WorldNode
from worlds.started_world import started

DISRUPTED = Taint("karpenter.sh/disrupted", "", "NoSchedule")
SCALE_DOWN = Taint("ToBeDeletedByClusterAutoscaler", "1700000000", "NoSchedule")
EVICTING = Taint("maintenance", "tonight", "NoExecute")


def cordon(world: World) -> None:
    world.nodes["node-a"].schedulable = False


def is_left(world: World) -> bool:
    return "node-a" not in world.stores and not any(pod.node == "node-a" for pod in world.pods.values())


@pytest.mark.parametrize("taint", [DISRUPTED, SCALE_DOWN, EVICTING])
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_tainted_node_is_left_as_a_cordoned_one_is(taint: Taint, nodes: int) -> None:
    world = World(nodes=nodes)
    world.run(30)
    world.nodes["node-a"].taints = (taint,)
    world.run(120)
    assert is_left(world)
    assert world.is_whole()
    assert "Evacuating" in {event.reason for event in world.events}


@pytest.mark.parametrize(
    "taint",
    [
        Taint("karpenter.sh/disrupted", "", "PreferNoSchedule"),
        Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
        Taint("node.cloudprovider.kubernetes.io/uninitialized", "", "NoSchedule"),
    ],
)
def test_taints_that_come_and_go_or_only_prefer_move_nothing(taint: Taint) -> None:
    world = started()
    before = world.uids()
    world.nodes["node-a"].taints = (taint,)
    world.run(60)
    assert world.uids() == before
    assert "node-a" in world.stores


def test_a_taint_that_workers_and_stores_tolerate_moves_nothing() -> None:
    world = World()
    tolerated = [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]
    document = world.config.model_dump(by_alias=True, mode="json", exclude_none=True)
    document["store"]["tolerations"] = document["worker"]["tolerations"] = tolerated
    world.config = type(world.config).model_validate(document)
    world.run(30)
    before = world.uids()
    world.nodes["node-a"].taints = (DISRUPTED,)
    world.run(60)
    assert world.uids() == before
    world.nodes["node-a"].taints = (SCALE_DOWN,)
    world.run(120)
    assert is_left(world)


def test_a_node_that_only_the_store_may_not_stay_on_is_left_too() -> None:
    world = World(manifest(spec__pod={"tolerations": [{"operator": "Exists"}]}))
    world.run(30)
    world.nodes["node-a"].taints = (DISRUPTED,)
    world.run(120)
    assert is_left(world)
    assert world.is_whole()


def finished(world: World) -> None:
    world.finished = True
    world.run(30)
    assert world.status["phase"] == "Finished"


def paused(world: World) -> None:
    world.edit(spec__paused=True)
    world.run(30)


def without_code(world: World) -> None:
    world.code = None
    world.run(5)


def invalid(world: World) -> None:
    seen = read_topology(world.document)
    world.topology_seen = ObservedTopology(
        seen.name, seen.uid, seen.generation, world.document, faults=("spec.operators: are odd",)
    )
    world.run(5)
    assert world.condition("Ready") == ("False", "InvalidManifest")


@pytest.mark.parametrize("befalls", [finished, paused, without_code, invalid])
@pytest.mark.parametrize("taint", [None, DISRUPTED])
def test_whatever_a_topology_is_like_it_leaves_a_node_that_is_drained(
    befalls: Callable[[World], None], taint: Taint | None
) -> None:
    world = started()
    before = {name: world.nodes_of(name) for name in ("lines", "count")}
    befalls(world)
    if taint is None:
        cordon(world)
    else:
        world.nodes["node-a"].taints = (taint,)
    world.run(150)
    assert is_left(world)
    for operator, held in before.items():
        assert world.nodes_of(operator) == {"node-b": sum(held.values())}
    assert all(place.id == "node-b" for s in world.schedules.values() for place in s.schedule.stores)


def test_a_topology_that_finished_stays_finished_while_its_shards_move() -> None:
    world = started()
    finished(world)
    cordon(world)
    for _ in range(60):
        world.step()
        assert world.status["phase"] == "Finished"
    assert not world.pods


@pytest.mark.parametrize("taint", [None, DISRUPTED])
def test_retained_schedules_of_a_topology_that_is_gone_leave_a_node_that_is_drained(
    taint: Taint | None,
) -> None:
    world = started(spec__deletionPolicy="Retain")
    identities = {name: seen.identity for name, seen in world.schedules.items()}
    world.pods.clear()
    for _ in range(5):
        world.step_retained()
    if taint is None:
        cordon(world)
    else:
        world.nodes["node-a"].taints = (taint,)
    for _ in range(60):
        world.step_retained()
    assert is_left(world)
    assert {name: seen.identity for name, seen in world.schedules.items()} == identities
    world.document = manifest(metadata__uid="uid-second", spec__deletionPolicy="Retain")
    world.memory = type(world.memory)()
    world.nodes["node-c"] = WorldNode()
    world.run(40)
    assert world.is_whole()
    assert world.status["stateUid"] == "uid-words"


def test_with_nowhere_to_go_what_nobody_runs_stays() -> None:
    world = World(nodes=1)
    world.run(30)
    finished(world)
    cordon(world)
    versions = {name: seen.schedule.version for name, seen in world.schedules.items()}
    world.run(30)
    assert {name: seen.schedule.version for name, seen in world.schedules.items()} == versions
