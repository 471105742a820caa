"""What the event-time bench makes of its runs, and the processor that it runs."""

from __future__ import annotations

from bench import timing
from bench.event_time import figures
from bench.penstock_side import PenstockRun
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.metrics.latency import LatencyHistogram


def run(ages_us: list[int], *, cores_used: float, span_s: float) -> PenstockRun:
    rows = LatencyHistogram()
    for age_us in ages_us:
        rows.record(age_us)
    return PenstockRun(
        rows=rows,
        records=LatencyHistogram(),
        held=True,
        read_per_s=300.0,
        processed_per_s=300.0,
        records_per_cpu_s=0.0,
        cores_used=cores_used,
        cpu_s_by_process={},
        span_s=span_s,
    )


def test_timers_per_cpu_second_are_those_that_fired() -> None:
    idle = run([2_000] * 99 + [8_000], cores_used=0.1, span_s=10.0)
    full = run([50_000] * 2_000, cores_used=2.0, span_s=10.0)
    found = figures(idle, full)
    assert found["per_cpu_s"] == 100.0
    assert found["fired_per_s"] == 200.0
    assert found["set_per_s"] == 300.0
    assert found["fired"] == 100
    assert 1.5 <= found["fired_late_p50_ms"] <= 2.5
    assert found["fired_late_p50_ms"] <= found["fired_late_p99_ms"] <= 9.0


def test_each_record_has_a_timer_of_its_own() -> None:
    tester = TwsTester(timing.Timed(), timeMode="ProcessingTime")
    tester.setProcessingTime(1_000)
    assert tester.test(7, [Row(key=7)] * 3) == []
    fired = tester.setProcessingTime(1_000 + timing.AHEAD_MS + 3)
    assert [row.expiry_ms for row in fired] == [1_000 + timing.AHEAD_MS + n for n in range(3)]
