"""A Schedule that existed is never begun anew: it is rebuilt from what the stores know, or waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.observing.observed import Observed
from worlds.cluster_world import World
from worlds.started_world import started


def homes(world: World, operator: str) -> dict[str, str]:
    return {s: place.home for s, place in world.schedules[f"words.{operator}"].schedule.shards.items()}


def moved_about() -> World:
    """A topology whose shards have been elsewhere: its first placement would be another."""
    world = World(nodes=3)
    world.edit(spec__workers__min=3)
    world.run(40)
    world.nodes["node-b"].schedulable = False
    world.run(60)
    world.nodes["node-b"].schedulable = True
    world.run(20)
    return world


@pytest.mark.parametrize("operator", ["lines", "count"])
@pytest.mark.parametrize("keeps_memory", [True, False])
def test_a_schedule_that_was_deleted_is_rebuilt_with_every_shard_where_its_state_is(
    operator: str, *, keeps_memory: bool
) -> None:
    world = moved_about()
    before, version = homes(world, operator), world.schedules[f"words.{operator}"].schedule.version
    world.delete_schedule(operator)
    if not keeps_memory:
        world.memory = Memory()
    world.step()
    rebuilt = world.schedules[f"words.{operator}"].schedule
    assert rebuilt.version > version
    assert homes(world, operator) == before
    assert not any(place.fresh_since for place in rebuilt.shards.values())
    assert "ScheduleRebuilt" in {event.reason for event in world.events}
    world.run(40)
    assert world.is_whole()


def test_all_schedules_that_were_deleted_are_rebuilt() -> None:
    world = moved_about()
    before = {operator: homes(world, operator) for operator in ("lines", "count")}
    for operator in before:
        world.delete_schedule(operator)
    world.run(40)
    assert {operator: homes(world, operator) for operator in before} == before
    assert world.is_whole()


def test_nothing_is_done_about_a_schedule_that_is_gone_while_a_store_is_away() -> None:
    world = moved_about()
    world.stores["node-b"].ready = False
    world.stores["node-b"].ready_in = 20
    world.delete_schedule("count")
    assert world.step().actions == ()
    assert world.condition("Ready") == ("False", "ScheduleMissing")
    assert "once those of node-b answer" in world.message("Ready")
    assert "words.count" not in world.schedules
    world.run(60)
    assert world.is_whole()


def test_a_schedule_that_no_store_knows_any_more_is_not_begun_anew() -> None:
    world = started()
    world.delete_schedule("count")
    for store in world.stores.values():
        store.kept.clear()
    world.run(40)
    assert world.condition("Ready") == ("False", "ScheduleLost")
    assert "words.count" not in world.schedules
    assert world.uids(), "what runs goes on"


def test_stores_tell_of_a_schedule_that_the_status_does_not_know() -> None:
    """As after an older etcd was restored, from before the topology ran."""
    world = moved_about()
    before = homes(world, "count")
    for operator in ("lines", "count"):
        world.delete_schedule(operator)
    world.document = {name: part for name, part in world.document.items() if name != "status"}
    world.memory = Memory()
    world.run(40)
    assert homes(world, "count") == before
    assert world.is_whole()


def test_an_older_schedule_goes_on_from_the_newest_that_a_store_knows() -> None:
    """As after an older etcd was restored."""
    world = World(nodes=3)
    world.edit(spec__workers__min=3)
    world.run(40)
    older = world.schedules["words.count"]
    world.nodes["node-b"].schedulable = False
    world.run(60)
    newest, before = world.schedules["words.count"].schedule, homes(world, "count")
    assert newest.version > older.schedule.version
    world.schedules["words.count"] = replace(older, resource_version="restored")
    for store in world.stores.values():
        store.applied.pop("count", None)
    world.memory = Memory()
    world.step()
    assert world.schedules["words.count"].schedule.version == newest.version + 1
    assert homes(world, "count") == before
    world.run(40)
    assert world.is_whole()


def test_the_first_schedules_wait_for_stores_that_have_not_said_whether_they_know_the_topology() -> None:
    world = World()

    def unheard(observed: Observed) -> Observed:
        return replace(observed, kept={**observed.kept, "node-b": None})

    world.run(15, look=unheard)
    assert world.schedules == {}
    assert "node-b" in world.message("Ready")
    world.run(30, look=unheard)
    assert world.is_whole(), "one store that says nothing does not hold up a new topology for ever"


def test_a_topology_that_adopts_what_was_retained_knows_of_a_schedule_that_is_gone() -> None:
    world = started(spec__deletionPolicy="Retain")
    before = homes(world, "count")
    world.delete_schedule("count")
    world.pods.clear()
    world.config_maps.clear()
    world.memory = Memory()
    world.document = {
        **{name: part for name, part in world.document.items() if name != "status"},
        "metadata": {**world.document["metadata"], "uid": "uid-second"},
    }
    world.run(30)
    assert homes(world, "count") == before
    assert world.is_whole()
