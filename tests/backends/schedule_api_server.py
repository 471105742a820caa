"""A stand-in for the API server's part that node agents use: Schedules, lists, watches, applied status.

Real HTTP on loopback, in a thread, so that agents run as the processes that they are. It can be put out of
reach, forget its history (410) and break its watches. `tests/contract/test_schedule_feed.py` also runs on a
real API server, which keeps this one honest.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

T = TypeVar("T")

_PATH = "/apis/penstock.dev/v1alpha1/namespaces/{namespace}/schedules"
_TOPOLOGIES_PATH = "/apis/penstock.dev/v1alpha1/namespaces/{namespace}/topologies"

Object = dict[str, Any]


class ScheduleApiServer:
    """Schedules, by name; of another namespace than "default" by "NAMESPACE/NAME". Everything but `start` and
    `stop` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._version = 100
        self._events: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Event()
        self._managed: dict[tuple[str, str], list[str]] = {}
        self._made = 0
        self.objects: dict[str, Object] = {}
        self.topologies: list[Object] = []
        """Topology objects that are there."""
        self.refuse_reports = False
        self.closed: set[str] = set()
        """Namespaces that may not be read."""
        self.lists = 0
        self.watches = 0
        self.reports: list[tuple[str, str, Object]] = []
        """(object, field manager, entry) in order."""

    def start(self) -> None:
        self._thread.start()
        self.come_back()

    def stop(self) -> None:
        self.go_away()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def kubeconfig(self, folder: Path) -> Path:
        """A file that leads here."""
        file = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(yaml.safe_dump(config))
        return file

    # --- what happens

    def go_away(self) -> None:
        """No connection any more."""
        self._do(self._close())

    def come_back(self) -> None:
        self._do(self._open())

    def put(self, name: str, spec: Object, labels: dict[str, str] | None = None) -> None:
        """Create an object, or replace its spec."""

        def put() -> None:
            old = self.objects.get(name)
            item = copy.deepcopy(old) if old else self._new(name, labels or {})
            item["spec"] = spec
            self._store("MODIFIED" if old else "ADDED", item)

        self._call(put)

    def remove(self, name: str) -> None:
        def remove() -> None:
            item = self.objects.pop(name)
            self._tell("DELETED", item)

        self._call(remove)

    def forget_history(self) -> None:
        """Watches from an older version are told 410."""
        self._call(self._events.clear)

    def applied(self, name: str) -> dict[str, Object]:
        """Node -> entry of the object's status."""
        status = self._call(lambda: copy.deepcopy(self.objects[name].get("status") or {}))
        return {entry["node"]: entry for entry in status.get("applied", ())}

    # --- on the loop

    def _do(self, story: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(story, self._loop).result(10)

    def _call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self._do(called())

    async def _open(self) -> None:
        app = web.Application()
        app.router.add_get(_PATH, self._get)
        app.router.add_get(_PATH + "/{name}", self._get_one)
        app.router.add_get(_TOPOLOGIES_PATH, self._get_topologies)
        app.router.add_patch(_PATH + "/{name}/status", self._patch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            self._wake_watches()
            await runner.cleanup()

    def _new(self, name: str, labels: dict[str, str]) -> Object:
        self._made += 1
        namespace, _, own_name = name.rpartition("/")
        metadata = {
            "name": own_name,
            "namespace": namespace or "default",
            "uid": f"object-{self._made}",
            "labels": labels,
        }
        return {"metadata": metadata, "spec": {}}

    def _store(self, kind: str, item: Object) -> None:
        self.objects[_key(item["metadata"]["namespace"], item["metadata"]["name"])] = item
        self._tell(kind, item)

    def _tell(self, kind: str, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, copy.deepcopy(item)))
        self._wake_watches()

    def _wake_watches(self) -> None:
        """Those that wait now. An event that stayed set would keep a later watch from ever waiting, and with
        it the loop from anything else."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["namespace"] in self.closed:
            return web.json_response({"message": "forbidden"}, status=403)
        if request.query.get("watch"):
            return await self._watch(request)
        self.lists += 1
        items = [item for item in self.objects.values() if _is_asked(request, item)]
        first = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "500"))
        metadata = {"resourceVersion": str(self._version)}
        if first + limit < len(items):
            metadata["continue"] = str(first + limit)
        return web.json_response({"metadata": metadata, "items": items[first : first + limit]})

    async def _get_topologies(self, request: web.Request) -> web.Response:
        metadata = {"resourceVersion": str(self._version)}
        items = [item for item in self.topologies if _is_asked(request, item)]
        return web.json_response({"metadata": metadata, "items": items})

    async def _get_one(self, request: web.Request) -> web.Response:
        item = self.objects.get(_key(request.match_info["namespace"], request.match_info["name"]))
        if item is None:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response(item)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self._version and (not self._events or self._events[0][0] > since + 1):
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
            await response.write(json.dumps(gone).encode() + b"\n")
            return response
        runner = self._runner
        while self._runner is runner:
            changed = self._changed
            for version, kind, item in self._events:
                if version > since:
                    since = version
                    if not _is_asked(request, item):
                        continue
                    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
            await changed.wait()
        return response

    async def _patch(self, request: web.Request) -> web.Response:
        """Server-side apply of `status.applied`, by node."""
        name = _key(request.match_info["namespace"], request.match_info["name"])
        manager = request.query["fieldManager"]
        if self.refuse_reports:
            return web.json_response({"message": "not now"}, status=503)
        body = json.loads(await request.read())
        item = self.objects.get(name)
        if item is None:
            return web.json_response({"message": "not found"}, status=404)
        if body["metadata"].get("resourceVersion", "") not in {"", item["metadata"]["resourceVersion"]}:
            return web.json_response({"message": "the object has been modified"}, status=409)
        item = copy.deepcopy(item)
        entries = {entry["node"]: entry for entry in (item.get("status") or {}).get("applied", ())}
        for node in self._managed.get((name, manager), ()):
            entries.pop(node, None)
        for entry in body["status"]["applied"]:
            entries[entry["node"]] = entry
            self.reports.append((name, manager, entry))
        self._managed[name, manager] = [entry["node"] for entry in body["status"]["applied"]]
        item["status"] = {"applied": list(entries.values())}
        self._store("MODIFIED", item)
        return web.json_response(item)


def _key(namespace: str, name: str) -> str:
    return name if namespace == "default" else f"{namespace}/{name}"


def _is_asked(request: web.Request, item: Object) -> bool:
    """Whether it is of the namespace that a request is about."""
    return bool(item["metadata"].get("namespace", "default") == request.match_info["namespace"])
