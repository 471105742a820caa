"""The operator's HTTP endpoint: /healthz, /readyz and /metrics, in every replica.

kopf has one of its own with probes, but only where kopf runs: in the leader. A standby must answer too.
/healthz fails when the loops no longer come to the end of their turns, or the Lease is no longer tried;
/readyz says that the API server was reached once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.probes import http_endpoint


@dataclass(frozen=True, slots=True)
class Health:
    """`fault` is a sentence, "" while all is well. `role` is "leader" or "standby"."""

    role: str
    term: int | None
    is_ready: bool
    fault: str


async def serve(port: int, health: Callable[[], Health], metrics: OperatorMetrics) -> web.AppRunner:
    """Serve on every address until `cleanup` of what is returned. PermanentError: the port is taken."""

    async def healthz(_: web.Request) -> web.Response:
        now = health()
        return _told(now, is_good=not now.fault)

    async def readyz(_: web.Request) -> web.Response:
        now = health()
        return _told(now, is_good=now.is_ready)

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    routes = {"/healthz": healthz, "/readyz": readyz, "/metrics": figures}
    return await http_endpoint.serve(port, routes, "set metricsPorts.operator to a free one")


def _told(now: Health, *, is_good: bool) -> web.Response:
    body = {"role": now.role, "term": now.term, "ready": now.is_ready, "fault": now.fault}
    return web.json_response(body, status=200 if is_good else 503)
