"""Whatever happens to a cluster, and however often the operator forgets or looks at an old picture: once it
stops, every shard is run, and on the way nothing is lost. (The world itself refuses lost state, a store
removed with state in it, versions that go back, and shards that are dropped.)"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_operator.cluster.decisions.actions import CreatePod, DeletePod
from penstock_operator.cluster.observing.observed import Observed, Taint
from worlds.cluster_world import World, manifest
from worlds.sla_world import SlaWorld, latency_sla

pods = st.integers(0, 5)
nodes = st.sampled_from(["node-a", "node-b", "node-c"])
happenings = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 8)),
    st.tuples(st.just("forget"), st.integers(1, 3)),
    st.tuples(st.just("delete pod"), pods),
    st.tuples(st.just("lose pod"), pods),
    st.tuples(st.just("crash"), pods),
    st.tuples(st.just("scale"), st.integers(1, 4)),
    st.tuples(st.just("tasks"), st.integers(1, 6)),
    st.tuples(st.just("warm"), st.integers(0, 2)),
    st.tuples(st.just("code"), st.integers(0, 2)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("cordon"), nodes),
    st.tuples(st.just("uncordon"), nodes),
    st.tuples(st.just("lose node"), nodes),
    st.tuples(st.just("return node"), nodes),
    st.tuples(st.just("agents"), st.booleans()),
    st.tuples(st.just("new files"), st.integers(1, 3)),
    st.tuples(st.just("new leader"), st.just(1)),
    st.tuples(st.just("blind"), pods),
    st.tuples(st.just("upgrade"), st.integers(1, 3)),
    st.tuples(st.just("taint"), nodes),
    st.tuples(st.just("untaint"), nodes),
    st.tuples(st.just("delete schedule"), st.integers(0, 2)),
)
TAINTS = (Taint("karpenter.sh/disrupted", "", "NoSchedule"),)


def happen(world: World, what: str, value: object) -> None:
    """Some of these name pods by number; without pods nothing happens."""
    names = sorted(world.pods)
    if isinstance(value, str):
        _to_a_node(world, what, value)
    elif what in ("delete pod", "lose pod", "crash", "blind"):
        if names and isinstance(value, int):
            _to_a_pod(world, what, names[value % len(names)])
    elif what == "delete schedule" and isinstance(value, int):
        _delete_schedules(world, value)
    else:
        _to_the_operator(world, what, value)


def _to_a_node(world: World, what: str, name: str) -> None:
    node = world.nodes[name]
    if what in ("cordon", "uncordon"):
        node.schedulable = what == "uncordon"
    elif what in ("taint", "untaint"):
        node.taints = TAINTS if what == "taint" else ()
    elif what == "lose node":
        world.lose_node(name)
    elif not node.ready:
        world.return_node(name)


def _to_a_pod(world: World, what: str, name: str) -> None:
    pod = world.pods[name]
    if what == "lose pod":
        world.lose_pod(name)
    elif what == "blind":
        world.step(look=lambda seen: without(seen, name))
    elif what == "delete pod" and pod.deleted_in is None:
        world.delete_pod(name)
    elif what == "crash" and pod.ready:
        pod.ready, pod.ready_in, pod.restarts = False, 6, pod.restarts + 1


def _to_the_operator(world: World, what: str, value: object) -> None:
    match what, value:
        case "wait", int(seconds):
            world.run(seconds)
        case "forget", int(seconds):
            world.run(seconds, keep_memory=False)
        case "scale", int(count):
            world.edit(spec__workers__min=count)
        case "tasks", int(count):
            world.edit(spec__operators__2__tasks={"min": count, "max": 8})
        case "warm", int(count):
            world.edit(spec__workers__warm=count)
        case "code", int(number):
            world.code = {"words.py": str(number)}
        case "pause", bool(paused):
            world.edit(spec__paused=paused)
        case "agents", bool(work):
            world.agents_work = work
        case "new files", int(count):
            world.partitions = tuple(f"lines/texts/{letter}.txt" for letter in "abcde"[: count + 2])
        case "new leader", _:
            world.term += 1
        case "upgrade", int(number):
            world.upgrade(number)


def _delete_schedules(world: World, number: int) -> None:
    """One, or all, of those that have had any effect."""
    for operator in ("lines", "count") if number == 2 else (("lines", "count")[number],):
        if any(operator in store.kept for store in world.stores.values()):
            world.delete_schedule(operator)


LOADS = (20.0, 120.0, 300.0)


HAPPENINGS_WITH_SLA = (
    ("wait", 4), ("forget", 2), ("delete pod", 0), ("lose pod", 1), ("crash", 0), ("cordon", "node-b"),
    ("lose node", "node-b"), ("agents", False), ("new leader", 1), ("pause", True), ("warm", 1),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_sla_and_the_operator_come_to_one_end(seed: int) -> None:
    chance = random.Random(seed)
    world = SlaWorld(manifest(spec__workers__min=1), nodes=3, load_per_s=100)
    world.apply_sla(latency_sla(bounds={"tasks": {"max": 6}}))
    world.run(6)
    for what, value in chance.sample(HAPPENINGS_WITH_SLA, 4):
        world.load_per_s = chance.choice(LOADS)
        if what == "new leader":
            world.new_leader()
        else:
            happen(world, what, value)
        world.step()
    heal(world)
    world.load_per_s = 20
    world.run(170)
    assert world.is_whole()
    assert 1 <= world.schedules["words.count"].schedule.tasks <= 6
    assert world.backlog() < 20
    assert world.condition("Ready") == ("True", "Running")
    assert world.sla_condition("Ready") == ("True", "Kept")
    assert world.sla_condition("SLAMet") == ("True", "WithinBound")
    versions = {name: seen.schedule.version for name, seen in world.schedules.items()}
    for keep_memory in (True, True, False):
        assert world.step(keep_memory=keep_memory).actions == ()
    assert {name: seen.schedule.version for name, seen in world.schedules.items()} == versions


def without(seen: Observed, name: str) -> Observed:
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.name != name))


def heal(world: World) -> None:
    world.agents_work = True
    for name, node in world.nodes.items():
        if not node.ready:
            world.return_node(name)
    world.nodes["node-a"].schedulable = True
    world.nodes["node-a"].taints = ()
    world.edit(spec__paused=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(happenings, max_size=14), st.sampled_from(["Topology", "Operator"]))
def test_whatever_happens_all_shards_are_run_in_the_end(
    story: list[tuple[str, object]], isolation: str
) -> None:
    world = World(nodes=3)
    world.edit(spec__workers__isolation=isolation)
    world.run(4)
    for what, value in story:
        happen(world, what, value)
        world.step()
    heal(world)
    world.run(150)
    assert world.is_whole()
    spec = world.document["spec"]["workers"]
    groups = 1 if isolation == "Topology" else 2
    assert len(world.pods) == groups * (spec["min"] + spec.get("warm", 0))
    assert world.condition("Ready") == ("True", "Running")
    assert world.condition("Progressing") == ("False", "Settled")
    for keep_memory in (True, False):
        assert world.step(keep_memory=keep_memory).actions == ()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from([("scale", 2), ("scale", 3), ("scale", 4), ("tasks", 1), ("tasks", 5), ("warm", 1)])
    )
)
def test_scale_edits_upwards_delete_no_pod_and_downwards_only_as_many_as_they_say(
    edits: list[tuple[str, int]],
) -> None:
    world = World(nodes=3)
    world.edit(spec__workers__min=2)
    world.run(15)
    most = 2
    for what, value in edits:
        happen(world, what, value)
        before = len(world.deleted)
        stays = world.document["spec"]["workers"]["min"] + world.document["spec"]["workers"].get("warm", 0)
        world.run(12)
        assert len(world.deleted) - before <= max(0, most - stays)
        most = stays
    restarted = [pod.name for pod in world.pods.values() if pod.restarts]
    assert restarted == []


@settings(max_examples=40, deadline=None)
@given(st.lists(happenings, max_size=10))
def test_pods_are_made_under_free_names_only_and_deleted_by_uid(story: list[tuple[str, object]]) -> None:
    world = World(nodes=3)
    for what, value in story:
        happen(world, what, value)
        observed = world.observed()
        decision = world.step()
        made = [action.name for action in decision.actions if isinstance(action, CreatePod)]
        assert len(set(made)) == len(made)
        assert not set(made) & {pod.name for pod in observed.pods}
        uids = {pod.name: pod.uid for pod in observed.pods}
        for action in decision.actions:
            if isinstance(action, DeletePod):
                assert uids[action.name] == action.uid
