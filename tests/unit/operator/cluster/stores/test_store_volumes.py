"""Stores whose volume is another than what is configured now: grown, made anew elsewhere first, or kept."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.decisions.actions import GrowVolume
from penstock_operator.cluster.stores.store_tries import GROWN_AGAIN_S, REFUSED_AGAIN_S, StoreTries
from worlds.cluster_world import CONFIG, World

GP2 = {"durability": "Disk", "storageClassName": "gp2", "size": "10Gi"}


def config(**store: Any) -> OperatorConfig:
    document = CONFIG.model_dump(by_alias=True, mode="json")
    document["store"] = {
        name: value for name, value in (document["store"] | store).items() if value is not None
    }
    return OperatorConfig.model_validate(document)


def running(nodes: int = 3, **store: Any) -> World:
    world = World(nodes=nodes)
    world.config = config(**store)
    world.run(30)
    assert world.status["phase"] == "Running", world.status
    return world


def configure(world: World, **store: Any) -> None:
    world.config = config(**store)


def test_volumes_grow_and_nothing_else_happens() -> None:
    world = running(**GP2)
    uids = {name: store.pod_uid for name, store in world.stores.items()}
    configure(world, **GP2 | {"size": "20Gi"})
    world.run(30)
    assert world.grown == {f"data-pen-store-node-{letter}-0": "20Gi" for letter in "abc"}
    assert {name: store.pod_uid for name, store in world.stores.items()} == uids
    world.nodes["node-d"] = type(world.nodes["node-a"])()
    world.run(5)
    assert world.stores["node-d"].volume is not None
    assert world.stores["node-d"].volume.size == "20Gi"


def test_a_volume_does_not_shrink_and_says_so() -> None:
    world = running(**GP2)
    configure(world, **GP2 | {"size": "5Gi"})
    world.run(5)
    assert world.grown == {}
    assert {event.reason for _, event in world.store_notices} == {"StoreVolumeKept"}
    assert "keeps its 10Gi" in world.store_notices[0][1].message
    world.upgrade(2)
    world.run(5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"durability": "Process"}, {"durability": "Disk"}),
        ({"durability": "Process"}, GP2),
        (GP2, GP2 | {"storageClassName": "gp3"}),
        (GP2, {"durability": "Disk"}),
        (GP2, {"durability": "Process", "volume": "EmptyDir"}),
    ],
)
def test_stores_in_use_come_to_another_kind_of_volume_one_after_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    world = running(**before)
    configure(world, **after)
    world.run(200)
    wanted = world.config.store
    for name, store in world.stores.items():
        assert (store.volume is not None) == wanted.has_claim, name
        assert store.volume is None or store.volume.storage_class == wanted.storage_class_name
        assert store.durability == wanted.durability
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")


def test_a_topology_that_asks_for_disk_runs_once_the_stores_have_volumes() -> None:
    world = running(durability="Process")
    configure(world, durability="Disk")
    world.edit(spec__durability="Disk")
    world.run(200)
    assert all(store.durability == "Disk" for store in world.stores.values())
    assert world.is_whole()


def test_a_store_that_nobody_takes_the_shards_of_keeps_its_volume_and_all_else_goes_on() -> None:
    world = running(nodes=1, **GP2)
    configure(world, **GP2 | {"storageClassName": "gp3"})
    world.upgrade(2)
    world.run(30)
    assert world.stores["node-a"].volume is not None
    assert world.stores["node-a"].volume.storage_class == "gp2"
    assert "StoreVolumeKept" in {event.reason for _, event in world.notices}
    assert world.renewed == ["pen-store-node-a-0"], "the new image reaches it all the same"
    assert world.is_whole()


def test_a_store_on_an_empty_dir_does_not_pass_for_disk() -> None:
    world = running(nodes=1, durability="Process")
    configure(world, durability="Disk")
    world.run(30)
    assert world.stores["node-a"].durability == "Process"
    assert world.is_whole()


def test_what_was_refused_is_tried_again_after_a_while_and_told_until_it_is_done() -> None:
    tries, grow = StoreTries(), GrowVolume("data-s-0", "s", "20Gi")
    assert tries.due([grow], 0.0) == [grow]
    tries.tried([grow], {"data-s-0": "the class does not let volumes grow"}, 0.0)
    assert tries.due([grow], REFUSED_AGAIN_S - 1) == []
    ((name, event),) = tries.notices
    assert (name, event.type, event.reason) == ("s", "Warning", "StoreVolumeKept")
    assert "20Gi: the class does not let" in event.message
    assert tries.due([grow], REFUSED_AGAIN_S) == [grow]
    tries.tried([grow], {}, REFUSED_AGAIN_S)
    assert tries.notices == ()
    assert tries.due([grow], REFUSED_AGAIN_S + GROWN_AGAIN_S - 1) == []
    assert tries.due([], 100.0) == []
    assert tries.due([grow], 100.0) == [grow], "what is decided no more is forgotten"
