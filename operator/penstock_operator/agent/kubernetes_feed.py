"""The feed over the API server: list, then watch from there; list again when in doubt.

In doubt means: the watch was told 410 or ended badly, a minute went by, or somebody asked. All namespaces
that are served are listed together; one that may not be read holds up no other, and what was known of it
stays. Neighbours: `schedule_feed` is the port, `memory_feed` the twin.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from penstock.errors import PermanentError
from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.applied_status import applied_entry, field_manager
from penstock_operator.agent.schedule_feed import (
    RELIST_S,
    FeedAway,
    Object,
    ScheduleCache,
    SeenSchedule,
    Snapshot,
)
from penstock_operator.kubernetes_client.json_requests import APPLY, CONNECT_TIMEOUT_S, KubernetesJson, parsed
from penstock_operator.kubernetes_client.login import api_client

_LOG = logging.getLogger(__name__)

API_VERSION = "penstock.dev/v1alpha1"
_PAGE = 500
_CONFLICTS_MAX = 20
_AWAY_S_MIN = 0.2
_AWAY_S_MAX = 5.0
_EVENT_BYTES_MAX = 8 << 20
"""An event is one line; an object has at most 1.5 MB."""


class _ListAgain(Exception):
    """What the watch tells cannot be relied on any more."""


async def connect(
    namespace: str, kubeconfig: str | None = None, served: Callable[[], Sequence[str]] = tuple
) -> KubernetesFeed:
    """The cluster that this pod is in, or the one of the kubeconfig file; `served` says which further
    namespaces there are now. PermanentError: there is no such cluster."""
    return KubernetesFeed(await api_client(kubeconfig), namespace, served=served)


class KubernetesFeed:
    """Keeps the port `ScheduleFeed`. Belongs to one event loop."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        relist_s: float = RELIST_S,
        served: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._api = KubernetesJson(client, FeedAway)
        self._namespace = namespace
        self._served = served
        self._relist_s = relist_s
        self._cache = ScheduleCache(namespace)
        self._list_now = asyncio.Event()
        self._refused: dict[str, str] = {}
        """Further namespace -> why it cannot be read."""

    async def close(self) -> None:
        await self._api.close()

    def list_again(self) -> None:
        self._list_now.set()

    async def run(self, changed: Callable[[Snapshot], None]) -> None:
        pause_s = _AWAY_S_MIN
        while True:
            try:
                somebody_is_missed = self._list_now.is_set()
                self._list_now.clear()
                versions = await self._list(changed, with_topologies=somebody_is_missed)
                pause_s = _AWAY_S_MIN
                await self._watch_all(versions, changed)
            except (FeedAway, PermanentError) as error:
                # missing rights or CRDs too: the topologies that run must not end with the agent
                _LOG.warning("%s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _AWAY_S_MAX)
            except _ListAgain as why:
                _LOG.debug("lists all Schedules again: %s", why)

    async def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        namespace, _, name = seen.name.rpartition("/")
        path = f"{_path(namespace or self._namespace, 'schedules')}/{name}"
        query = {"fieldManager": field_manager(applied.store), "force": "true"}
        for _ in range(_CONFLICTS_MAX):
            # A status takes no uid as a condition. An entry in another object of the same name would say of
            # its shards that they were born; so it is written on the very version whose uid was seen.
            status, there = await self._api.ask("GET", path)
            if status == 404 or (status == 200 and there["metadata"]["uid"] != seen.uid):
                return
            if status != 200:
                raise _error("read", status, there)
            body = {
                "apiVersion": API_VERSION,
                "kind": "Schedule",
                "metadata": {"name": name, "resourceVersion": there["metadata"]["resourceVersion"]},
                "status": {"applied": [applied_entry(applied)]},
            }
            status, answer = await self._api.ask("PATCH", f"{path}/status", query, body, APPLY)
            if status in {200, 201, 404}:
                return
            if status != 409:
                raise _error("report to", status, answer)
        raise FeedAway(f"Schedule {seen.name} changes too often to write into it")

    async def _list(self, changed: Callable[[Snapshot], None], *, with_topologies: bool) -> dict[str, str]:
        """Namespace -> the resourceVersion of its list, of those that may be read."""
        items, version = await self._all(_path(self._namespace, "schedules"))
        versions = {self._namespace: version}
        refused: dict[str, str] = {}
        for namespace in dict.fromkeys(self._served()):
            if namespace == self._namespace:
                continue
            try:
                found, versions[namespace] = await self._all(_path(namespace, "schedules"))
            except PermanentError as error:
                refused[namespace] = str(error)
                if namespace not in self._refused:
                    _LOG.warning("namespace %s: %s", namespace, error)
                continue
            items += found
        self._refused = refused
        topologies: list[Object] | None = [] if with_topologies else None
        if topologies is not None:
            try:
                for namespace in versions:
                    topologies += (await self._all(_path(namespace, "topologies")))[0]
            except (FeedAway, PermanentError) as error:
                # nobody is taken for gone then; what there is to do goes on
                _LOG.warning("%s", error)
                topologies = None
        changed(self._cache.listed(items, topologies, versions.keys() - {self._namespace}, refused))
        return versions

    async def _all(self, path: str) -> tuple[list[Object], str]:
        """All objects, and the resourceVersion of that moment."""
        items: list[Object] = []
        query = {"limit": str(_PAGE)}
        version = ""
        while True:
            status, answer = await self._api.ask("GET", path, query)
            if status != 200:
                raise _error("list", status, answer)
            items.extend(answer["items"])
            version = version or str(answer["metadata"]["resourceVersion"])
            following = answer["metadata"].get("continue")
            if not following:
                return items, version
            query["continue"] = following

    async def _watch_all(self, versions: Mapping[str, str], changed: Callable[[Snapshot], None]) -> None:
        """Follow the changes of all namespaces, until one of them has to be listed again."""
        watches = [
            asyncio.ensure_future(self._watch(namespace, version, changed))
            for namespace, version in versions.items()
        ]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            for watch in done:
                watch.result()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, namespace: str, version: str, changed: Callable[[Snapshot], None]) -> None:
        """As `_follow`; a further namespace that may not be watched is listed in its time."""
        try:
            await self._follow(namespace, version, changed)
        except PermanentError as error:
            if namespace == self._namespace:
                raise
            _LOG.warning("namespace %s: %s", namespace, error)
            await asyncio.sleep(self._relist_s)
            raise _ListAgain(f"namespace {namespace} could not be watched") from error

    async def _follow(self, namespace: str, version: str, changed: Callable[[Snapshot], None]) -> None:
        """Follow the changes from `version` on. Raises _ListAgain when it is time, FeedAway."""
        until_s = time.monotonic() + self._relist_s
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(self._relist_s) + 1),
        }
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        response = await self._api.open("GET", _path(namespace, "schedules"), timeout, query)
        try:
            if response.status != 200:
                raise _error("watch", response.status, parsed(await response.read()))
            lines = _lines(response.content)
            asked = asyncio.ensure_future(self._list_now.wait())
            following = asyncio.ensure_future(anext(lines))
            try:
                while True:
                    left_s = until_s - time.monotonic()
                    done, _ = await asyncio.wait(
                        {asked, following}, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
                    )
                    if following not in done:
                        raise _ListAgain("asked for" if asked in done else "time has passed")
                    self._take(parsed(following.result()), changed)
                    following = asyncio.ensure_future(anext(lines))
            finally:
                asked.cancel()
                following.cancel()
                await asyncio.gather(asked, following, return_exceptions=True)
        except StopAsyncIteration:
            raise _ListAgain("the watch has ended") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _ListAgain(f"the watch broke: {error}") from error
        finally:
            response.close()

    def _take(self, event: Mapping[str, Any], changed: Callable[[Snapshot], None]) -> None:
        item = event.get("object") or {}
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                changed(self._cache.changed(item))
            case "DELETED":
                changed(self._cache.deleted(item))
            case "BOOKMARK":
                pass
            case _:
                raise _ListAgain(f"the watch was told {item.get('code')}: {item.get('message')}")


def _path(namespace: str, plural: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}"


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The stream line by line; aiohttp's own reader refuses lines of more than 64 KiB."""
    rest = b""
    async for data in stream.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _EVENT_BYTES_MAX:
            raise aiohttp.ClientPayloadError("an event is too large")


def _error(verb: str, status: int, answer: Mapping[str, Any]) -> FeedAway | PermanentError:
    message = str(answer.get("message") or answer.get("reason") or f"status {status}")
    if status == 403:
        return PermanentError(f"the service account must not {verb} schedules: {message}")
    if status == 404:
        return PermanentError(
            f"the cluster does not know schedules of {API_VERSION}, or their namespace: install Penstock's"
            f" CRDs ({message})"
        )
    if status in {400, 422}:
        return PermanentError(f"the Kubernetes API does not take what the agent says: {message}")
    return FeedAway(f"the Kubernetes API cannot {verb} schedules now ({status}): {message}")
