"""The twin of the Kubernetes API (`memory_cluster`) over real HTTP on loopback, for processes that are to be
as they are: the operator with its own client and kopf's watches.

A test may give a pod a container (`Container`): a process is then started in it as a real one, beside the
test.

Lists and watches are served from the text of each object, encoded once when it changes, so that a cluster of
some ten thousand objects costs the one who serves it little. The contract suite of the cluster's port runs on
it, which keeps it and the operator's client honest where no real API server is to be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import WSMsgType, web

from penstock.errors import PenstockError
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LATENCY_SLAS,
    LEASES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    ClusterApi,
    ClusterUnreachable,
    Kind,
    NotAllowed,
    Object,
    ObjectInvalid,
    Refusal,
    Why,
)
from penstock_simulation.twins.memory_cluster import MemoryCluster

KINDS = (
    TOPOLOGIES, LATENCY_SLAS, SCHEDULES, PODS, NODES, CONFIG_MAPS, STATEFUL_SETS, VOLUME_CLAIMS,
    DISRUPTION_BUDGETS, NETWORK_POLICIES, LEASES, EVENTS, SECRETS,
)  # fmt: skip
_NAMED_ONLY = (
    Kind("v1", "Namespace", "namespaces", is_namespaced=False),
    Kind(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        is_namespaced=False,
    ),
)
"""kopf waits until it knows of these; nobody asks for one."""
_DISCOVERED = (*KINDS, *_NAMED_ONLY)
_HISTORY_MAX = 50_000
_STATUS = {ObjectInvalid: 422, NotAllowed: 403, ClusterUnreachable: 503}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Container:
    """What is to be had of a pod's container: the environment of its processes, what it wrote, and the status
    by which a process in it is refused."""

    environment: Mapping[str, str]
    log: str = ""
    refuses: int = 0


class ClusterApiServer:
    """Serves `cluster` until stopped. Belongs to one event loop, and so does the twin.

    Objects that were there before it was made are not in its lists.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._texts: dict[Kind, dict[tuple[str, str], bytes]] = {kind: {} for kind in KINDS}
        self._version = 0
        self._history: dict[Kind, deque[tuple[int, str, bytes]]] = {
            kind: deque(maxlen=_HISTORY_MAX) for kind in KINDS
        }
        self._watches: dict[Kind, set[_Watch]] = {kind: set() for kind in KINDS}
        self._rests: dict[str, list[bytes]] = {}
        self._numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None
        self._endings: set[asyncio.Task[None]] = set()
        self.containers: dict[tuple[str, str, str], Container] = {}
        """Of (namespace, pod, container)."""
        self.url = ""
        cluster.subscribe(self._changed)

    async def start(self) -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_get("/api", self._core_versions)
        app.router.add_get("/apis", self._groups)
        for version in sorted({kind.api_version for kind in _DISCOVERED}):
            root = next(kind.root for kind in _DISCOVERED if kind.api_version == version)
            app.router.add_get(root, self._resources(version))
        pod = f"{PODS.root}/namespaces/{{namespace}}/{PODS.plural}/{{name}}"
        app.router.add_get(f"{pod}/exec", self._exec)
        app.router.add_get(f"{pod}/log", self._log)
        for kind in KINDS:
            for path in _paths(kind):
                app.router.add_get(path, self._answered(kind, self._list))
                app.router.add_post(path, self._answered(kind, self._create))
                app.router.add_get(path + "/{name}", self._answered(kind, self._get))
                app.router.add_put(path + "/{name}", self._answered(kind, self._replace))
                app.router.add_patch(path + "/{name}", self._answered(kind, self._apply))
                app.router.add_patch(path + "/{name}/{part}", self._answered(kind, self._patch_part))
                app.router.add_delete(path + "/{name}", self._answered(kind, self._delete))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        for watch in itertools.chain(*self._watches.values()):
            watch.lines.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.gather(*self._endings, return_exceptions=True)

    def kubeconfig(self, folder: Path) -> Path:
        """A file that leads here."""
        file = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(yaml.safe_dump(config))
        return file

    # --- what changes

    def _changed(self, kind: Kind, change: str, thing: Object) -> None:
        text = json.dumps(thing).encode()
        key = (thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
        if change == "DELETED":
            self._texts[kind].pop(key, None)
        else:
            self._texts[kind][key] = text
        self._version = int(thing["metadata"]["resourceVersion"])
        line = b'{"type":"' + change.encode() + b'","object":' + text + b"}\n"
        self._history[kind].append((self._version, key[0], line))
        for watch in self._watches[kind]:
            if watch.namespace in {"", key[0]}:
                watch.lines.put_nowait(line)

    # --- what is asked

    async def _core_versions(self, _: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def _groups(self, _: web.Request) -> web.Response:
        versions: dict[str, list[str]] = {}
        for version in sorted({kind.api_version for kind in _DISCOVERED if "/" in kind.api_version}):
            versions.setdefault(version.split("/")[0], []).append(version)
        groups = []
        for name, all_ in versions.items():
            named = [{"groupVersion": one, "version": one.split("/")[1]} for one in all_]
            groups.append({"name": name, "versions": named, "preferredVersion": named[0]})
        return web.json_response({"kind": "APIGroupList", "groups": groups})

    def _resources(self, version: str) -> Handler:
        async def resources(_: web.Request) -> web.Response:
            found = [
                {
                    "name": kind.plural,
                    "singularName": kind.kind.lower(),
                    "kind": kind.kind,
                    "namespaced": kind.is_namespaced,
                    "verbs": _VERBS,
                }
                for kind in _DISCOVERED
                if kind.api_version == version
            ]
            return web.json_response({"kind": "APIResourceList", "groupVersion": version, "resources": found})

        return resources

    def _answered(
        self, kind: Kind, handler: Callable[[Kind, web.Request], Awaitable[web.StreamResponse]]
    ) -> Handler:
        async def answered(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(kind, request)
            except PenstockError as error:
                return _failed(_STATUS.get(type(error), 500), str(error))

        return answered

    async def _list(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._watch(kind, request)
        if self._cluster.is_away:
            raise ClusterUnreachable("the Kubernetes API does not answer: it is away")
        rest = self._rests.pop(request.query.get("continue", ""), None)
        if rest is None:
            namespace = request.match_info.get("namespace", "")
            held = sorted(self._texts[kind].items())
            rest = [text for (of, _), text in held if namespace in {"", of}]
            rest = _selected(rest, request.query.get("labelSelector", ""))
        limit = int(request.query.get("limit", len(rest) or 1))
        page, rest = rest[:limit], rest[limit:]
        metadata: dict[str, str] = {"resourceVersion": str(max(self._version, 1))}
        if rest:
            token = metadata["continue"] = f"rest-{next(self._numbers)}"
            self._rests[token] = rest
        body = b'{"metadata":' + json.dumps(metadata).encode() + b',"items":[' + b",".join(page) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        namespace = request.match_info.get("namespace", "")
        since = int(request.query.get("resourceVersion") or 0)
        watch = _Watch(namespace)
        # Between these two nothing is awaited: no change is missed or told twice.
        for version, of, line in self._history[kind]:
            if version > since and namespace in {"", of}:
                watch.lines.put_nowait(line)
        self._watches[kind].add(watch)
        try:
            with contextlib.suppress(ConnectionResetError):  # who watched has gone
                while (line_or_end := await watch.lines.get()) is not None:
                    await response.write(line_or_end)
        finally:
            self._watches[kind].discard(watch)
        return response

    def _of(self, request: web.Request) -> ClusterApi:
        """The twin, as the request's path sees it."""
        return self._cluster.within(request.match_info.get("namespace", self._cluster.namespace))

    async def _get(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        found = await self._of(request).get(kind, request.match_info["name"])
        if found is None:
            return _failed(404, "not found")
        return web.json_response(found)

    async def _create(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        return _answer(await self._of(request).create(kind, await request.json()), 201)

    async def _replace(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        return _answer(await self._of(request).replace(kind, await request.json()))

    async def _apply(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        return _answer(await self._of(request).apply(kind, json.loads(await request.read())))

    async def _patch_part(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if request.match_info["part"] == "status":
            return _answer(await self._of(request).apply_status(kind, body))
        (container,) = body["spec"]["containers"]
        resources, uid = container["resources"], body["metadata"]["uid"]
        answer = await self._of(request).resize_pod(
            request.match_info["name"], uid, container["name"], resources["requests"], resources["limits"]
        )
        if isinstance(answer, Refusal) and answer.why is Why.CHANGED:
            return _failed(422, answer.message, {"causes": [{"field": "metadata.uid"}]})
        return _answer(answer)

    def _container(self, request: web.Request) -> Container | None:
        place = request.match_info
        return self.containers.get((place["namespace"], place["name"], request.query["container"]))

    async def _log(self, request: web.Request) -> web.Response:
        container = self._container(request)
        if container is None:
            return _failed(404, "not found")
        lines = container.log.splitlines(keepends=True)[-int(request.query["tailLines"]) :]
        return web.Response(text="".join(lines)[: int(request.query["limitBytes"])])

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        container = self._container(request)
        if container is None:
            return _failed(404, "not found")
        if container.refuses:
            return _failed(container.refuses, "refused")
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        command = request.query.getall("command")
        if command[0] == "python":
            command[0] = sys.executable
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(container.environment),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = [
            asyncio.create_task(_passed_on(stream, socket, number))
            for number, stream in ((1, process.stdout), (2, process.stderr))
        ]
        ending = asyncio.create_task(_told_end(process, outputs, socket))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                    process.stdin.write(message.data[1:])
            process.stdin.close()
            await asyncio.shield(ending)
        finally:
            if process.returncode is None:
                process.kill()
        return socket

    async def _delete(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        options = await request.json()
        uid, grace_s = options["preconditions"]["uid"], options.get("gracePeriodSeconds")
        refusal = await self._of(request).delete(kind, request.match_info["name"], uid, grace_s)
        return _answer(refusal or {"kind": "Status", "status": "Success"})


async def _passed_on(stream: asyncio.StreamReader, socket: web.WebSocketResponse, number: int) -> None:
    while data := await stream.read(1 << 15):
        if not socket.closed:
            await socket.send_bytes(bytes([number]) + data)


async def _told_end(
    process: asyncio.subprocess.Process, outputs: list[asyncio.Task[None]], socket: web.WebSocketResponse
) -> None:
    await asyncio.gather(*outputs)
    code = await process.wait()
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        status["message"] = f"command terminated with non-zero exit code: exit status {code}"
    if not socket.closed:
        await socket.send_bytes(b"\3" + json.dumps(status).encode())
        await socket.close()


class _Watch:
    """One that follows: `namespace` "" for all of them."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()


def _paths(kind: Kind) -> list[str]:
    """Where a kind is found: in its namespace, and in all."""
    everywhere = f"{kind.root}/{kind.plural}"
    if not kind.is_namespaced:
        return [everywhere]
    return [f"{kind.root}/namespaces/{{namespace}}/{kind.plural}", everywhere]


def _selected(texts: list[bytes], selector: str) -> list[bytes]:
    if not selector:
        return texts
    wanted = dict(part.split("=", 1) for part in selector.split(","))
    return [
        text for text in texts if wanted.items() <= (json.loads(text)["metadata"].get("labels") or {}).items()
    ]


def _answer(answer: Object | Refusal, status: int = 200) -> web.Response:
    if isinstance(answer, Refusal):
        return _failed(404 if answer.why is Why.GONE else 409, answer.message)
    return web.json_response(answer, status=status)


def _failed(status: int, message: str, details: dict[str, Any] | None = None) -> web.Response:
    return web.json_response({"kind": "Status", "message": message, "details": details or {}}, status=status)
