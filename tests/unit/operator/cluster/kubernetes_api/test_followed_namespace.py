"""A further namespace: followed while it may be read, and asked for less and less often while it may not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api import followed_namespace
from penstock_operator.cluster.kubernetes_api.followed_namespace import FollowedNamespace
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED_ELSEWHERE, Mirror
from penstock_operator.cluster.kubernetes_api.port import TOPOLOGIES
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects
from worlds.operator_world import fed_by

TEAM = "team-a"


class Scene:
    """One that is followed; `told` are its openings and closings, `pauses` how long it has waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = MemoryCluster(clock_s=lambda: 0.0)
        self.mirror = Mirror(lambda *_: None, WATCHED_ELSEWHERE)
        self.told: list[bool] = []
        self.pauses: list[float] = []
        self.break_watch: Callable[[str], None] = lambda _: None
        self._changed = asyncio.Event()
        sleep = asyncio.sleep

        async def slept(pause_s: float) -> None:
            self.pauses.append(pause_s)
            self._changed.set()
            await sleep(0)

        monkeypatch.setattr(followed_namespace.asyncio, "sleep", slept)

    def followed(self) -> FollowedNamespace:
        feed = fed_by(self.cluster)

        def watch(mirror: Mirror, namespace: str, failed: Callable[[str], None]) -> Callable[[], None]:
            self.break_watch = failed
            return feed(mirror, namespace, failed)

        def tell(is_open: bool) -> None:
            self.told.append(is_open)
            self._changed.set()

        return FollowedNamespace(self.cluster.within(TEAM), self.mirror, watch, tell)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


def play(monkeypatch: pytest.MonkeyPatch, story: Callable[[Scene], Awaitable[None]]) -> Scene:
    async def played() -> Scene:
        scene = Scene(monkeypatch)
        running = asyncio.create_task(scene.followed().follow())
        try:
            await story(scene)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return scene

    return run(played())


def test_it_is_listed_and_then_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.until(lambda: scene.told == [True])
        assert scene.mirror.is_complete()
        await scene.cluster.create(TOPOLOGIES, objects.topology())
        await scene.cluster.within(TEAM).create(TOPOLOGIES, objects.topology("theirs"))
        assert [one["metadata"]["name"] for one in scene.mirror.all(TOPOLOGIES)] == ["theirs"]

    play(monkeypatch, story)


def test_one_that_may_not_be_read_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.closed.add(TEAM)
        await scene.until(lambda: len(scene.pauses) == 9)
        assert scene.told == [False]
        assert not scene.mirror.is_complete()
        scene.cluster.closed.clear()
        await scene.until(lambda: scene.told == [False, True])

    scene = play(monkeypatch, story)
    assert scene.pauses[:9] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_what_was_known_of_one_that_closes_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_namespace, "RELIST_S", 0.01)

    async def story(scene: Scene) -> None:
        await scene.cluster.within(TEAM).create(TOPOLOGIES, objects.topology())
        await scene.until(lambda: scene.told == [True])
        scene.cluster.closed.add(TEAM)
        await scene.until(lambda: scene.told == [True, False])
        assert scene.mirror.get(TOPOLOGIES, "words") is not None

    play(monkeypatch, story)


def test_a_watch_that_breaks_begins_anew_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        await scene.until(lambda: scene.told == [True])
        await asyncio.to_thread(lambda: None)
        scene.break_watch("it ended")
        await scene.until(lambda: bool(scene.pauses))
        await asyncio.to_thread(lambda: None)
        await scene.cluster.within(TEAM).create(TOPOLOGIES, objects.topology())
        await asyncio.to_thread(lambda: None)
        assert scene.mirror.get(TOPOLOGIES, "words") is not None
        assert scene.told == [True]

    play(monkeypatch, story)
