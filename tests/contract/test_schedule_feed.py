"""The feed's port: one suite for the twin, the real adapter over a stand-in, and over a real API server.

The real server is asked when the variable PENSTOCK_TEST_KUBECONFIG names the kubeconfig of a cluster.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from backends.cluster_backends import KUBECONFIG
from backends.feed_backends import (
    FeedApi,
    FeedBackend,
    MemoryFeedBackend,
    RealFeedBackend,
    StandInFeedBackend,
)
from backends.schedule_api_server import ScheduleApiServer
from clocks.running import run
from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.applied_status import applied_entry
from penstock_operator.agent.kubernetes_feed import connect
from penstock_operator.agent.schedule_feed import NOTHING, ScheduleFeed, Snapshot
from worlds.schedule_objects import UID, spec

Story = Callable[["Watcher", FeedApi], Coroutine[Any, Any, None]]

NO_CLUSTER = pytest.mark.skipif(KUBECONFIG not in os.environ, reason=f"{KUBECONFIG} names no cluster")
_DEADLINE_S = 30.0


class Watcher:
    """A feed that runs, and the newest snapshot that it told."""

    def __init__(self, feed: ScheduleFeed) -> None:
        self.feed = feed
        self.snapshot: Snapshot = NOTHING
        self._changed = asyncio.Event()

    def told(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._changed.set()

    async def until(self, holds: Callable[[Snapshot], object]) -> Snapshot:
        async with asyncio.timeout(_DEADLINE_S):
            while not holds(self.snapshot):
                self._changed.clear()
                await self._changed.wait()
        return self.snapshot

    async def version(self, name: str, version: int) -> Snapshot:
        return await self.until(
            lambda s: name in s.schedules and s.schedules[name].schedule.version == version
        )


@pytest.fixture(scope="module")
def real_backend() -> Iterator[RealFeedBackend]:
    backend = RealFeedBackend()
    yield backend
    run(backend.remove())


@pytest.fixture(
    params=[
        "memory",
        pytest.param("stand-in", marks=pytest.mark.integration),
        pytest.param("kubernetes", marks=[pytest.mark.integration, NO_CLUSTER]),
    ]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> FeedBackend:
    if request.param == "memory":
        return MemoryFeedBackend()
    if request.param == "stand-in":
        return StandInFeedBackend(tmp_path)
    real: RealFeedBackend = request.getfixturevalue("real_backend")
    return real


def tell(backend: FeedBackend, story: Story, *, before: dict[str, dict[str, Any]] | None = None) -> None:
    """A story with a feed that runs; `before` are objects that are there when it begins."""

    async def told() -> None:
        async with backend.open() as api:
            for name, fields in (before or {}).items():
                await api.put(name, fields)
            watcher = Watcher(await api.feed())
            running = asyncio.create_task(watcher.feed.run(watcher.told))
            try:
                await story(watcher, api)
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    run(told())


def test_the_first_snapshot_is_a_complete_list(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, api: FeedApi) -> None:
        snapshot = await watcher.until(lambda s: s.listing)
        assert set(snapshot.schedules) == {"words-mid", "words-end"}
        assert snapshot.topology_uids == {UID}
        assert snapshot.schedules["words-mid"].schedule.shards["mid/1"].home == "b"
        assert snapshot.schedules["words-mid"].topology_uid == UID

    tell(backend, story, before={"words-mid": spec(), "words-end": spec(operator="end")})


def test_an_empty_namespace_is_a_complete_list_too(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, _: FeedApi) -> None:
        snapshot = await watcher.until(lambda s: s.listing)
        assert snapshot.schedules == {}
        assert snapshot.topology_uids == frozenset()

    tell(backend, story)


def test_additions_changes_and_deletions_are_told(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, api: FeedApi) -> None:
        await watcher.until(lambda s: s.listing)
        await api.put("words-mid", spec(1))
        await watcher.version("words-mid", 1)
        await api.put("words-mid", spec(2))
        await watcher.version("words-mid", 2)
        await api.remove("words-mid")
        await watcher.until(lambda s: not s.schedules)

    tell(backend, story)


def test_a_list_that_is_asked_for_is_made(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, _: FeedApi) -> None:
        first = await watcher.until(lambda s: s.listing)
        watcher.feed.list_again()
        await watcher.until(lambda s: s.listing > first.listing)

    tell(backend, story, before={"words-mid": spec()})


def test_topologies_are_looked_for_with_a_list_that_is_asked_for(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, _: FeedApi) -> None:
        first = await watcher.until(lambda s: s.listing)
        assert first.living is None
        watcher.feed.list_again()
        assert (await watcher.until(lambda s: s.listing > first.listing)).living == frozenset()

    tell(backend, story, before={"words-mid": spec()})


def test_a_report_is_this_nodes_alone_and_comes_back(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, api: FeedApi) -> None:
        snapshot = await watcher.until(lambda s: s.listing)
        seen = snapshot.schedules["words-mid"]
        places = [AppliedPlace("a", 1, 1), AppliedPlace("b", 1, 4, 2, 3), AppliedPlace("a", 1, 2)]
        for place in places:
            await watcher.feed.report(seen, place)
        expected = {place.store: place for place in places}
        assert await api.applied("words-mid") == {
            node: applied_entry(place) for node, place in expected.items()
        }
        await watcher.until(lambda s: s.schedules["words-mid"].applied == expected)
        assert watcher.snapshot.schedules["words-mid"].schedule.version == 1

    tell(backend, story, before={"words-mid": spec()})


def test_a_report_about_an_object_that_is_gone_is_passed_over(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, api: FeedApi) -> None:
        snapshot = await watcher.until(lambda s: s.listing)
        seen = snapshot.schedules["words-mid"]
        await api.remove("words-mid")
        await watcher.feed.report(seen, AppliedPlace("a", 1, 1))
        await api.put("words-mid", spec(1))
        await watcher.feed.report(seen, AppliedPlace("a", 1, 1))
        assert await api.applied("words-mid") == {}

    tell(backend, story, before={"words-mid": spec()})


def test_reports_of_many_nodes_at_once_all_arrive(backend: FeedBackend) -> None:
    async def story(watcher: Watcher, api: FeedApi) -> None:
        snapshot = await watcher.until(lambda s: s.listing)
        seen = snapshot.schedules["words-mid"]
        nodes = [f"node-{number}" for number in range(8)]
        await asyncio.gather(*(watcher.feed.report(seen, AppliedPlace(node, 1, 1)) for node in nodes))
        assert set(await api.applied("words-mid")) == set(nodes)

    tell(backend, story, before={"words-mid": spec()})


@pytest.mark.integration
def test_a_stand_in_that_was_away_answers_while_it_is_watched(tmp_path: Path) -> None:
    """A watch that begins before anything has changed is what the server comes back to."""
    server = ScheduleApiServer()
    server.start()

    async def told() -> None:
        server.go_away()
        server.come_back()
        watcher = Watcher(await connect("default", str(server.kubeconfig(tmp_path))))
        running = asyncio.create_task(watcher.feed.run(watcher.told))
        await watcher.until(lambda s: s.listing)
        async with asyncio.timeout(_DEADLINE_S):
            while not server.watches:
                await asyncio.sleep(0)
        await asyncio.to_thread(server.put, "words-mid", spec())
        await watcher.version("words-mid", 1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await watcher.feed.close()

    try:
        run(told())
    finally:
        server.stop()


@pytest.mark.integration
def test_the_schedules_of_all_namespaces_that_are_served_are_told_and_reported_on(tmp_path: Path) -> None:
    server = ScheduleApiServer()
    server.start()
    served = ["team-a"]

    async def told() -> None:
        watcher = Watcher(await connect("default", str(server.kubeconfig(tmp_path)), lambda: served))
        running = asyncio.create_task(watcher.feed.run(watcher.told))
        for name in ("words-mid", "team-a/words-mid", "team-b/words-mid"):
            await asyncio.to_thread(server.put, name, spec())
        await watcher.version("words-mid", 1)
        snapshot = await watcher.version("team-a/words-mid", 1)
        assert snapshot.schedules.keys() == {"words-mid", "team-a/words-mid"}
        assert snapshot.namespaces == {"team-a"}
        seen = snapshot.schedules["team-a/words-mid"]
        await watcher.feed.report(seen, AppliedPlace("a", 1, 1))
        assert await asyncio.to_thread(server.applied, "words-mid") == {}
        assert set(await asyncio.to_thread(server.applied, "team-a/words-mid")) == {"a"}
        served.append("team-b")
        watcher.feed.list_again()
        await watcher.version("team-b/words-mid", 1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await watcher.feed.close()

    try:
        run(told())
    finally:
        server.stop()


@pytest.mark.integration
def test_a_namespace_that_may_not_be_read_holds_up_no_other_and_what_was_known_of_it_stays(
    tmp_path: Path,
) -> None:
    server = ScheduleApiServer()
    server.start()

    async def told() -> None:
        feed = await connect("default", str(server.kubeconfig(tmp_path)), lambda: ["team-a"])
        watcher = Watcher(feed)
        await asyncio.to_thread(server.put, "team-a/words-mid", spec())
        running = asyncio.create_task(feed.run(watcher.told))
        await watcher.version("team-a/words-mid", 1)
        server.closed.add("team-a")
        feed.list_again()
        snapshot = await watcher.until(lambda s: s.listing and not s.namespaces)
        assert snapshot.schedules.keys() == {"team-a/words-mid"}
        assert snapshot.living == frozenset()
        await asyncio.to_thread(server.put, "words-mid", spec())
        await watcher.version("words-mid", 1)
        lists = server.lists
        await asyncio.to_thread(server.put, "words-mid", spec(2))
        await watcher.version("words-mid", 2)
        assert server.lists == lists, "it is not asked for again and again"
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await feed.close()

    try:
        run(told())
    finally:
        server.stop()
