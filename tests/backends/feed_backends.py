"""The adapters of the Schedule feed, as the contract suite gets at them: the twin, and the real one over a
stand-in for the API server and over a real API server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from backends.cluster_backends import KUBECONFIG, KubernetesBackend
from backends.schedule_api_server import ScheduleApiServer
from penstock_operator.agent.kubernetes_feed import connect
from penstock_operator.agent.schedule_feed import ScheduleFeed
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, ClusterApi, uid_of
from penstock_simulation.twins.memory_feed import MemoryApi, MemoryFeed

Object = dict[str, Any]


class FeedApi(Protocol):
    """What a test does on the other side of the feed."""

    async def put(self, name: str, spec: Object) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def applied(self, name: str) -> dict[str, Object]: ...

    async def feed(self) -> ScheduleFeed:
        """A new feed; the backend closes it."""


class FeedBackend(Protocol):
    def open(self) -> AbstractAsyncContextManager[FeedApi]: ...


class _MemoryFeedApi:
    def __init__(self) -> None:
        self._api = MemoryApi()

    async def put(self, name: str, spec: Object) -> None:
        self._api.put(name, spec)

    async def remove(self, name: str) -> None:
        self._api.remove(name)

    async def applied(self, name: str) -> dict[str, Object]:
        return self._api.applied(name)

    async def feed(self) -> ScheduleFeed:
        return MemoryFeed(self._api)


class MemoryFeedBackend:
    """The twin."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FeedApi]:
        yield _MemoryFeedApi()


class _StandInFeedApi:
    def __init__(self, server: ScheduleApiServer, kubeconfig: Path) -> None:
        self._server = server
        self._kubeconfig = kubeconfig
        self.feeds: list[ScheduleFeed] = []

    async def put(self, name: str, spec: Object) -> None:
        await asyncio.to_thread(self._server.put, name, spec)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._server.remove, name)

    async def applied(self, name: str) -> dict[str, Object]:
        return await asyncio.to_thread(self._server.applied, name)

    async def feed(self) -> ScheduleFeed:
        self.feeds.append(await connect("default", str(self._kubeconfig)))
        return self.feeds[-1]


class StandInFeedBackend:
    """The real adapter over `schedule_api_server`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FeedApi]:
        server = ScheduleApiServer()
        server.start()
        api = _StandInFeedApi(server, server.kubeconfig(self._folder))
        try:
            yield api
        finally:
            for feed in api.feeds:
                await feed.close()
            await asyncio.to_thread(server.stop)


class _RealFeedApi:
    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster
        self.feeds: list[ScheduleFeed] = []

    async def put(self, name: str, spec: Object) -> None:
        manifest: Object = {
            "apiVersion": SCHEDULES.api_version,
            "kind": SCHEDULES.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._cluster.apply(SCHEDULES, manifest)

    async def remove(self, name: str) -> None:
        there = await self._cluster.get(SCHEDULES, name)
        assert there is not None
        await self._cluster.delete(SCHEDULES, name, uid_of(there))

    async def applied(self, name: str) -> dict[str, Object]:
        there = await self._cluster.get(SCHEDULES, name)
        assert there is not None
        return {entry["node"]: entry for entry in (there.get("status") or {}).get("applied", ())}

    async def feed(self) -> ScheduleFeed:
        self.feeds.append(await connect(self._cluster.namespace, os.environ[KUBECONFIG]))
        return self.feeds[-1]


class RealFeedBackend:
    """The real adapter over a real API server."""

    def __init__(self) -> None:
        self._cluster = KubernetesBackend()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FeedApi]:
        async with self._cluster.open() as cluster:
            api = _RealFeedApi(cluster)
            try:
                yield api
            finally:
                for feed in api.feeds:
                    await feed.close()

    async def remove(self) -> None:
        await self._cluster.remove()
