"""A node's store servers: each a store of its own, with workers of its own and a share of the homes."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.api.operator_config import SERVERS_BY_CORES_MAX, OperatorConfig
from penstock.schedule.store_ids import node_of, store_id
from penstock_operator.cluster.observing.observed import ObservedTopology
from penstock_operator.cluster.workers.node_room import NodeRooms, PlacementRules, Size
from worlds.cluster_world import CONFIG, World, manifest

SIZE = Size(1000, 1 << 30)


def servers(number: int | None) -> object:
    return CONFIG.model_copy(update={"store": CONFIG.store.model_copy(update={"servers": number})})


def world_of(number: int, nodes: int = 2, **changes: object) -> World:
    world = World(manifest(**changes), nodes=nodes)
    world.config = servers(number)
    return world


def workers_on(world: World) -> Counter[str]:
    return Counter(pod.store for pod in world.pods.values() if pod.ready)


FOUR = {"spec__workers__min": 4, "spec__workers__max": 4, "spec__operators__2__tasks__initial": 4}


# --- how many there are


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, 1), (8, 1), (11.5, 1), (15.9, 2), (16, 2), (32, 4), (512, SERVERS_BY_CORES_MAX)],
)
def test_without_a_number_a_node_has_servers_by_its_cores(cores: float, expected: int) -> None:
    assert servers(None).store.servers_of(round(1000 * cores)) == expected


def test_each_node_has_as_many_stores_as_it_is_to_have_servers() -> None:
    world = world_of(3)
    world.run(5)
    assert set(world.stores) == {f"node-{letter}{server}" for letter in "ab" for server in ("", "..1", "..2")}


def test_nodes_of_different_sizes_have_different_numbers() -> None:
    world = World(nodes=2)
    world.config = servers(None)
    world.nodes["node-b"].cpu_millis = 24_000
    world.run(5)
    assert set(world.stores) == {"node-a", "node-b", "node-b..1", "node-b..2"}


# --- who works on them


def test_workers_and_homes_are_spread_over_all_servers() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    assert workers_on(world) == {"node-a": 1, "node-a..1": 1, "node-b": 1, "node-b..1": 1}
    assert world.nodes_of("count") == {"node-a": 2, "node-a..1": 2, "node-b": 2, "node-b..1": 2}
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
    assert world.step().actions == ()


def test_topologies_do_not_all_begin_with_the_same_server() -> None:
    world = world_of(2)
    world.run(5)
    seen = world.observed()
    rules = PlacementRules(seen.topology.topology.spec.pod, {}, (), "Process")
    taken = set()
    for first in range(4):
        rooms = NodeRooms(seen.nodes, seen.stores, rules, {}, first_server=first)
        taken.add(rooms.take_server("node-a"))
    assert taken == {0, 1}


def test_a_worker_whose_pod_is_gone_comes_back_to_the_store_that_holds_what_it_ran() -> None:
    world = world_of(2, nodes=1)
    world.run(30)
    before = {pod.name: pod.store for pod in world.pods.values()}
    assert sorted(before.values()) == ["node-a", "node-a..1"]
    for name in before:
        world.lose_pod(name)
    world.run(30)
    assert {pod.name: pod.store for pod in world.pods.values()} == before
    assert world.is_whole()


# --- servers that come and go


def test_a_server_more_is_a_store_for_workers_to_come_and_moves_nothing() -> None:
    world = world_of(1)
    world.run(30)
    before = world.uids()
    world.config = servers(2)
    world.run(20)
    assert set(world.stores) == {"node-a", "node-a..1", "node-b", "node-b..1"}
    assert world.uids() == before
    world.edit(spec__workers__min=4)
    world.run(30)
    assert workers_on(world) == {"node-a": 1, "node-a..1": 1, "node-b": 1, "node-b..1": 1}
    assert world.is_whole()


def test_a_server_less_is_left_first_and_goes_when_nothing_names_it() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    world.config = servers(1)
    world.run(240)
    assert set(world.stores) == {"node-a", "node-b"}
    assert workers_on(world) == {"node-a": 2, "node-b": 2}
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")


def test_a_server_that_is_not_named_goes_at_once() -> None:
    world = world_of(2, nodes=1, spec__workers__min=1)
    world.run(30)
    (used,) = workers_on(world)
    if used == "node-a":
        world.config = servers(1)
        world.run(3)
        assert set(world.stores) == {"node-a"}
    assert world.is_whole()


def test_an_upgrade_renews_server_after_server_and_no_node_is_left_for_it() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    world.upgrade(2)
    for _ in range(400):
        world.step()
        assert not any(pod.node == "" for pod in world.pods.values())
        assert {"node-a", "node-b"} == {node.name for node in world.observed().nodes if node.schedulable}
    assert sorted(world.renewed) == sorted(f"{name}-0" for name in stateful_sets(world))
    assert all(one.pod_template == one.template for one in world.stores.values())
    on = workers_on(world)
    for node in ("node-a", "node-b"):
        assert abs(on[node] - on[f"{node}..1"]) <= 1, on
    assert world.is_whole()


def stateful_sets(world: World) -> list[str]:
    return [store.stateful_set for store in world.observed().stores]


def test_a_single_node_of_two_servers_is_renewed_without_a_volume() -> None:
    """With one store there was nowhere to go; the other one takes its shards now."""
    world = world_of(2, nodes=1)
    world.run(30)
    world.upgrade(2)
    world.run(300)
    assert sorted(world.renewed) == sorted(f"{name}-0" for name in stateful_sets(world))
    assert world.is_whole()


TWO = {"spec__workers__min": 2}
ONE_AND_A_WARM_ONE = {"spec__workers__min": 1, "spec__workers__warm": 1}


@pytest.mark.parametrize(
    ("sizes", "seconds"), [*((TWO, seconds) for seconds in range(4, 10)), (ONE_AND_A_WARM_ONE, 30)]
)
def test_a_worker_that_starts_or_waits_on_a_server_that_goes_is_made_anew_on_another(
    sizes: dict[str, object], seconds: int
) -> None:
    world = world_of(2, nodes=1, **sizes)
    world.run(seconds)
    assert len(workers_on(world)) == 2
    world.config = servers(1)
    world.run(240)
    assert set(world.stores) == {"node-a"}
    assert workers_on(world) == {"node-a": 2}
    assert world.is_whole()


def test_of_many_servers_less_each_worker_leaves_once() -> None:
    world = world_of(4, nodes=1, **FOUR)
    world.run(40)
    assert len(workers_on(world)) == 4
    before = world.uids()
    world.config = servers(1)
    made: set[str] = set()
    for _ in range(600):
        world.step()
        made |= set(world.uids().values()) - set(before.values())
    assert set(world.stores) == {"node-a"}
    assert len(made) == 3, "one for each that worked on a server that went"
    assert world.is_whole()


def test_the_only_worker_leaves_a_server_that_goes_though_there_is_no_room_for_a_second_one() -> None:
    world = world_of(2, nodes=1, spec__workers__min=1, spec__workers__max=1)
    world.run(30)
    (pod,) = world.pods.values()
    if pod.store == "node-a":
        world.lose_pod(pod.name)
        world.stores["node-a"].ready, world.stores["node-a"].ready_in = False, 30
    world.nodes["node-a"].memory_bytes = 1 << 30
    world.config = servers(1)
    world.run(300)
    assert set(world.stores) == {"node-a"}
    assert world.is_whole()


def test_a_server_without_room_on_its_node_holds_up_neither_renewals_nor_workers() -> None:
    world = world_of(2)
    world.run(2)
    for name in ("node-a..1", "node-b..1"):
        world.stores[name].finds_room = False
    world.run(40)
    assert workers_on(world) == {"node-a": 1, "node-b": 1}
    world.upgrade(2)
    world.run(200)
    assert {"pen-store-node-a-0", "pen-store-node-b-0"} <= set(world.renewed)
    assert world.is_whole()


def test_retained_schedules_leave_a_server_that_goes() -> None:
    world = world_of(2, **FOUR, spec__deletionPolicy="Retain")
    world.run(30)
    world.pods.clear()
    world.config = servers(1)
    for _ in range(120):
        world.step_retained()
    assert set(world.stores) == {"node-a", "node-b"}
    assert world.nodes_of("count").keys() <= {"node-a", "node-b"}
    assert sum(world.nodes_of("count").values()) == 8


# --- what fails


def test_a_node_that_is_lost_takes_both_its_stores_along_and_all_else_goes_on() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    world.lose_node("node-b")
    world.run(60)
    assert world.condition("Ready")[0] == "False"
    held = world.nodes_of("count")
    assert held["node-b"] == held["node-b..1"] == 2, "their state is there, and waits"
    world.return_node("node-b")
    world.run(60)
    assert world.is_whole()


def test_one_server_that_is_away_holds_up_its_own_workers_alone() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    world.stores["node-a..1"].ready, world.stores["node-a..1"].ready_in = False, 10_000
    world.run(60)
    states = {pod.name: pod.ready for pod in world.pods.values() if pod.store != "node-a..1"}
    assert states
    assert all(states.values())
    assert world.nodes_of("count")["node-a..1"] == 2


def test_a_cordoned_node_is_left_by_all_its_stores() -> None:
    world = world_of(2, **FOUR)
    world.run(30)
    world.nodes["node-a"].schedulable = False
    world.run(200)
    assert set(world.stores) == {"node-b", "node-b..1"}
    assert world.is_whole()


# --- for the better


def told_of(world: World, reason: str) -> int:
    return sum(event.reason == reason for event in world.events)


def test_two_workers_on_one_of_two_servers_are_spread_and_then_nothing_more_happens() -> None:
    world = world_of(1, nodes=1, spec__workers__min=2, spec__operators__2__tasks__initial=2)
    world.run(40)
    assert workers_on(world) == {"node-a": 2}
    world.config = servers(2)
    world.run(120)
    assert workers_on(world) == {"node-a": 1, "node-a..1": 1}
    assert len(homes_of(world)) == 2
    before = world.uids()
    world.run(300)
    assert world.uids() == before
    assert world.is_whole()


def test_without_room_for_another_worker_those_that_crowd_stay() -> None:
    world = world_of(1, nodes=1, spec__workers__min=2, spec__operators__2__tasks__initial=2)
    world.run(40)
    world.config = servers(2)
    while "node-a..1" not in world.stores:
        world.step()
    world.nodes["node-a"].cpu_millis = world.observed().nodes[0].cpu_requested_millis
    before = world.uids()
    for _ in range(200):
        world.step()
        assert world.uids() == before
    assert world.is_whole()


def test_a_topology_that_is_held_leaves_no_store_for_the_better() -> None:
    world = world_of(1, nodes=1, spec__workers__min=2, spec__operators__2__tasks__initial=2)
    world.run(40)
    seen = world.observed().topology
    world.topology_seen = ObservedTopology(
        seen.name, seen.uid, seen.generation, world.document, faults=("spec.operators: are odd",)
    )
    world.config = servers(2)
    before = world.uids()
    world.run(120)
    assert world.uids() == before


def test_a_further_server_is_made_where_there_is_room_for_it_alone() -> None:
    world = world_of(1, nodes=2)
    world.run(30)
    full = world.observed().nodes[0]
    world.nodes["node-a"].cpu_millis = full.cpu_requested_millis + 100
    world.config = servers(3)
    world.run(60)
    assert set(world.stores) == {"node-a", "node-b", "node-b..1", "node-b..2"}
    world.nodes["node-a"].cpu_millis = full.cpu_allocatable_millis
    world.run(60)
    assert set(world.stores) == {store_id(node, n) for node in ("node-a", "node-b") for n in range(3)}


def test_a_server_that_is_not_left_in_time_has_its_turn_again() -> None:
    world = world_of(2, nodes=1, **FOUR)
    world.run(40)
    world.moves_go_on = False
    world.config = servers(1)
    world.run(400)
    assert "node-a..1" in world.stores
    assert "StoreKept" in {event.reason for _, event in world.notices}
    world.moves_go_on = True
    world.run(600)
    assert set(world.stores) == {"node-a"}
    assert world.is_whole()


# --- a node that is gone for good


def homes_of(world: World) -> set[str]:
    return {place.home for seen in world.schedules.values() for place in seen.schedule.shards.values()}


def test_all_stores_of_a_node_that_is_gone_follow_their_volumes_and_their_shards_leave_them() -> None:
    world = world_of(2, nodes=3, **FOUR)
    assert isinstance(world.config, OperatorConfig)
    store = world.config.store.model_copy(update={"volume": "Claim", "durability": "Disk"})
    world.config = world.config.model_copy(update={"store": store})
    world.run(60)
    gone = next(node for node in world.nodes if {node, store_id(node, 1)} <= homes_of(world))
    world.delete_node(gone)
    world.run(35)
    for each in (gone, store_id(gone, 1)):
        assert world.stores[each].runs_on in world.nodes
    world.run(240)
    assert world.is_whole()
    assert {node_of(each) for each in world.stores} == set(world.nodes)
    assert {node_of(each) for each in homes_of(world)} <= set(world.nodes)
    assert "StateLost" not in {event.reason for event in world.events}


def test_what_further_stores_of_a_gone_node_held_without_a_volume_is_begun_anew_once_that_is_accepted() -> (
    None
):
    world = world_of(2, nodes=3, **FOUR)
    world.run(60)
    gone = next(node for node in world.nodes if {node, store_id(node, 1)} <= homes_of(world))
    world.delete_node(gone)
    world.run(60)
    assert "its store of server 1 was on that machine's own disk" in world.message("StoreAvailable")
    world.accept_loss()
    world.run(240)
    assert world.is_whole()
    assert {node_of(each) for each in homes_of(world)} <= set(world.nodes)
