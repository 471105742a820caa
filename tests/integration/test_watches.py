"""kopf on a real API server: what it brings into the mirror, and that it leaves no trace on objects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from backends.cluster_backends import KUBECONFIG, KubernetesBackend
from clocks.running import run
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import PODS, TOPOLOGIES, Kind, Object, name_of, uid_of
from penstock_operator.cluster.kubernetes_api.watches import Watches
from worlds import cluster_objects as objects

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(KUBECONFIG not in os.environ, reason=f"{KUBECONFIG} names no cluster"),
]


@pytest.fixture(scope="module")
def backend() -> Iterator[KubernetesBackend]:
    backend = KubernetesBackend()
    yield backend
    run(backend.remove())


def test_what_changes_in_the_namespace_comes_into_the_mirror_and_objects_stay_as_they_are(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", os.environ[KUBECONFIG])

    async def story() -> None:
        changes: asyncio.Queue[tuple[Kind, Object]] = asyncio.Queue()
        mirror = Mirror(lambda kind, thing: changes.put_nowait((kind, thing)))
        failures: list[str] = []

        async def told(kind: Kind, name: str) -> None:
            while True:
                changed, thing = await changes.get()
                if (changed, name_of(thing)) == (kind, name):
                    return

        async with backend.open() as cluster:
            before = await cluster.create(PODS, objects.pod("there-before"))
            assert isinstance(before, dict)
            watches = Watches(mirror, cluster.namespace, failures.append)
            watches.start()
            try:
                await told(PODS, "there-before")
                made = await cluster.create(TOPOLOGIES, objects.topology())
                assert isinstance(made, dict)
                await told(TOPOLOGIES, "words")
                await cluster.delete(PODS, "there-before", uid_of(before), 0)
                await told(PODS, "there-before")
                assert mirror.get(PODS, "there-before") is None
                now = await cluster.get(TOPOLOGIES, "words")
                assert now is not None
                assert "finalizers" not in now["metadata"]
                assert "annotations" not in now["metadata"]
                assert failures == []
            finally:
                watches.stop()

    run(story())
