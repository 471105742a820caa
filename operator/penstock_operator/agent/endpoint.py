"""The agent's HTTP endpoint: /livez, /healthz and /metrics, from what `NodeAgent.view` says.

/livez is about the agent alone. /healthz is 503 also while the store cannot be reached. Neither asks for
the API server: an agent without it works on the last Schedules, and a restart would not bring it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock_operator.agent.node_agent import AgentView
from penstock_operator.probes import http_endpoint

View = Callable[[], AgentView]

RESYNC_AGE_S_MAX = 30.0


def is_alive(view: AgentView, up_s: float) -> bool:
    """Whether turns are made, or the store is away, in which none can be."""
    if view.store is None:
        return True
    return (up_s if view.resync_age_s is None else view.resync_age_s) <= RESYNC_AGE_S_MAX


async def serve(view: View, up_s: Callable[[], float], port: int) -> web.AppRunner:
    """Start serving on all addresses; the runner's `cleanup` ends it. PermanentError: the port is taken."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentCollector(view))

    async def live(_: web.Request) -> web.Response:
        good = is_alive(view(), up_s())
        return web.json_response(_told(view()), status=200 if good else 503)

    async def health(_: web.Request) -> web.Response:
        now = view()
        good = is_alive(now, up_s()) and now.store is not None
        return web.json_response(_told(now), status=200 if good else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    routes = {"/livez": live, "/healthz": health, "/metrics": metrics}
    return await http_endpoint.serve(port, routes, "choose another by PENSTOCK_AGENT_PORT")


def _told(view: AgentView) -> dict[str, object]:
    return {
        "node": view.node,
        "store": "open" if view.store is not None else f"away: {view.store_fault}",
        "generation": view.store.generation if view.store else None,
        "resyncAgeSeconds": view.resync_age_s,
        "listAgeSeconds": view.listing_age_s,
        "schedules": len(view.schedules),
        "movesDue": view.moves_due,
        "threadFaults": dict(view.thread_faults),
        "lastThreadFault": view.last_fault,
    }


class AgentCollector(Collector):
    """What is not known is left out, never shown as zero."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        yield _gauge("penstock_agent_store_open", "1 while the store is open", float(view.store is not None))
        if view.store is not None:
            yield _gauge("penstock_agent_store_generation", "Starts of the store", view.store.generation)
            used, limit = view.memory.used_bytes, view.memory.limit_bytes
            yield _gauge("penstock_agent_store_memory_bytes", "Memory that the store uses", used)
            if limit:
                yield _gauge("penstock_agent_store_memory_limit_bytes", "Memory that it may use", limit)
        if view.volume is not None:
            size, free = view.volume.size_bytes, view.volume.free_bytes
            yield _gauge("penstock_agent_store_volume_bytes", "Size of the store's volume", size)
            yield _gauge("penstock_agent_store_volume_free_bytes", "What is free of it", free)
        if view.resync_age_s is not None:
            yield _gauge("penstock_agent_resync_age_seconds", "Since the last turn", view.resync_age_s)
        if view.listing_age_s is not None:
            yield _gauge(
                "penstock_agent_list_age_seconds", "Since the last complete list", view.listing_age_s
            )
        yield from _schedules(view)
        yield from _deliveries(view)
        yield from _memory(view)
        yield _gauge("penstock_agent_moves_due", "Shards that have to leave this store", view.moves_due)
        finished = CounterMetricFamily("penstock_agent_moves", "Moves that came to their end")
        finished.add_metric([], view.moves.finished)
        copied = CounterMetricFamily("penstock_agent_moved_bytes", "Bytes copied by moves")
        copied.add_metric([], view.moves.copied_bytes)
        faults = CounterMetricFamily(
            "penstock_agent_thread_faults", "Threads that a bug ended, and that began anew", labels=["thread"]
        )
        for thread, count in view.thread_faults.items():
            faults.add_metric([thread], count)
        yield from (finished, copied, faults)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


def _memory(view: AgentView) -> Iterator[Metric]:
    held = GaugeMetricFamily(
        "penstock_agent_held_bytes", "Memory of the store that a topology holds", labels=["topology_uid"]
    )
    quota = GaugeMetricFamily(
        "penstock_agent_quota_bytes", "Memory of the store that it may hold", labels=["topology_uid"]
    )
    for uid, held_bytes in view.held_bytes.items():
        held.add_metric([uid], held_bytes)
    for uid, quota_bytes in view.quota_bytes.items():
        quota.add_metric([uid], quota_bytes)
    yield from (held, quota)


def _schedules(view: AgentView) -> Iterator[Metric]:
    seen = GaugeMetricFamily("penstock_agent_schedule_version", "Newest version", labels=["schedule"])
    applied = GaugeMetricFamily(
        "penstock_agent_applied_version", "Version that the store works by", labels=["schedule"]
    )
    lost = GaugeMetricFamily(
        "penstock_agent_lost_shards", "Shards that this store has lost", labels=["schedule"]
    )
    for name, (version, reported) in view.schedules.items():
        seen.add_metric([name], version)
        if reported is not None:
            applied.add_metric([name], reported.version)
            lost.add_metric([name], reported.lost_shards)
    yield from (seen, applied, lost)


def _deliveries(view: AgentView) -> Iterator[Metric]:
    labels = ["topology_uid", "store"]
    entries = CounterMetricFamily("penstock_agent_delivered_entries", "Entries delivered", labels=labels)
    lag = GaugeMetricFamily(
        "penstock_agent_delivery_lag_seconds", "From commit to delivery, newest pass", labels=labels
    )
    stuck = GaugeMetricFamily("penstock_agent_stuck_pairs", "Pairs that have to wait", labels=labels)
    for uid, links in view.deliveries.items():
        for store, count in links.items():
            entries.add_metric([uid, store], count.entries)
            lag.add_metric([uid, store], count.lag_us / 1e6)
            stuck.add_metric([uid, store], count.stuck_pairs)
    yield from (entries, lag, stuck)
