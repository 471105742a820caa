"""The adapters of the cluster's port, as the contract suite gets at them.

The twin, the operator's client on the twin over HTTP, and the client on a real API server.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from kubernetes.aio import config as kubernetes_config  # noqa: F401 - fails here when it is not installed

from backends.cluster_api_server import ClusterApiServer
from clocks.eventually import eventually_awaited
from penstock.api.crds import crd
from penstock_operator.cluster.kubernetes_api.client import connect
from penstock_operator.cluster.kubernetes_api.port import ClusterApi, Kind, uid_of
from penstock_simulation.twins.memory_cluster import MemoryCluster

KUBECONFIG = "PENSTOCK_TEST_KUBECONFIG"

_NAMESPACES = Kind("v1", "Namespace", "namespaces", is_namespaced=False)
_CRDS = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", is_namespaced=False
)


class ClusterBackend(Protocol):
    """Opens an empty namespace of a cluster."""

    def open(self) -> AbstractAsyncContextManager[ClusterApi]: ...


class MemoryClusterBackend:
    """The twin."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClusterApi]:
        yield MemoryCluster(clock_s=time.time)


class ServedClusterBackend:
    """The operator's own client, and the twin over HTTP."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClusterApi]:
        twin = MemoryCluster(clock_s=time.time)
        server = ClusterApiServer(twin)
        await server.start()
        with TemporaryDirectory() as folder:
            cluster = await connect(twin.namespace, str(server.kubeconfig(Path(folder))))
        try:
            yield cluster
        finally:
            await cluster.close()
            await server.stop()


class KubernetesBackend:
    """A cluster that somebody set up; a namespace for each test, removed after it. CRDs that were not there
    are put in, and taken out by `remove`."""

    def __init__(self) -> None:
        self._kubeconfig = os.environ[KUBECONFIG]
        self._installed: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClusterApi]:
        name = f"penstock-contract-{uuid.uuid4().hex[:8]}"
        cluster = await connect(name, self._kubeconfig)
        try:
            await self._install(cluster)
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            made = await cluster.create(_NAMESPACES, manifest)
            assert isinstance(made, dict)
            try:
                yield cluster
            finally:
                await cluster.delete(_NAMESPACES, name, uid_of(made))
        finally:
            await cluster.close()

    async def _install(self, cluster: ClusterApi) -> None:
        for kind in ("Topology", "Schedule"):
            name = crd(kind)["metadata"]["name"]
            if await cluster.get(_CRDS, name) is None:
                await cluster.apply(_CRDS, crd(kind))
                self._installed.append(name)
                await eventually_awaited(partial(_is_served, cluster, name))

    async def remove(self) -> None:
        """Take out the CRDs that were put in."""
        cluster = await connect("default", self._kubeconfig)
        try:
            for name in self._installed:
                there = await cluster.get(_CRDS, name)
                if there is not None:
                    await cluster.delete(_CRDS, name, uid_of(there))
        finally:
            await cluster.close()


async def _is_served(cluster: ClusterApi, name: str) -> bool:
    conditions = ((await cluster.get(_CRDS, name)) or {}).get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
