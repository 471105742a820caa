"""kopf, for what it is used for here: to keep watches open and hand on what they bring.

Its handlers put objects into the mirror and decide nothing; reconciling is level-based and our own
(`reconcile`). Only event handlers are registered: they write neither finalizers nor annotations. kopf runs in
a thread with an event loop of its own: it cancels all tasks that were begun after it when it ends, takes over
signals, and must not hold up the renewal of the Lease. Decision record 0010.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import Kind, Object
from penstock_operator.cluster.kubernetes_api.stateless_kopf import NoEssence, NoProgress

_LOG = logging.getLogger(__name__)

_GROUP_OF_CORE = ""
_PAGE = 500
"""Objects of one answer when kopf lists: while it is decoded no other thread runs."""

Watch = Callable[[Mirror, str, Callable[[str], None]], Callable[[], None]]
"""Begins to feed a mirror with what is in a namespace; answers how to stop it. The last argument is told of a
failure, on the event loop."""


def watch_by_kopf(mirror: Mirror, namespace: str, failed: Callable[[str], None]) -> Callable[[], None]:
    """What feeds a mirror in a cluster. Keeps the form `Watch`."""
    watches = Watches(mirror, namespace, failed)
    watches.start()
    return watches.stop


class Watches:
    """Feeds `mirror`, which belongs to the running event loop, from one namespace until stopped. `failed` is
    called there when kopf ends by itself."""

    def __init__(self, mirror: Mirror, namespace: str, failed: Callable[[str], None]) -> None:
        self._mirror = mirror
        self._namespace = namespace
        self._failed = failed
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask kopf to end; its thread is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        ending = "it ended"
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry(),
                    settings=_settings(),
                    standalone=True,
                    namespaces=[self._namespace],
                    stop_flag=self._stop,
                )
            )
        except Exception as error:  # noqa: BLE001 - the thread's end: whatever it was, the process must know
            ending = f"it ended by {type(error).__name__}: {error}"
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._failed, ending)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="service-account")(_login)
        for kind in self._mirror.kinds:
            group, _, version = kind.api_version.rpartition("/")
            kopf.on.event(group or _GROUP_OF_CORE, version, kind.plural, registry=registry, id=kind.plural)(
                self._handler(kind)
            )
        return registry

    def _handler(self, kind: Kind) -> Callable[..., Any]:
        async def hand_on(event: Mapping[str, Any], **_: Any) -> None:
            thing = dict(event["object"])
            self._loop.call_soon_threadsafe(self._take, kind, event["type"], thing, time.monotonic())

        return hand_on

    def _take(self, kind: Kind, change: str | None, thing: Object, arrived_s: float) -> None:
        self._mirror.arrived_s = arrived_s
        if change == "DELETED":
            self._mirror.remove(kind, thing)
        else:
            self._mirror.put(kind, thing)
        self._mirror.arrived_s = None


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    """The pod's service account; outside of a cluster the file that KUBECONFIG names."""
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # events are ours (`events`)
    settings.posting.loggers = False
    settings.scanning.disabled = True  # the CRDs are there before kopf begins: no right to watch them
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 600
    settings.watching.connect_timeout = 5
    settings.watching.chunk_size = _PAGE
    settings.execution.default_backoff = 5
    settings.background.cancellation_polling = 1
    settings.process.ultimate_exiting_timeout = None
    settings.persistence.diffbase_storage = NoEssence()
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.finalizer = "penstock.dev/unused"
    return settings
