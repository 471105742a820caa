"""The Kubernetes API behind the port `kubernetes_api.port`, by `kubernetes_client`: JSON in, JSON out.

What an answer means is `_outcome` and `error_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock_operator.cluster.kubernetes_api.port import (
    FIELD_MANAGER,
    PODS,
    ClusterUnreachable,
    Kind,
    KindUnknown,
    Listing,
    NotAllowed,
    Object,
    ObjectInvalid,
    Refusal,
    Why,
    name_of,
)
from penstock_operator.kubernetes_client.json_requests import APPLY, JSON, KubernetesJson
from penstock_operator.kubernetes_client.login import api_client

_PAGE = 100
"""Of larger ones each is taken apart for so long that nothing else is done in time."""
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def connect(
    namespace: str, kubeconfig: str | None = None, context: str | None = None
) -> KubernetesCluster:
    """The cluster that this pod is in, or that of the kubeconfig file. PermanentError: neither is there."""
    client = await api_client(kubeconfig, context)
    return KubernetesCluster(KubernetesJson(client, ClusterUnreachable), namespace)


def pod_namespace() -> str | None:
    """The namespace of the pod that this process runs in; None outside of a cluster."""
    try:
        return _SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


class KubernetesCluster:
    """Keeps the port `ClusterApi`. Belongs to one event loop."""

    def __init__(self, api: KubernetesJson, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    @property
    def namespace(self) -> str:
        return self._namespace

    def within(self, namespace: str) -> KubernetesCluster:
        return KubernetesCluster(self._api, namespace)

    async def close(self) -> None:
        await self._api.close()

    async def list(
        self,
        kind: Kind,
        labels: Mapping[str, str] = {},
        *,
        everywhere: bool = False,
        keep: Callable[[Object], Object] | None = None,
        between: Callable[[float], Awaitable[None]] | None = None,
    ) -> Listing:
        items: list[Object] = []
        query = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        version = ""
        path = f"{kind.root}/{kind.plural}" if everywhere else self._path(kind)
        clock_s = asyncio.get_running_loop().time
        while True:
            began_s = clock_s()
            status, answer = await self._send("GET", path, query=query)
            if status != 200:
                raise error_of("list", kind, status, answer)
            # Items of a list come without what every one of them shares.
            page = ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer["items"])
            items.extend(page if keep is None else map(keep, page))
            version = version or str(answer["metadata"]["resourceVersion"])
            following = answer["metadata"].get("continue")
            if not following:
                return Listing(tuple(items), version)
            query["continue"] = following
            if between is not None:
                await between(clock_s() - began_s)

    async def get(self, kind: Kind, name: str) -> Object | None:
        status, answer = await self._send("GET", self._path(kind, name))
        if status == 404:
            return None
        if status != 200:
            raise error_of("get", kind, status, answer)
        return answer

    async def create(self, kind: Kind, manifest: Object) -> Object | Refusal:
        query = {"fieldManager": FIELD_MANAGER}
        status, answer = await self._send("POST", self._path(kind), manifest, query=query)
        return _outcome("create", kind, status, answer, conflict=Why.EXISTS)

    async def replace(self, kind: Kind, changed: Object) -> Object | Refusal:
        query = {"fieldManager": FIELD_MANAGER}
        status, answer = await self._send("PUT", self._path(kind, name_of(changed)), changed, query=query)
        return _outcome("update", kind, status, answer, conflict=Why.CHANGED)

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        status, answer = await self._send("PATCH", self._path(kind, name_of(manifest)), manifest, APPLY)
        if status not in {200, 201}:
            raise error_of("patch", kind, status, answer)
        return answer

    async def apply_status(self, kind: Kind, manifest: Object) -> Object | Refusal:
        path = f"{self._path(kind, name_of(manifest))}/status"
        status, answer = await self._send("PATCH", path, manifest, APPLY)
        return _outcome("patch the status of", kind, status, answer, conflict=Why.CHANGED)

    async def delete(self, kind: Kind, name: str, uid: str, grace_s: int | None = None) -> Refusal | None:
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        status, answer = await self._send("DELETE", self._path(kind, name), options)
        outcome = _outcome("delete", kind, status, answer, conflict=Why.CHANGED)
        return outcome if isinstance(outcome, Refusal) else None

    async def resize_pod(
        self, name: str, uid: str, container: str, requests: Mapping[str, str], limits: Mapping[str, str]
    ) -> Object | Refusal:
        resources = {"requests": dict(requests), "limits": dict(limits)}
        patch: Object = {
            "metadata": {"uid": uid},
            "spec": {"containers": [{"name": container, "resources": resources}]},
        }
        path = f"{self._path(PODS, name)}/resize"
        query = {"fieldManager": FIELD_MANAGER}
        status, answer = await self._send("PATCH", path, patch, _STRATEGIC_MERGE, query=query)
        if status == 422 and any(cause.get("field") == "metadata.uid" for cause in _causes(answer)):
            return Refusal(Why.CHANGED, str(answer.get("message")))
        return _outcome("resize", PODS, status, answer, conflict=Why.CHANGED)

    def _path(self, kind: Kind, name: str = "") -> str:
        within = f"/namespaces/{self._namespace}" if kind.is_namespaced else ""
        return f"{kind.root}{within}/{kind.plural}" + (f"/{name}" if name else "")

    async def _send(
        self,
        verb: str,
        path: str,
        body: Object | None = None,
        content: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, Object]:
        parameters = dict(query or {})
        if content == APPLY:
            parameters |= {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._api.ask(verb, path, parameters, body, content)


def _outcome(verb: str, kind: Kind, status: int, answer: Object, conflict: Why) -> Object | Refusal:
    """The object, or the refusal that every writer must expect; all else is an error."""
    if status in {200, 201, 202}:
        return answer
    message = str(answer.get("message", ""))
    if status == 409:
        # "create" on a name that is there and "update" on a newer version answer with different reasons.
        return Refusal(conflict, message)
    if status == 404 and verb != "create":
        return Refusal(Why.GONE, message)
    raise error_of(verb, kind, status, answer)


def _causes(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (answer.get("details") or {}).get("causes") or ()


def error_of(verb: str, kind: Kind, status: int, answer: Mapping[str, Any]) -> PenstockError:
    """What a status that is no success means."""
    message = str(answer.get("message") or answer.get("reason") or f"status {status}")
    if status == 403:
        return NotAllowed(f"the Kubernetes API refuses to {verb} {kind.plural}: {message}")
    if status == 404:
        return KindUnknown(
            f"the cluster does not know {kind.plural} of {kind.api_version}, or their namespace:"
            f" install Penstock's CRDs ({message})"
        )
    if 400 <= status < 500 and status not in {401, 408, 409, 410, 429}:
        return ObjectInvalid(f"the Kubernetes API does not take this {kind.kind}: {message}")
    return ClusterUnreachable(f"the Kubernetes API cannot {verb} {kind.plural} now ({status}): {message}")
