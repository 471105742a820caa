"""A node is gone for good: its store follows its volume; what is lost is begun anew when that is accepted."""

from __future__ import annotations

import pytest

from penstock_operator.cluster.decisions.decide import decide
from worlds.cluster_world import CONFIG, World
from worlds.cluster_world_parts import WorldNode


def world_of(nodes: int = 3, *, with_volumes: bool = False) -> World:
    world = World(nodes=nodes)
    if with_volumes:
        store = CONFIG.store.model_copy(update={"volume": "Claim", "durability": "Disk"})
        world.config = CONFIG.model_copy(update={"store": store})
    world.run(30)
    assert world.status["phase"] == "Running"
    assert world.is_whole()
    return world


def until_whole(world: World) -> None:
    """At most 150 s, and a few more for what is tidied up then."""
    for _ in range(150):
        world.step()
        if world.is_whole():
            break
    world.run(10)
    assert world.is_whole()


def lives(world: World, operator: str) -> dict[str, int]:
    return {s: p.life for s, p in world.schedules[f"words.{operator}"].schedule.shards.items()}


def shards_at(world: World, node: str) -> set[str]:
    seen = world.schedules.values()
    return {s for one in seen for s, p in one.schedule.shards.items() if p.home == node}


def begun_anew(world: World) -> set[str]:
    return {s for operator in ("lines", "count") for s, life in lives(world, operator).items() if life}


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_store_whose_volume_others_can_mount_comes_up_there_and_its_shards_leave_it(nodes: int) -> None:
    world = world_of(nodes, with_volumes=True)
    held = shards_at(world, "node-a")
    assert held
    generation = world.stores["node-a"].generation
    world.delete_node("node-a")
    world.run(35)
    assert world.stores["node-a"].runs_on in world.nodes
    assert world.stores["node-a"].generation > generation
    until_whole(world)
    assert "node-a" not in world.stores
    assert not begun_anew(world)
    assert world.condition("StoreAvailable") == ("True", "StoresReady")
    assert "StateLost" not in {event.reason for event in world.events}


def test_a_node_that_is_registered_anew_under_its_name_in_time_gets_its_store_back_in_place() -> None:
    world = world_of(with_volumes=True)
    before = shards_at(world, "node-a")
    world.delete_node("node-a")
    world.run(20)
    world.nodes["node-a"] = WorldNode()
    until_whole(world)
    assert not world.stores["node-a"].runs_on, "it was never elsewhere"
    assert before
    assert not begun_anew(world)


def test_a_node_that_is_back_while_its_store_is_elsewhere_gets_another_store() -> None:
    world = world_of(with_volumes=True)
    world.moves_go_on = False
    world.delete_node("node-a")
    world.run(40)
    roams = world.stores["node-a"].uid
    assert world.stores["node-a"].runs_on
    world.nodes["node-a"] = WorldNode()
    world.run(20)
    assert world.stores["node-a"].uid == roams, "shards are still in it"
    world.moves_go_on = True
    until_whole(world)
    assert world.stores["node-a"].uid != roams
    assert not begun_anew(world)


@pytest.mark.parametrize("with_volumes", [False, True], ids=["emptyDir", "local volume"])
def test_what_is_lost_with_a_node_is_named_and_begun_anew_only_when_that_is_accepted(
    with_volumes: bool,
) -> None:
    world = world_of(with_volumes=with_volumes)
    world.volumes_stay = True
    held, kept = shards_at(world, "node-a"), shards_at(world, "node-b") | shards_at(world, "node-c")
    world.delete_node("node-a")
    world.run(60)
    assert world.condition("StoreAvailable") == ("False", "StateLost")
    told = world.message("StoreAvailable")
    assert "node node-a is gone" in told
    assert "penstock accept-loss words" in told
    assert sum(one["shards"] for one in world.status["lost"]) == len(held)
    assert "StateLost" in {event.reason for event in world.events}
    assert not begun_anew(world)
    assert shards_at(world, "node-a") == held
    others = {shard: world.stores[node].held for node in ("node-b", "node-c") for shard in kept}
    assert others
    world.accept_loss()
    until_whole(world)
    assert begun_anew(world) == held
    assert "node-a" not in world.stores
    assert "lost" not in world.status
    assert world.condition("StoreAvailable") == ("True", "StoresReady")
    assert "LossAccepted" in {event.reason for event in world.events}


def test_an_acceptance_is_good_for_that_loss_alone() -> None:
    world = world_of(4)
    world.delete_node("node-a")
    world.run(60)
    first = world.accept_loss()
    until_whole(world)
    anew = begun_anew(world)
    victim = next(name for name in world.nodes if shards_at(world, name) & anew)
    world.delete_node(victim)
    world.run(60)
    assert world.condition("StoreAvailable") == ("False", "StateLost")
    second = [one["id"] for one in world.status["lost"]]
    assert not set(first) & set(second)
    world.accept_loss()
    until_whole(world)
    assert max(lives(world, "count").values()) == 2


def test_a_store_that_came_back_empty_begins_what_it_lost_anew_where_it_is() -> None:
    world = world_of()
    held = shards_at(world, "node-a")
    world.replace_node("node-a")
    world.run(60)
    assert world.condition("StoreAvailable") == ("False", "StateLost")
    assert "came back without" in world.message("StoreAvailable")
    world.accept_loss()
    until_whole(world)
    assert begun_anew(world) == held


def test_nobody_accepts_for_a_node_that_is_only_away() -> None:
    world = world_of()
    world.lose_node("node-a")
    world.run(120)
    assert world.condition("StoreAvailable") == ("False", "StoreAway")
    assert "lost" not in world.status
    world.return_node("node-a")
    until_whole(world)


def test_what_one_lost_is_not_said_while_another_store_may_have_it() -> None:
    world = world_of()
    world.delete_node("node-a")
    away = next(name for name in ("node-b", "node-c") if shards_at(world, name))
    world.lose_node(away)
    world.run(60)
    unclear = [one for one in world.status.get("lost", ()) if one["operator"] == "count"]
    assert not unclear
    assert f"the store of node {away} answers" in world.message("StoreAvailable")
    world.return_node(away)
    world.run(30)
    assert world.status["lost"]


def test_shards_that_had_yet_to_move_to_a_lost_store_stay_where_they_are() -> None:
    world = world_of()
    world.moves_go_on = False
    world.nodes["node-a"].schedulable = False
    world.run(60)
    homes = {s: p.home for one in world.schedules.values() for s, p in one.schedule.shards.items()}
    strays = {shard for shard in world.stores["node-a"].held if homes[shard] != "node-a"}
    (victim,) = {homes[shard] for shard in strays}
    world.delete_node(victim)
    world.nodes["node-a"].schedulable = True
    world.run(60)
    world.accept_loss()
    world.moves_go_on = True
    until_whole(world)
    assert strays
    assert not strays & begun_anew(world)


def test_a_decision_about_a_loss_is_stable() -> None:
    world = world_of()
    world.delete_node("node-a")
    world.run(60)
    decision = decide(world.observed(), world.memory, world.now_s)
    assert not decision.actions
    assert not decision.events
