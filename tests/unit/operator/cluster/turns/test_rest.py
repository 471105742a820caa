"""When a look is followed by no decision: on the world of the decisions' tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from penstock_operator.cluster.decisions.actions import ResizePod
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.observing.observed import Need, Observed, Refused, SlaControl, StoreReading
from penstock_operator.cluster.turns.rest import (
    LOOKS_EVERY_S_MAX,
    REST_S,
    REST_S_MAX,
    Rest,
    looks_every_s,
    own_pace,
    rest_after,
    rests_s,
)
from worlds.cluster_world import World, manifest


@pytest.fixture(scope="module")
def steady() -> World:
    """A topology that has long run, with a node that it has nothing to do with. No test alters it."""
    world = World(manifest(), nodes=3)
    world.run(30)
    return world


def seen_of(world: World) -> Observed:
    """What its stores know of Schedules has been compared by now."""
    return replace(world.observed(), kept={})


def rest_of(world: World) -> Rest | None:
    observed = seen_of(world)
    decision = decide(observed, world.memory, world.now_s)
    return rest_after(observed, world.memory, decision, world.now_s)


def as_next_seen(world: World) -> Observed:
    """The picture a second later; everything has been read anew."""
    world.now_s += 1
    try:
        return seen_of(world)
    finally:
        world.now_s -= 1


def resting(world: World) -> Rest:
    found = rest_of(world)
    assert found is not None
    return found


def test_a_topology_that_runs_and_wants_nothing_rests_until_it_is_time(steady: World) -> None:
    rest = resting(steady)
    seen = as_next_seen(steady)
    assert rest.lasts(seen, steady.now_s + 1)
    assert not rest.lasts(seen, steady.now_s + REST_S)


def test_what_decide_would_say_to_a_resting_one_is_what_it_said(steady: World) -> None:
    rest = resting(steady)
    seen = as_next_seen(steady)
    assert rest.lasts(seen, steady.now_s + 1)
    decision = decide(seen, steady.memory, steady.now_s + 1)
    assert (decision.actions, decision.events) == ((), ())
    assert steady.memory.status == decision.status


def test_one_that_is_being_brought_up_does_not_rest() -> None:
    world = World(manifest())
    for _ in range(3):
        assert rest_of(world) is None
        world.step()


def reading(seen: Observed, change: Callable[[StoreReading], StoreReading]) -> Observed:
    """With another reading of the first store that has workers."""
    store = next(name for name, one in seen.readings.items() if one is not None and one.workers)
    found = seen.readings[store]
    assert found is not None
    return replace(seen, readings={**seen.readings, store: change(found)})


def with_worker(seen: Observed, **changes: object) -> Observed:
    def changed(found: StoreReading) -> StoreReading:
        name, row = next(iter(found.workers.items()))
        return replace(found, workers={**found.workers, name: structs.replace(row, **changes)})

    return reading(seen, changed)


def own_node(seen: Observed) -> str:
    return seen.pods[0].node


CHANGES: dict[str, Callable[[Observed], Observed]] = {
    "a pod is not ready": lambda seen: replace(
        seen, pods=(replace(seen.pods[0], ready=False), *seen.pods[1:])
    ),
    "a pod is gone": lambda seen: replace(seen, pods=seen.pods[1:]),
    "a Schedule is another": lambda seen: replace(
        seen, schedules=(replace(seen.schedules[0], resource_version="x"), *seen.schedules[1:])
    ),
    "a Schedule is gone": lambda seen: replace(seen, schedules=seen.schedules[1:]),
    "its node is cordoned": lambda seen: replace(
        seen,
        nodes=tuple(
            replace(one, schedulable=False) if one.name == own_node(seen) else one for one in seen.nodes
        ),
    ),
    "its store is not ready": lambda seen: replace(
        seen, stores=tuple(replace(one, ready=False) for one in seen.stores)
    ),
    "the code is another": lambda seen: replace(seen, code={"words.py": "!"}),
    "a pod was refused": lambda seen: replace(seen, refused=(Refused("w", "quota"),)),
    "the plan is gone": lambda seen: replace(seen, config_maps=()),
    "the budget is another": lambda seen: replace(seen, disruption_budget_min=7),
    "stores know its user now": lambda seen: replace(seen, own_users=not seen.own_users),
    "a store does not answer": lambda seen: replace(seen, readings=dict.fromkeys(seen.readings)),
    "a task failed": lambda seen: reading(seen, lambda one: replace(one, failures={"count": "no"})),
    "a worker runs fewer tasks": lambda seen: with_worker(seen, tasks={}),
    "a worker tells nothing any more": lambda seen: with_worker(seen, at_us=0),
    "there is another partition": lambda seen: reading(
        seen, lambda one: replace(one, partitions={"lines": ("lines/c",)})
    ),
    "records came": lambda seen: reading(seen, lambda one: replace(one, shards={})),
    "the Topology is another": lambda seen: replace(
        seen,
        topology=replace(
            seen.topology,
            manifest={**seen.topology.manifest, "metadata": {"name": "words", "generation": 2}},
        ),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_a_decision_follows_from_ends_the_rest(steady: World, what: str) -> None:
    rest = resting(steady)
    assert not rest.lasts(CHANGES[what](as_next_seen(steady)), steady.now_s)


def test_other_nodes_and_what_others_want_do_not_end_it(steady: World) -> None:
    rest = resting(steady)
    seen = as_next_seen(steady)
    others = [one for one in seen.nodes if one.name not in rest.nodes]
    assert others
    nodes = tuple(replace(one, schedulable=False) if one in others else one for one in seen.nodes)
    need = Need("other", 1, "2026-01-01T00:00:00Z", 1, 1000, 1)
    assert rest.lasts(replace(seen, nodes=nodes, needs=(need,)), steady.now_s)


def test_labels_of_its_own_nodes_do_not_end_it_and_change_no_decision(steady: World) -> None:
    rest = resting(steady)
    seen = as_next_seen(steady)
    nodes = tuple(replace(one, labels={**one.labels, "team": "a"}) for one in seen.nodes)
    relabelled = replace(seen, nodes=nodes)
    assert rest.lasts(relabelled, steady.now_s + 1)
    decision = decide(relabelled, steady.memory, steady.now_s + 1)
    assert (decision.actions, decision.events, decision.need) == ((), (), None)
    assert steady.memory.status == decision.status


def with_less_room(seen: Observed) -> Observed:
    """Other pods on its own nodes ask for nearly all that these have."""
    nodes = tuple(
        replace(
            one,
            cpu_requested_millis=one.cpu_allocatable_millis - 1,
            memory_requested_bytes=one.memory_allocatable_bytes - 1,
            pods=one.pods_allocatable - 1,
        )
        for one in seen.nodes
    )
    return replace(seen, nodes=nodes)


def test_room_on_its_own_nodes_does_not_end_it_and_changes_no_decision(steady: World) -> None:
    rest = resting(steady)
    seen = with_less_room(as_next_seen(steady))
    assert rest.lasts(seen, steady.now_s + 1)
    decision = decide(seen, steady.memory, steady.now_s + 1)
    assert (decision.actions, decision.events, decision.need) == ((), (), None)
    assert steady.memory.status == decision.status


def test_room_on_its_own_nodes_ends_it_where_a_latency_sla_goes_by_it(steady: World) -> None:
    controlled = replace(seen_of(steady), sla=SlaControl(workers_min=1))
    decision = decide(controlled, steady.memory, steady.now_s)
    rest = rest_after(controlled, replace(steady.memory, status=decision.status), decision, steady.now_s)
    assert rest is not None
    seen = replace(as_next_seen(steady), sla=controlled.sla)
    assert rest.lasts(seen, steady.now_s + 1)
    assert not rest.lasts(with_less_room(seen), steady.now_s + 1)


def test_room_on_its_own_nodes_ends_it_where_tasks_may_be_remote() -> None:
    world = World(manifest(spec__remoteTasks="Allowed"), nodes=3)
    world.run(30)
    rest = resting(world)
    seen = as_next_seen(world)
    assert rest.lasts(seen, world.now_s + 1)
    assert not rest.lasts(with_less_room(seen), world.now_s + 1)


def test_one_whose_pods_do_not_grow_because_another_goes_first_does_not_rest(steady: World) -> None:
    seen = seen_of(steady)
    small = tuple(replace(one, cpu_request_millis=1) for one in seen.pods)
    most = max(one.cpu_allocatable_millis for one in seen.nodes)
    first = Need("other", 9, "2020-01-01T00:00:00Z", 100, most, 1)
    held_back = replace(seen, pods=small, needs=(first,))
    decision = decide(held_back, steady.memory, steady.now_s)
    assert decision.actions == ()
    assert rest_after(held_back, steady.memory, decision, steady.now_s) is None
    grown = decide(replace(held_back, needs=()), steady.memory, steady.now_s)
    assert {type(one) for one in grown.actions} == {ResizePod}


def test_the_more_of_them_rest_the_less_often_each_is_looked_at() -> None:
    assert looks_every_s(0) == looks_every_s(250) == 2.0
    assert looks_every_s(1000) == 8.0
    assert looks_every_s(100_000) == LOOKS_EVERY_S_MAX


def test_the_more_of_them_rest_the_less_often_each_is_decided_for_where_nothing_has_changed(
    steady: World,
) -> None:
    assert rests_s(0) == rests_s(150) == REST_S
    assert rests_s(1000) == 200.0
    assert rests_s(100_000) == REST_S_MAX
    rest, seen = resting(steady), as_next_seen(steady)
    assert rest.lasts(seen, steady.now_s + 199, rests_s(1000))
    assert not rest.lasts(seen, steady.now_s + 200, rests_s(1000))


def test_topologies_that_rest_are_looked_at_each_at_a_pace_of_its_own() -> None:
    paces = [own_pace(f"topology-{number}") for number in range(1000)]
    assert 0.9 <= min(paces) < 0.905
    assert 1.095 < max(paces) <= 1.1
    assert paces[:10] == [own_pace(f"topology-{number}") for number in range(10)]
