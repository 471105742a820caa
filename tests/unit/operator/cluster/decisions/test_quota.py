"""A topology over its quota of a store's memory: sources stop, figures say why, it goes on by itself."""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.cluster.observing.observed import Observed
from worlds.cluster_world import World

MIB = 1 << 20


def running(**held_mib: int) -> World:
    """With a quota of 100 MiB in each store."""
    world = World()
    world.edit(spec__storeMemory="100Mi")
    hold(world, a=10, b=10)
    world.run(20)
    hold(world, **held_mib)
    return world


def hold(world: World, **held_mib: int) -> None:
    for letter, held in held_mib.items():
        world.held_bytes[f"node-{letter}"] = held * MIB


def source_tasks(world: World) -> int:
    return sum(world.tasks("lines").values())


def test_within_its_quota_nothing_is_done() -> None:
    world = running(a=99, b=100)
    for _ in range(10):
        assert world.step().actions == ()
    assert world.condition("QuotaExceeded") == ("False", "WithinQuota")
    assert not [event for event in world.events if "Quota" in event.reason]


def test_over_its_quota_in_one_store_all_its_sources_stop_and_the_rest_works_on() -> None:
    world = running(a=312)
    before = world.tasks("count"), world.uids()
    world.run(5)
    assert source_tasks(world) == 0
    assert (world.tasks("count"), world.uids()) == before
    assert world.status["phase"] == "Running"
    assert world.condition("Ready") == ("False", "OverQuota")
    assert world.condition("QuotaExceeded") == ("True", "OverQuota")
    told = world.message("QuotaExceeded")
    assert "312 MiB in the store of node node-a" in told
    assert "100 MiB in each store (spec.storeMemory)" in told
    assert "less than 90 MiB" in told
    (event,) = (event for event in world.events if event.reason == "OverQuota")
    assert (event.type, event.message) == ("Warning", told)


def test_it_goes_on_by_itself_a_little_below_the_quota_and_says_so() -> None:
    world = running(a=120)
    world.run(5)
    hold(world, a=95)
    world.run(5)
    assert source_tasks(world) == 0
    hold(world, a=89)
    world.run(10)
    assert source_tasks(world) == 1
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
    assert [event.reason for event in world.events if "Quota" in event.reason] == ["OverQuota", "WithinQuota"]


def test_it_goes_on_when_the_quota_is_raised() -> None:
    world = running(a=120)
    world.run(5)
    world.edit(spec__storeMemory="200Mi")
    world.run(10)
    assert source_tasks(world) == 1
    assert world.condition("QuotaExceeded") == ("False", "WithinQuota")


def test_a_store_that_tells_nothing_neither_stops_nor_starts_a_source() -> None:
    world = running()
    world.held_bytes.clear()
    world.run(5)
    assert source_tasks(world) == 1
    hold(world, a=120, b=10)
    world.run(5)
    assert source_tasks(world) == 0
    del world.held_bytes["node-a"]
    world.run(10)
    assert source_tasks(world) == 0
    assert world.condition("QuotaExceeded") == ("True", "OverQuota")


def test_what_an_agent_said_long_ago_tells_nothing() -> None:
    def old(observed: Observed) -> Observed:
        readings = {
            store: replace(reading, held=replaced)
            for store, reading in observed.readings.items()
            if reading is not None
            for held in (reading.held,)
            for replaced in (None if held is None else type(held)(held.node, 1, 0, held.held_bytes, 4),)
        }
        return replace(observed, readings=readings)

    world = running(a=312)
    world.run(5, look=old)
    assert source_tasks(world) == 1


def test_a_new_leader_that_remembers_nothing_keeps_the_sources_stopped() -> None:
    world = running(a=120)
    world.run(5)
    hold(world, a=95)
    world.run(5, keep_memory=False)
    assert source_tasks(world) == 0


def test_a_source_that_is_stopped_for_its_quota_is_not_at_its_end() -> None:
    world = running(a=120)
    world.run(90)
    assert world.status["phase"] == "Running"
    assert len(world.ready_pods()) == 2


def test_a_store_at_its_own_limit_is_told_with_what_the_topology_holds() -> None:
    world = running(a=60)
    world.full_of_bytes["node-a"] = 716 * MIB
    world.run(5)
    assert world.condition("QuotaExceeded") == ("False", "StoreFull")
    told = world.message("QuotaExceeded")
    assert "node node-a is at its limit of 716 MiB, of which this topology holds 60 MiB" in told
    assert "store.memory" in told
    assert [event.type for event in world.events if event.reason == "StoreFull"] == ["Warning"]
    assert source_tasks(world) == 1
    world.full_of_bytes.clear()
    world.run(5)
    assert world.condition("QuotaExceeded") == ("False", "WithinQuota")
