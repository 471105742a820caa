"""Stores come to a new template, their homes moved off first; with nowhere to go, in place or not at all."""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.store_renewal import PATIENCE_S, Renewal, RenewalMemory, decide_renewal
from worlds.cluster_world import World

NOTHING = RenewalMemory()


def node(name: str, **fields: bool) -> ObservedNode:
    return replace(ObservedNode(name, True, True, 8000, 1 << 34), **fields)  # type: ignore[arg-type]


def store(name: str, *, outdated: bool = True, ready: bool = True, volume: bool = False) -> ObservedStore:
    return ObservedStore(
        name, name, "s:6379", ready, "Process", volume, f"pen-store-{name}", f"set-{name}",
        pod_uid=f"pod-{name}", is_outdated=outdated,
    )  # fmt: skip


def decided(
    stores: list[ObservedStore],
    named: set[str] | None,
    memory: RenewalMemory = NOTHING,
    now_s: float = 100.0,
    nodes: list[ObservedNode] | None = None,
) -> Renewal:
    return decide_renewal(nodes or [node(one.node) for one in stores], stores, named, memory, now_s)


def test_nothing_is_done_about_stores_of_the_newest_template() -> None:
    assert decided([store("a", outdated=False), store("b", outdated=False)], set()) == Renewal(
        RenewalMemory()
    )


def test_shards_are_asked_away_from_one_node_at_a_time() -> None:
    both = [store("a"), store("b")]
    first = decided(both, {"a", "b"})
    assert (first.memory.store, first.restart, first.notices) == ("a", None, ())
    again = decided(both, {"a", "b"}, first.memory, 150.0)
    assert (again.memory.store, again.restart) == ("a", None)


def test_a_store_that_nobody_names_any_more_is_replaced() -> None:
    found = decided([store("a"), store("b")], {"b"}, RenewalMemory("a", {"pod-a": 90.0}))
    assert found.restart is not None
    assert (found.restart.name, found.restart.uid) == ("pen-store-a-0", "pod-a")
    assert found.memory.store == "a", "nothing comes back to it before it is renewed"
    away = [store("a"), store("b", outdated=False, ready=False)]
    found = decided(away, {"b"}, found.memory)
    assert (found.restart, found.memory.store) == (None, "a")


def test_the_next_one_waits_until_the_last_is_back() -> None:
    found = decided([store("a", outdated=False, ready=False), store("b")], {"b"})
    assert (found.memory.store, found.restart) == ("", None)
    found = decided([store("a", outdated=False), store("b")], {"b"})
    assert found.memory.store == "b"


def test_who_is_asked_already_stays_so_while_another_store_is_away() -> None:
    found = decided(
        [store("a", outdated=False, ready=False), store("b"), store("c", outdated=False)],
        {"a", "b"},
        RenewalMemory("b", {"pod-b": 90.0}),
    )
    assert (found.memory.store, found.restart) == ("b", None)


def test_while_schedules_are_not_known_nothing_is_done() -> None:
    assert decided([store("a"), store("b")], None).memory.store == ""
    assert decided([store("a")], None).restart is None


def test_with_nowhere_to_go_a_store_with_a_volume_is_started_anew_and_says_so() -> None:
    found = decided([store("a", volume=True)], {"a"})
    assert found.restart is not None
    ((name, event),) = found.notices
    assert (name, event.type, event.reason) == ("pen-store-a", "Normal", "StoreRestarted")


def test_with_nowhere_to_go_a_store_without_volume_stays_and_says_so() -> None:
    found = decided([store("a")], {"a"})
    assert (found.memory.store, found.restart) == ("", None)
    ((_, event),) = found.notices
    assert (event.type, event.reason) == ("Warning", "StoreOutdated")
    assert "store.storageClassName" in event.message


def test_who_is_not_taken_in_within_the_patience_is_passed_over_for_the_next() -> None:
    memory = RenewalMemory("a", {"pod-a": 100.0})
    found = decided([store("a"), store("b")], {"a", "b"}, memory, 100.0 + PATIENCE_S)
    assert (found.memory.store, found.restart) == ("b", None)
    assert [name for name, _ in found.notices] == ["pen-store-a"]


def test_a_node_that_is_away_is_left_for_later() -> None:
    nodes = [node("a", ready=False), node("b")]
    found = decided([store("a", ready=False), store("b")], {"a", "b"}, nodes=nodes)
    assert (found.memory.store, found.restart) == ("", None)


# --- with all the rest


def test_an_upgrade_renews_store_after_store_and_no_state_is_lost() -> None:
    world = World(nodes=3)
    world.run(20)
    world.upgrade(2)
    world.run(150)
    assert sorted(world.renewed) == [f"pen-store-node-{letter}-0" for letter in "abc"]
    assert all(one.pod_template == one.template for one in world.stores.values())
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
    assert world.step().actions == ()


def test_on_a_single_node_without_volume_the_store_stays_and_the_topology_runs_on() -> None:
    world = World(nodes=1)
    world.run(20)
    world.upgrade(2)
    world.run(30)
    assert world.renewed == []
    assert [event.reason for _, event in world.notices] == ["StoreOutdated"]
    assert world.condition("Ready") == ("True", "Running")


def test_on_a_single_node_with_a_volume_the_store_is_started_anew_once() -> None:
    world = World(nodes=1)
    world.have_volumes = True
    world.config = world.config.model_copy(
        update={"store": world.config.store.model_copy(update={"storage_class_name": "fast"})}
    )
    world.run(20)
    world.upgrade(2)
    world.run(30)
    assert world.renewed == ["pen-store-node-a-0"]
    assert world.is_whole()
    assert world.condition("Ready") == ("True", "Running")
