"""kopf for several namespaces in one process, each in a thread of its own, on the twin over HTTP."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from backends.cluster_api_server import ClusterApiServer
from clocks.running import run
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, WATCHED_ELSEWHERE, Mirror
from penstock_operator.cluster.kubernetes_api.port import NODES, TOPOLOGIES, Kind, name_of
from penstock_operator.cluster.kubernetes_api.watches import watch_by_kopf
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects

pytestmark = pytest.mark.integration

OWN, TEAM = "streams", "team-a"


def test_each_mirror_is_told_of_its_own_namespace_and_one_that_ends_leaves_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = MemoryCluster(clock_s=time.time, namespace=OWN)
        server = ClusterApiServer(cluster)
        await server.start()
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        changed = asyncio.Event()
        mirrors = {
            OWN: Mirror(lambda *_: changed.set(), WATCHED),
            TEAM: Mirror(lambda *_: changed.set(), WATCHED_ELSEWHERE),
        }
        failures: list[str] = []

        async def until_seen(namespace: str, kind: Kind, *names: str) -> None:
            async with asyncio.timeout(30):
                while [name_of(one) for one in mirrors[namespace].all(kind)] != list(names):
                    changed.clear()
                    await changed.wait()

        stops = {name: watch_by_kopf(mirror, name, failures.append) for name, mirror in mirrors.items()}
        try:
            cluster.put(NODES, {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
            await cluster.create(TOPOLOGIES, objects.topology("ours"))
            await cluster.within(TEAM).create(TOPOLOGIES, objects.topology("theirs"))
            await until_seen(OWN, TOPOLOGIES, "ours")
            await until_seen(OWN, NODES, "n1")
            await until_seen(TEAM, TOPOLOGIES, "theirs")
            stops.pop(TEAM)()
            await cluster.create(TOPOLOGIES, objects.topology("more"))
            await until_seen(OWN, TOPOLOGIES, "more", "ours")
            assert failures == []
        finally:
            for stop in stops.values():
                stop()
            await server.stop()

    run(story())
