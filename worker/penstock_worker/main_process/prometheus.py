"""Prometheus metrics on the main process: this worker's rows of the store, in the exposition's form; and
the answers to kubelet's probes, `/healthz` and `/ready` (`vitals`), on the same port.

Counters are what this process has counted (`worker_counts`), latency is a gauge by quantile over the
last readings. A row that is missing is left out, never shown as zero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.dataflow.partitions import part_of
from penstock.errors import PermanentError
from penstock.figures.watermarks import told_by
from penstock.metrics.latency import LatencyHistogram, merged
from penstock.metrics.rows import histogram_of
from penstock.store.port import ShardCounters
from penstock_worker.main_process.vitals import Verdict, Vitals
from penstock_worker.main_process.worker_counts import Counts, WorkerCounts, WorkerReading

QUANTILES = (0.5, 0.99)
_TEXT = "text/plain; charset=utf-8"


class WorkerCollector(Collector):
    """Serves the last reading, and the counts up to it."""

    def __init__(self, topology: str, worker: str) -> None:
        self._labels = {"topology": topology, "worker": worker}
        self._counts = WorkerCounts()
        self._shown: tuple[WorkerReading, Counts] | None = None

    def read(self, reading: WorkerReading) -> None:
        """Of the main process, once a second."""
        self._shown = reading, self._counts.read(reading)

    def collect(self) -> Iterator[Metric]:
        if self._shown is None:
            return
        reading, counts = self._shown
        names = [*self._labels, "operator"]
        fixed = list(self._labels.values())
        yield from _counter_families(names, fixed, counts)
        yield from _shard_families(names, fixed, reading.shards)
        latency = GaugeMetricFamily(
            "penstock_latency_seconds",
            "From source timestamp to here, over the life of the tasks",
            labels=[*names, "quantile"],
        )
        tasks = GaugeMetricFamily("penstock_tasks", "Resident tasks", labels=names)
        lag = GaugeMetricFamily(
            "penstock_source_lag_records",
            "Records of a partition that are there and were not read",
            labels=[*names, "partition"],
        )
        behind = GaugeMetricFamily(
            "penstock_source_lag_seconds",
            "How long ago the last record that was read of a partition was made; 0 where all was read",
            labels=[*names, "partition"],
        )
        running: dict[str, int] = {}
        histograms: dict[str, list[LatencyHistogram]] = {}
        for task in reading.tasks:
            running[task.operator] = running.get(task.operator, 0) + 1
            for shard, (records, behind_ms) in task.lag.items():
                lag.add_metric([*fixed, task.operator, part_of(shard)], records)
                behind.add_metric([*fixed, task.operator, part_of(shard)], behind_ms / 1000)
            for name in task.latency:
                histograms.setdefault(name, []).append(histogram_of(task, name))
        for operator, number in running.items():
            tasks.add_metric([*fixed, operator], number)
        for name, found in histograms.items():
            together = merged(found)
            for q in QUANTILES:
                value_us = together.quantile_us(q)
                if value_us is not None:
                    latency.add_metric([*fixed, name, str(q)], value_us / 1e6)
        yield from (latency, tasks, lag, behind)


def _counter_families(names: Sequence[str], fixed: Sequence[str], counts: Counts) -> Iterator[Metric]:
    for name, text, by_operator in (
        ("penstock_arrived_rows", "Rows placed into inboxes", counts.arrived),
        ("penstock_completed_rows", "Rows committed", counts.completed),
        ("penstock_task_rows", "Rows that came out of an operator", counts.out),
        ("penstock_late_rows", "Rows that came behind an operator's watermark", counts.late),
        ("penstock_dead_letter_rows", "Rows that became dead letters of an operator", counts.dead),
    ):
        family = CounterMetricFamily(name, text, labels=names)
        for operator, count in by_operator.items():
            family.add_metric([*fixed, operator], count)
        yield family


def _shard_families(
    names: Sequence[str], fixed: Sequence[str], shards: Mapping[str, Mapping[str, ShardCounters]]
) -> Iterable[Metric]:
    inbox = GaugeMetricFamily("penstock_inbox_entries", "Entries that wait", labels=names)
    owned = GaugeMetricFamily("penstock_shards", "Shards of this worker's executors", labels=names)
    watermark = GaugeMetricFamily(
        "penstock_watermark_timestamp_seconds",
        "Event time that this worker's shards of an operator told to those behind, unless they are idle",
        labels=names,
    )
    for operator, counters in shards.items():
        labels = [*fixed, operator]
        told = told_by(list(counters.values()), keyed=False)
        if told.ms is not None and not told.is_idle:
            watermark.add_metric(labels, told.ms / 1000)
        inbox.add_metric(labels, sum(c.inbox_entries for c in counters.values()))
        owned.add_metric(labels, len(counters))
    return (inbox, owned, watermark)


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
