"""Prometheus metrics on the main process: this worker's rows of the store, in the exposition's form; and
the answers to kubelet's probes, `/healthz` and `/ready` (`vitals`), on the same port.

Counters are totals of the shards (they survive owners), latency is a gauge by quantile over the
last readings. A row that is missing is left out, never shown as zero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.errors import PermanentError
from penstock.metrics.latency import LatencyHistogram, merged
from penstock.metrics.rows import TaskRow, histogram_of
from penstock.store.port import ShardCounters
from penstock_worker.vitals import Verdict, Vitals

QUANTILES = (0.5, 0.99)
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """What the main process last read: its tasks' rows, and its shards' counters by operator."""

    tasks: tuple[TaskRow, ...]
    shards: Mapping[str, Sequence[ShardCounters]]


class WorkerCollector(Collector):
    """Serves the last `WorkerReading`; the main process replaces it once a second."""

    def __init__(self, topology: str, worker: str) -> None:
        self._labels = {"topology": topology, "worker": worker}
        self.reading: WorkerReading | None = None

    def collect(self) -> Iterator[Metric]:
        reading = self.reading
        if reading is None:
            return
        names = [*self._labels, "operator"]
        fixed = list(self._labels.values())
        yield from _shard_families(names, fixed, reading.shards)
        latency = GaugeMetricFamily(
            "penstock_latency_seconds",
            "From source timestamp to here, over the life of the tasks",
            labels=[*names, "quantile"],
        )
        tasks = GaugeMetricFamily("penstock_tasks", "Resident tasks", labels=names)
        rows = CounterMetricFamily("penstock_task_rows", "Rows that came out of an operator", labels=names)
        running: dict[str, int] = {}
        histograms: dict[str, list[LatencyHistogram]] = {}
        counts: dict[str, int] = {}
        for task in reading.tasks:
            running[task.operator] = running.get(task.operator, 0) + 1
            for name in task.latency:
                histograms.setdefault(name, []).append(histogram_of(task, name))
            for name, count in task.rows.items():
                counts[name] = counts.get(name, 0) + count
        for operator, number in running.items():
            tasks.add_metric([*fixed, operator], number)
        for name, count in counts.items():
            rows.add_metric([*fixed, name], count)
        for name, found in histograms.items():
            together = merged(found)
            for q in QUANTILES:
                value_us = together.quantile_us(q)
                if value_us is not None:
                    latency.add_metric([*fixed, name, str(q)], value_us / 1e6)
        yield from (latency, tasks, rows)


def _shard_families(
    names: Sequence[str], fixed: Sequence[str], shards: Mapping[str, Sequence[ShardCounters]]
) -> Iterable[Metric]:
    arrived = CounterMetricFamily("penstock_arrived_rows", "Rows placed into inboxes", labels=names)
    completed = CounterMetricFamily("penstock_completed_rows", "Rows committed", labels=names)
    inbox = GaugeMetricFamily("penstock_inbox_entries", "Entries that wait", labels=names)
    owned = GaugeMetricFamily("penstock_shards", "Shards of this worker's executors", labels=names)
    for operator, counters in shards.items():
        labels = [*fixed, operator]
        arrived.add_metric(labels, sum(c.arrived_rows for c in counters))
        completed.add_metric(labels, sum(c.completed_rows for c in counters))
        inbox.add_metric(labels, sum(c.inbox_entries for c in counters))
        owned.add_metric(labels, len(counters))
    return (arrived, completed, inbox, owned)


def serve(collector: WorkerCollector, vitals: Vitals, port: int, address: str) -> ThreadingHTTPServer:
    """Serve on `address`, in threads. Port 0 takes any. Raises PermanentError when the port is taken."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    probes: Mapping[str, Callable[[], Verdict]] = {"/healthz": vitals.healthy, "/ready": vitals.ready}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in probes:
                verdict = probes[path]()
                self._answer(200 if verdict.good else 503, _TEXT, f"{verdict.why}\n".encode())
            elif path in ("/", "/metrics"):
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            else:
                self._answer(404, _TEXT, b"there are /metrics, /healthz and /ready\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except OSError as error:
        raise PermanentError(
            f"the metrics port {port} cannot be used ({error.strerror}); choose another with --metrics-port"
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
