"""A pod that is refused is tried again after pauses that grow, and at once when the Topology is another."""

from __future__ import annotations

from dataclasses import replace

from penstock_operator.cluster.decisions.actions import CreatePod, Decision, ResizePod
from penstock_operator.cluster.decisions.decide import decide
from penstock_operator.cluster.observing.observed import Refused
from penstock_operator.cluster.turns.pod_tries import PAUSE_S_MAX, PodTries
from worlds.cluster_world import World
from worlds.started_world import started

REFUSED = Refused("words-w0", "exceeded quota")


def looks(world: World, tries: PodTries, seconds: int) -> list[Decision]:
    """The operator looks each second, and the API server refuses every pod."""
    decisions = []
    for _ in range(seconds):
        seen = replace(world.observed(), refused=tries.seen(1, world.now_s))
        decision = decide(seen, world.memory, world.now_s)
        world.memory = decision.memory
        refused = [
            Refused(action.name, "exceeded quota")
            for action in decision.actions
            if isinstance(action, CreatePod | ResizePod)
        ]
        tries.tried(refused, decision.awaited, 1, world.now_s, is_complete=True)
        decisions.append(decision)
        world.now_s += 1.0
    return decisions


def test_pods_that_a_quota_refuses_are_tried_less_and_less_often() -> None:
    world = World()
    for _ in range(3):
        world.run_stores()
        world.pass_second()
    world.run_stores()
    decisions = looks(world, PodTries(), 600)
    posts = [sum(isinstance(a, CreatePod) for a in decision.actions) for decision in decisions]
    assert posts[0] == 2, "two workers are wanted"
    assert 20 <= sum(posts) <= 2 * 17
    assert sum(posts[-120:]) >= 2, "it goes on being tried"
    ready = next(c for c in decisions[-1].status["conditions"] if c["type"] == "Ready")
    assert (ready["reason"], "exceeded quota" in ready["message"]) == ("PodRefused", True)


def test_a_resize_that_is_refused_is_tried_less_and_less_often_too() -> None:
    world = started()
    world.edit(spec__operators__2__tasks={"min": 4, "max": 8, "initial": 4})
    world.run(5)
    for pod in world.pods.values():
        pod.document["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    decisions = looks(world, PodTries(), 60)
    tries = sum(isinstance(a, ResizePod) for decision in decisions for a in decision.actions)
    assert 2 <= tries <= 2 * 7


def test_pauses_grow_to_a_minute() -> None:
    tries, now_s, pauses = PodTries(), 0.0, []
    for _ in range(9):
        tries.tried([REFUSED], (), 1, now_s, is_complete=True)
        began_s = now_s
        while tries.seen(1, now_s)[0].waits:
            now_s += 1.0
        pauses.append(now_s - began_s)
    assert pauses == [1, 2, 4, 8, 16, 32, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]


def test_another_topology_is_tried_at_once() -> None:
    tries = PodTries()
    for _ in range(5):
        tries.tried([REFUSED], (), 1, 100.0, is_complete=True)
    assert tries.seen(1, 101.0)[0].waits
    assert not tries.seen(2, 101.0)[0].waits


def test_what_is_let_in_or_not_wanted_any_more_is_forgotten() -> None:
    tries = PodTries()
    assert tries.tried([REFUSED], (), 1, 0.0, is_complete=True)
    assert not tries.tried([], ["words-w0"], 1, 0.5, is_complete=True)
    assert tries.seen(1, 0.5) == (replace(REFUSED, waits=True),)
    assert not tries.tried([], (), 1, 0.6, is_complete=False)
    assert tries.seen(1, 0.6) == (replace(REFUSED, waits=True),), "the turn did not come to it"
    tries.tried([], (), 1, 2.0, is_complete=True)
    assert tries.seen(1, 2.0) == ()
