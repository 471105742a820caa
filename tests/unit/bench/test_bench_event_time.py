"""What the event-time bench makes of its runs, and the processor that it runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bench import counting, counting_in_pandas, timing
from bench.event_time import count_figures, figures, pandas_figures, window_figures
from bench.penstock_side import PenstockRun
from bench.spark_windows import SparkWindows, whole_batches
from bench.window_delays import delays_us, end_us
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.metrics.latency import LatencyHistogram


def run(
    ages_us: list[int], *, cores_used: float = 1.0, span_s: float = 1.0, records_per_cpu_s: float = 0.0
) -> PenstockRun:
    rows = LatencyHistogram()
    for age_us in ages_us:
        rows.record(age_us)
    return PenstockRun(
        rows=rows,
        records=LatencyHistogram(),
        held=True,
        read_per_s=300.0,
        processed_per_s=300.0,
        records_per_cpu_s=records_per_cpu_s,
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


def peer(records_per_cpu_s: float, delays_ms: list[int]) -> SparkWindows:
    return SparkWindows(records_per_cpu_s, 0.0, 1.0, 3, np.array(delays_ms, dtype=np.int64) * 1000)


def test_windows_are_beside_the_better_of_sparks() -> None:
    found = window_figures(
        run([], cores_used=0.2),
        np.array([10_000] * 50 + [40_000] * 50),
        run([], records_per_cpu_s=600.0),
        {
            "spark_native": (peer(0.0, [300, 500]), peer(200.0, [])),
            "spark_python": (peer(0.0, []), peer(50.0, [])),
        },
    )
    assert (found["ratio"], found["spark_per_cpu_s"], found["results"]) == (3.0, 200.0, 100)
    assert (found["result_delay_p50_ms"], found["result_delay_p99_ms"]) == (25.0, 40.0)
    assert found["spark_native_result_delay_p50_ms"] == 400.0
    assert found["spark_python_result_delay_p99_ms"] is None


def test_watermarks_cost_what_a_count_with_them_has_less() -> None:
    without, with_them = run([], records_per_cpu_s=100.0), run([], records_per_cpu_s=96.0)
    found = count_figures([(without, with_them)] * 2, run([], records_per_cpu_s=150.0))
    assert found["watermark_cost_ratio"] == pytest.approx(0.04)
    assert found["pandas"] == {"per_cpu_s": 150.0, "rows_per_cpu_s": 100.0, "ratio": 1.5}


def test_the_forms_are_compared_at_so_many_rows_a_dataframe() -> None:
    pandas = run([1_000] * 50, records_per_cpu_s=50.0, span_s=10.0)
    assert pandas_figures(run([], records_per_cpu_s=100.0), pandas) == {
        "per_cpu_s": 50.0,
        "rows_per_cpu_s": 100.0,
        "ratio": 0.5,
        "rows_a_frame": 60.0,
    }
    assert pandas_figures(run([], records_per_cpu_s=100.0), run([]))["rows_a_frame"] is None


def test_a_results_delay_is_from_its_windows_end() -> None:
    ended_us = end_us("1970-01-01T00:00:10.000000Z")
    assert ended_us == 10_000_000
    seen = [(10_030_000, ended_us), (10_050_000, ended_us), (20_010_000, 20_000_000)]
    assert delays_us(seen, 0, 20_000_000).tolist() == [30_000, 50_000]


def test_sparks_records_are_those_of_whole_batches() -> None:
    assert whole_batches([(10.0, 2.0, 100), (12.0, 3.0, 50)]) == (150, 10.0, 15.0)
    assert whole_batches([]) == (0, 0.0, 0.0)


def test_both_forms_of_the_count_have_the_same_totals() -> None:
    keys = [1, 2, 1, 1, 3]
    in_rows = TwsTester(counting.Count()).test
    in_pandas = TwsTester(counting_in_pandas.Count()).testInPandas
    for key in keys:
        (row,) = in_rows(key, [Row(key=key)])
        frame = in_pandas(key, pd.DataFrame({"key": [key]}))
        assert frame.to_dict("records") == [row.asDict()]
