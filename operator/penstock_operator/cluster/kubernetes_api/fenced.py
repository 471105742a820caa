"""The cluster's port for a leader: every write asks first whether this process still leads.

Reads go through. Neighbours: `lease` knows, `kubernetes_api.port` is the port on both sides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.port import ClusterApi, Kind, Listing, Object, Refusal


class FencedCluster:
    """Keeps the port `ClusterApi`. Writes raise LeaseLost when `may_act` says no."""

    def __init__(self, cluster: ClusterApi, may_act: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._may_act = may_act

    @property
    def namespace(self) -> str:
        return self._cluster.namespace

    def within(self, namespace: str) -> FencedCluster:
        return FencedCluster(self._cluster.within(namespace), self._may_act)

    async def list(
        self,
        kind: Kind,
        labels: Mapping[str, str] = {},
        *,
        everywhere: bool = False,
        keep: Callable[[Object], Object] | None = None,
        between: Callable[[float], Awaitable[None]] | None = None,
    ) -> Listing:
        return await self._cluster.list(kind, labels, everywhere=everywhere, keep=keep, between=between)

    async def get(self, kind: Kind, name: str) -> Object | None:
        return await self._cluster.get(kind, name)

    async def create(self, kind: Kind, manifest: Object) -> Object | Refusal:
        self._check()
        return await self._cluster.create(kind, manifest)

    async def replace(self, kind: Kind, changed: Object) -> Object | Refusal:
        self._check()
        return await self._cluster.replace(kind, changed)

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        self._check()
        return await self._cluster.apply(kind, manifest)

    async def apply_status(self, kind: Kind, manifest: Object) -> Object | Refusal:
        self._check()
        return await self._cluster.apply_status(kind, manifest)

    async def delete(self, kind: Kind, name: str, uid: str, grace_s: int | None = None) -> Refusal | None:
        self._check()
        return await self._cluster.delete(kind, name, uid, grace_s)

    async def resize_pod(
        self, name: str, uid: str, container: str, requests: Mapping[str, str], limits: Mapping[str, str]
    ) -> Object | Refusal:
        self._check()
        return await self._cluster.resize_pod(name, uid, container, requests, limits)

    async def close(self) -> None:
        await self._cluster.close()

    def _check(self) -> None:
        if not self._may_act():
            raise LeaseLost("this process leads no more; it writes nothing")
