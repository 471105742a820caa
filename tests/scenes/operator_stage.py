"""The whole operator on the twin of the API and real stores: what integration tests of it stand on.

Neighbour: `worlds.operator_world` plays kubelets, schedulers, agents and workers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from backends.store_fixtures import RedisBackend
from clocks.running import run
from penstock.store.port import Bounds
from penstock_operator.cluster.kubernetes_api.loop_thread import ThisLoop
from penstock_operator.cluster.kubernetes_api.names import COMPONENT_WORKER, LABEL_COMPONENT
from penstock_operator.cluster.kubernetes_api.port import PODS, TOPOLOGIES, Kind, Object
from penstock_operator.cluster.main import EXIT_STOPPED, Replica, Surroundings
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.operator_world import NAMESPACE, OperatorWorld, fed_by, operator_config

Holds = Callable[[], Awaitable[bool]]


class Stage:
    """A world, and replicas of the operator that run in it. `namespaces` are served beside the release's."""

    def __init__(self, nodes: RedisBackend, namespaces: Sequence[str] = ()) -> None:
        self.namespaces = namespaces
        self.cluster = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
        self.nodes = nodes
        self.world = OperatorWorld(
            self.cluster, lambda node, uid: nodes.open_store(node, uid, Bounds()), nodes.open_wire
        )
        self.port = 0
        self.volume = "EmptyDir"
        self._changes = asyncio.Event()
        self.cluster.subscribe(lambda *_: self._changes.set())

    def replica(self, name: str, **changes: Any) -> tuple[Replica, asyncio.Event]:
        """`changes` are of its `Surroundings`."""
        self.port = free_port()
        around = Surroundings(
            self.cluster,
            self.world.open_store,
            self.world.open_wire,
            fed_by(self.cluster),
            f"{name}-start",
            name,
            lease_cluster=self.cluster,
            lease_runs=ThisLoop(),
        )
        config = operator_config(self.port, self.volume, self.namespaces)
        return Replica(config, replace(around, **changes)), asyncio.Event()

    async def until(self, holds: Holds) -> None:
        """At each change of the cluster, look whether it holds."""
        async with asyncio.timeout(30):
            while not await holds():
                self._changes.clear()
                await self._changes.wait()

    async def workers(self, namespace: str = NAMESPACE) -> list[Object]:
        within = self.cluster.within(namespace)
        return list((await within.list(PODS, {LABEL_COMPONENT: COMPONENT_WORKER})).items)

    async def status(self, name: str = "words", namespace: str = NAMESPACE) -> dict[str, Any]:
        return (await self.cluster.within(namespace).get(TOPOLOGIES, name) or {}).get("status") or {}

    async def until_phase(
        self, phase: str, name: str = "words", namespace: str = NAMESPACE
    ) -> dict[str, Any]:
        async def reached() -> bool:
            return (await self.status(name, namespace)).get("phase") == phase

        await self.until(reached)
        return await self.status(name, namespace)


def tell(
    nodes: RedisBackend,
    story: Callable[[Stage, Replica], Awaitable[None]],
    volume: str = "EmptyDir",
    namespaces: Sequence[str] = (),
    held: Sequence[tuple[Kind, Object]] = (),
) -> None:
    """Run `story` beside one replica, and end it. Stores are on this kind of `volume`; the cluster has `held`
    before."""

    async def told() -> None:
        stage = Stage(nodes, namespaces)
        stage.volume = volume
        for kind, thing in held:
            stage.cluster.put(kind, thing)
        replica, stop = stage.replica("one")
        running = asyncio.create_task(replica.run(stop))
        try:
            await story(stage, replica)
        finally:
            stop.set()
            assert await running == EXIT_STOPPED

    try:
        run(told())
    finally:
        nodes.empty()
