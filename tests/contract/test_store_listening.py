"""Store contract: a task that waits for a watermark is rung at news, and asks for nothing until then."""

from __future__ import annotations

import pytest

from penstock.store.port import (
    Answer,
    Listen,
    Publish,
    Retract,
    TakeFacts,
    TimerWrite,
    WaitReady,
    Wake,
    Watermark,
    WatermarkFact,
)
from scenes.store_scenario import Scene, out

READY = "mid@w1"


def at(ms: int | None, *, idle: bool = False) -> Watermark:
    return Watermark(ms, idle)


def listens(scene: Scene, heard: Watermark, *producers: str) -> bool:
    return scene.store.call(Listen(READY, heard, producers or ("src",)))


def is_rung(scene: Scene, ready: str = READY) -> bool:
    return scene.store.call(WaitReady(ready, 1))


def fetched(scene: Scene, *, rung: bool = False) -> list[str]:
    answer = scene.fetch(READY, timers_max=100, producers=("src",))
    assert (answer.control, answer.rung) == (False, rung)
    return [one.shard for one in answer.shards]


@pytest.fixture
def listening(scene: Scene) -> Scene:
    """Both sources have told 50, and the task of "mid" listens."""
    scene.set_up("src/0", "src/1", "mid/0", "end/0")
    fetched(scene)
    scene.fetch("end@w1")
    for shard in ("src/0", "src/1"):
        scene.commit(shard, watermark=at(50))
    assert listens(scene, at(50))
    assert not is_rung(scene)
    return scene


def test_what_a_producer_tells_rings_once(listening: Scene) -> None:
    listening.commit("src/0", watermark=at(60))
    assert is_rung(listening)
    assert fetched(listening, rung=True) == []
    assert not is_rung(listening)
    listening.commit("src/0", watermark=at(70))
    assert not is_rung(listening), "nobody listens any more"


def test_a_commit_that_tells_nothing_new_rings_nobody(listening: Scene) -> None:
    listening.commit("src/0", watermark=at(50))
    listening.commit("src/0", watermark=at(60), tells=False)
    assert not is_rung(listening)


def test_what_is_told_once_an_outbox_is_empty_rings_then(listening: Scene) -> None:
    listening.commit("src/0", out("far/0"), watermark=at(60))
    assert not is_rung(listening)
    listening.acknowledge("src/0", "far/0", 1)
    assert is_rung(listening)


def test_what_another_store_told_rings(listening: Scene) -> None:
    fact = WatermarkFact("src/1", 1 << 60, at(80))
    assert listening.store.call(TakeFacts("src", (fact,))) is Answer.OK
    assert is_rung(listening)
    assert fetched(listening, rung=True) == []
    assert listens(listening, at(50))
    assert listening.store.call(TakeFacts("src", (fact,))) is Answer.OK
    assert not is_rung(listening), "a fact that is known already is no news"


def test_other_shards_of_a_producer_ring(listening: Scene) -> None:
    """With one shard more nothing is known of the stage's watermark; with one less it may be higher."""
    workers = tuple((w, "node-1", "host-1", f"uid-{w}") for w in listening.workers)
    shards = tuple((f"src/{n}", "src@w1", "s1") for n in range(3))
    assert listening.store.call(Publish("src", 2, 1, workers, (("src@w1", "w1", 1),), shards)) is Answer.OK
    assert is_rung(listening)


def test_others_are_not_rung(listening: Scene) -> None:
    assert listening.store.call(Listen("end@w1", at(None), ("mid",)))
    listening.commit("src/0", watermark=at(60))
    assert not is_rung(listening, "end@w1")
    assert is_rung(listening)


def test_of_several_producers_each_rings(scene: Scene) -> None:
    scene.set_up("src/0", "end/0", "mid/0")
    fetched(scene)
    for shard in ("src/0", "end/0"):
        assert listens(scene, at(None), "src", "end")
        scene.commit(shard, watermark=at(60))
        assert is_rung(scene)
        assert fetched(scene, rung=True) == []


def test_news_that_came_before_are_told_at_once(listening: Scene) -> None:
    """So nothing is missed between a fetch and this."""
    listening.commit("src/0", watermark=at(60))
    listening.commit("src/1", watermark=at(60))
    assert fetched(listening, rung=True) == []
    for heard in (at(50), at(None), at(60, idle=True)):
        assert not listens(listening, heard)
    assert listens(listening, at(60))
    assert not is_rung(listening)


def test_it_is_the_watermark_of_keyed_producers_by_their_rule(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.commit("src/0", watermark=at(30, idle=True))
    scene.commit("src/1", watermark=at(50))
    assert not scene.store.call(Listen(READY, at(50), ("src",), ("src",)))
    assert scene.store.call(Listen(READY, at(30), ("src",), ("src",)))


def test_timers_that_wait_for_something_else_are_looked_after(scene: Scene) -> None:
    """A shard without room in its outbox fires its timers once there is: nobody tells a watermark then."""
    scene.set_up("src/0", "src/1", "mid/0")
    fetched(scene)
    scene.commit("mid/0", out("far/0", b"x" * 101), timers=(TimerWrite(b"a", 40),))
    for shard in ("src/0", "src/1"):
        scene.commit(shard, watermark=at(50))
    assert fetched(scene) == []
    assert not listens(scene, at(50))
    scene.acknowledge("mid/0", "far/0", 1)
    assert fetched(scene) == ["mid/0"]


def test_nobody_listens_to_a_topology_that_is_gone(listening: Scene) -> None:
    listening.store.call(Retract())
    assert not listens(listening, at(50))


def test_a_ring_and_a_control_token_are_told_apart(listening: Scene) -> None:
    listening.commit("src/0", watermark=at(60))
    listening.store.call(Wake(READY))
    answer = listening.fetch(READY, timers_max=100, producers=("src",))
    assert (answer.control, answer.rung) == (True, True)
    listening.store.call(Wake(READY))
    answer = listening.fetch(READY, timers_max=100, producers=("src",))
    assert (answer.control, answer.rung) == (True, False)
