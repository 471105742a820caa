"""What a worker tells Prometheus and kubelet's probes, over HTTP."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Iterator
from urllib.error import HTTPError

import pytest
from msgspec import structs

from clocks.standing_clock import StandingClock
from penstock.errors import PermanentError
from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow
from penstock.store.codec import encode_counts
from penstock.store.port import ShardCounters, Watermark
from penstock_worker.main_process.prometheus import WorkerCollector, serve
from penstock_worker.main_process.vitals import TURN_US_MAX, Vitals
from penstock_worker.main_process.worker_counts import WorkerReading

LABELS = 'topology="words",worker="w0"'
Ask = Callable[[str], tuple[int, str]]


def task(number: int, latencies_ms: list[int], rows: int) -> TaskRow:
    histogram = LatencyHistogram()
    for latency_ms in latencies_ms:
        histogram.record(latency_ms * 1000.0)
    return TaskRow("count-w0", "count", number, f"ready{number}", 1, 0, {"totals": histogram.counts},
                   {"totals": rows}, 0, 0)  # fmt: skip


def shard(arrived: int, completed: int, entries: int, totals: int = 0) -> ShardCounters:
    counts = encode_counts({"totals": totals})
    return ShardCounters(
        1, 1, 1, arrived, completed, entries, 0, 0, 0, "count-w0", finished=False, counts=counts
    )


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def vitals(clock: StandingClock) -> Vitals:
    return Vitals(clock)


@pytest.fixture
def collector() -> WorkerCollector:
    return WorkerCollector("words", "w0")


@pytest.fixture
def ask(collector: WorkerCollector, vitals: Vitals) -> Iterator[Ask]:
    server = serve(collector, vitals, 0, "127.0.0.1")

    def asked(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            return refused.code, refused.read().decode()

    yield asked
    server.shutdown()
    server.server_close()


def figures(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines if not name.endswith("_created")}


def test_figures_are_of_all_tasks_and_shards_of_the_worker_together(
    ask: Ask, collector: WorkerCollector
) -> None:
    collector.read(
        WorkerReading(
            tasks=(task(0, [10] * 60, 60), task(1, [10] * 39 + [400], 40)),
            shards={"count": {"count/0": shard(30, 20, 3, 60), "count/1": shard(12, 12, 0, 40)}},
        )
    )
    status, text = ask("/metrics")
    assert status == 200
    found = figures(text)
    of_count, of_totals = f'{{operator="count",{LABELS}}}', 'operator="totals",'
    assert found.pop(f'penstock_latency_seconds{{{of_totals}quantile="0.5",{LABELS}}}') == pytest.approx(
        0.010, rel=0.02
    )
    assert found.pop(f'penstock_latency_seconds{{{of_totals}quantile="0.99",{LABELS}}}') == pytest.approx(
        0.010, rel=0.02
    )
    assert found == {
        f"penstock_arrived_rows_total{of_count}": 42,
        f"penstock_completed_rows_total{of_count}": 32,
        f"penstock_inbox_entries{of_count}": 3,
        f"penstock_shards{of_count}": 2,
        f"penstock_tasks{of_count}": 2,
        f'penstock_task_rows_total{{operator="totals",{LABELS}}}': 100,
    }


def test_what_was_not_read_yet_is_left_out_and_never_a_zero(ask: Ask, collector: WorkerCollector) -> None:
    assert figures(ask("/metrics")[1]) == {}
    collector.read(WorkerReading(tasks=(task(0, [], 0),), shards={}))
    assert not [name for name in figures(ask("/metrics")[1]) if "latency" in name]


def test_counters_stay_when_what_was_counted_goes(ask: Ask, collector: WorkerCollector) -> None:
    collector.read(WorkerReading((task(0, [10], 60),), {"count": {"count/0": shard(30, 20, 3, 60)}}))
    before = figures(ask("/metrics")[1])
    collector.read(WorkerReading((), {}))
    after = figures(ask("/metrics")[1])
    counters = {name: value for name, value in before.items() if "_total{" in name}
    assert sorted(counters.values()) == [20, 30, 60]
    assert after == counters, "gauges go with what they are about"


def test_late_rows_and_what_shards_told_of_event_time_are_served(
    ask: Ask, collector: WorkerCollector
) -> None:
    late = structs.replace(shard(9, 9, 0), counts=encode_counts({"count/late": 2}), told=Watermark(9000))
    ahead, idle = (
        structs.replace(late, told=Watermark(12_500)),
        structs.replace(late, told=Watermark(10, is_idle=True)),
    )
    collector.read(WorkerReading((), {"count": {"count/0": late, "count/1": ahead, "count/2": idle}}))
    found = figures(ask("/metrics")[1])
    of_count = f'{{operator="count",{LABELS}}}'
    assert found[f"penstock_late_rows_total{of_count}"] == 6
    assert found[f"penstock_watermark_timestamp_seconds{of_count}"] == 9.0
    assert not any("count/late" in name for name in found)
    for told in (None, Watermark(None), Watermark(10, is_idle=True)):
        collector.read(WorkerReading((), {"count": {"count/0": structs.replace(late, told=told)}}))
        served = figures(ask("/metrics")[1])
        assert f"penstock_watermark_timestamp_seconds{of_count}" not in served, "not known is no figure"


def test_probes_answer_as_the_vitals_say(ask: Ask, vitals: Vitals, clock: StandingClock) -> None:
    assert ask("/healthz")[0] == 200
    assert ask("/ready") == (503, "Spark is starting\n")
    vitals.turned()
    vitals.worked()
    assert ask("/ready")[0] == 200
    clock.us += TURN_US_MAX + 1
    assert ask("/healthz")[0] == ask("/ready")[0] == 503
    assert ask("/elsewhere")[0] == 404


def test_a_port_that_is_taken_is_told(collector: WorkerCollector, vitals: Vitals) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PermanentError, match=f"the metrics port {port} cannot be used .*--metrics-port"):
            serve(collector, vitals, port, "127.0.0.1")
