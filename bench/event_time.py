"""`make bench-event-time`: timers, windows beside Spark's, what watermarks cost, and the pandas form.

**Timers** (processing time): each record of zipf keys sets a timer for half a second later (`timing.py`).
Lateness is taken in an otherwise idle system, at `IDLE_PER_S` records a second, from when a timer was due to
its row in the sink's file. Timers per CPU-second are those that fired while records came as fast as they were
taken, divided by the CPU time of all processes, the store included; each of them was also set there.

**Windows** of ten seconds count zipf keys by when a record was due, and nothing may come late
(`topologies/windows.yaml`). A result's delay is from its window's end until its row was seen in the sink's
file, for Spark in the driver's hands, at `DELAY_PER_S`. Spark counts them in the JVM (`groupBy(window)`), and
with Penstock's own processor (`transformWithState`).

**Watermarks** cost what a count with `timeMode: EventTime` has less records per CPU-second than one without.
**Pandas** is the same count in that form, and both forms once more over few keys, where a batch has many rows
of one. All as fast as they go.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
from bench import cpu, machine, penstock_side, spark_side, spark_windows
from bench.penstock_side import PenstockRun
from bench.screen import Screen, scratch, seconds_per_figure, show
from bench.sink_watch import LineWatch
from bench.spark_sweep import SATURATION_RATE_PER_S
from bench.spark_windows import SparkWindows
from bench.window_delays import WindowRow, delays_us, end_us
from numpy.typing import NDArray
from rich.table import Table

SECONDS = 15.0
WINDOWS_SECONDS = 40.0
"""Of a run with windows: four of them end."""
WARMUP_S = 6.0
SPARK_WARMUP_S = 25.0
IDLE_PER_S = 200.0
DELAY_PER_S = 5_000.0
TIMED = "records.source.zipf.timeColumn=at"
WATERMARKED = (TIMED, "records.eventTime.column=at", "count.timeMode=EventTime")
SPARKS_QUERIES = {"spark_native": "windows", "spark_python": "windows_in_python"}
FEW_KEYS = 10
OF_FEW = f"records.source.zipf.keys={FEW_KEYS}"
TURNS = 2
"""So often a count without watermarks and one with them are measured, in turns."""


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    bench = _Bench(Screen(7 + 2 * len(SPARKS_QUERIES) + 2 * TURNS))
    timers = bench.timers()
    windows = bench.windows()
    counts = [
        (bench.count("counts", [TIMED]), bench.count("counts with watermarks", WATERMARKED))
        for _ in range(TURNS)
    ]
    pandas = bench.count("counts in pandas", [TIMED], in_pandas=True)
    few = bench.count(f"counts of {FEW_KEYS} keys", [TIMED, OF_FEW])
    few_in_pandas = bench.count(f"counts of {FEW_KEYS} keys in pandas", [TIMED, OF_FEW], in_pandas=True)
    result = {
        "bench": "event-time",
        "timers": timers,
        "windows": windows,
        **count_figures(counts, pandas),
        "pandas_many_rows": pandas_figures(few, few_in_pandas),
        "seconds": bench.seconds,
        "machine": machine.description(),
    }
    show(_table(result), result)


class _Bench:
    """The runs, one after the other."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.seconds = seconds_per_figure(SECONDS)
        self._windows_s = max(WINDOWS_SECONDS, self.seconds)

    def timers(self) -> dict[str, Any]:
        idle = self._penstock(f"timers, {IDLE_PER_S:,.0f}/s", IDLE_PER_S, "timers", "timing.py")
        full = self._penstock("timers, as fast as it goes", None, "timers", "timing.py")
        return figures(idle, full)

    def count(self, what: str, sets: Sequence[str], *, in_pandas: bool = False) -> PenstockRun:
        code = "counting_in_pandas.py" if in_pandas else "counting.py"
        if in_pandas:
            sets = [*sets, "code.module=counting_in_pandas", "count.processor=counting_in_pandas:Count"]
        return self._penstock(what, None, "counting", code, sets)

    def windows(self) -> dict[str, Any]:
        with self._screen.step(f"windows, {DELAY_PER_S:,.0f}/s"), scratch("windows") as folder:
            with LineWatch(folder / "out", WindowRow) as watch:
                paced = self._measure(DELAY_PER_S, "windows", "counting.py", self._windows_s, folder)
            ends = [(at_us, end_us(row.window_end)) for at_us, row in watch.seen]
        # The run's first window began before its first record.
        delays = delays_us(ends, sorted({end for _, end in ends})[1], np.inf)
        full = self._penstock("windows, as fast as it goes", None, "windows", seconds=self._windows_s)
        peers = {name: self._spark(query) for name, query in SPARKS_QUERIES.items()}
        return window_figures(paced, delays, full, peers)

    def _penstock(
        self,
        what: str,
        rate_per_s: float | None,
        topology: str,
        code: str = "counting.py",
        sets: Sequence[str] = (),
        seconds: float | None = None,
    ) -> PenstockRun:
        with self._screen.step(what), scratch(topology) as folder:
            run = self._measure(rate_per_s, topology, code, seconds or self.seconds, folder, sets)
        self._screen.note(f"    {run.processed_per_s:,.0f}/s, {run.records_per_cpu_s:,.0f} per CPU-second")
        return run

    def _measure(
        self,
        rate_per_s: float | None,
        topology: str,
        code: str,
        seconds: float,
        folder: Any,
        sets: Sequence[str] = (),
    ) -> PenstockRun:
        return penstock_side.measure(
            rate_per_s,
            "Process",
            1,
            WARMUP_S,
            seconds,
            folder,
            self._screen.tell,
            topology=topology,
            code=code,
            sets=sets,
        )

    def _spark(self, query: str) -> tuple[SparkWindows, SparkWindows]:
        """At the rate of delays, and as fast as it goes."""
        found = []
        for profile, rate_per_s in (("latency_10000", DELAY_PER_S), ("throughput", SATURATION_RATE_PER_S)):
            saturated = rate_per_s == SATURATION_RATE_PER_S
            rate = "as fast as it goes" if saturated else f"{rate_per_s:,.0f}/s"
            with self._screen.step(f"Spark's {query}, {rate}"), scratch("spark") as folder:
                run = spark_windows.measure(
                    query,
                    spark_side.settings_for(profile),
                    rate_per_s,
                    SPARK_WARMUP_S,
                    self._windows_s,
                    folder,
                    self._screen.tell,
                    saturated=saturated,
                )
            self._screen.note(
                f"    {run.processed_per_s:,.0f}/s, {run.records_per_cpu_s:,.0f} per CPU-second, "
                f"{run.batches} batches"
            )
            found.append(run)
        return found[0], found[1]


def figures(idle: PenstockRun, full: PenstockRun) -> dict[str, Any]:
    """The figures of timers, from a run in an idle system and from one as fast as it goes."""
    fired_per_s = full.rows.total / full.span_s
    return {
        "fired_late_p50_ms": _ms(idle.rows.quantile_us(0.5)),
        "fired_late_p99_ms": _ms(idle.rows.quantile_us(0.99)),
        "fired": idle.rows.total,
        "per_cpu_s": round(fired_per_s / full.cores_used, 1),
        "fired_per_s": round(fired_per_s, 1),
        "set_per_s": round(full.processed_per_s, 1),
        "cores_used": round(full.cores_used, 2),
        "fired_late_p99_ms_at_full_rate": _ms(full.rows.quantile_us(0.99)),
    }


def window_figures(
    paced: PenstockRun,
    delays: NDArray[np.int64],
    full: PenstockRun,
    peers: dict[str, tuple[SparkWindows, SparkWindows]],
) -> dict[str, Any]:
    """The figures of windows; `peers` are Spark's runs at the same rate and as fast as it goes.

    The ratio is to the better of them.
    """
    best = max(run.records_per_cpu_s for _, run in peers.values())
    found: dict[str, Any] = {
        "penstock_per_cpu_s": round(full.records_per_cpu_s, 1),
        "spark_per_cpu_s": round(best, 1),
        "ratio": round(full.records_per_cpu_s / best, 2),
        **_delays("result_delay", delays),
        "results": len(delays),
        "per_s": round(full.processed_per_s, 1),
        "cores_used": round(full.cores_used, 2),
        "cores_used_at_5000": round(paced.cores_used, 2),
    }
    for name, (at_rate, run) in peers.items():
        found |= {
            f"{name}_per_cpu_s": round(run.records_per_cpu_s, 1),
            f"{name}_per_s": round(run.processed_per_s, 1),
            **_delays(f"{name}_result_delay", at_rate.delays_us),
        }
    return found


def count_figures(counts: Sequence[tuple[PenstockRun, PenstockRun]], pandas: PenstockRun) -> dict[str, Any]:
    """What watermarks cost, from counts without and with them, and the count in pandas."""
    without = fmean(run.records_per_cpu_s for run, _ in counts)
    with_them = fmean(run.records_per_cpu_s for _, run in counts)
    return {
        "pandas": {
            "per_cpu_s": round(pandas.records_per_cpu_s, 1),
            "rows_per_cpu_s": round(without, 1),
            "ratio": round(pandas.records_per_cpu_s / without, 2),
        },
        "watermark_cost_ratio": round(1 - with_them / without, 3),
        "watermarks": {
            "without_per_cpu_s": [round(run.records_per_cpu_s, 1) for run, _ in counts],
            "with_per_cpu_s": [round(run.records_per_cpu_s, 1) for _, run in counts],
        },
    }


def pandas_figures(rows: PenstockRun, pandas: PenstockRun) -> dict[str, Any]:
    """The count over few keys in both forms, and how many rows its DataFrames had on average: a row comes
    out for each."""
    frames = pandas.rows.total
    return {
        "per_cpu_s": round(pandas.records_per_cpu_s, 1),
        "rows_per_cpu_s": round(rows.records_per_cpu_s, 1),
        "ratio": round(pandas.records_per_cpu_s / rows.records_per_cpu_s, 2),
        "rows_a_frame": round(pandas.processed_per_s * pandas.span_s / frames, 1) if frames else None,
    }


def _delays(name: str, found_us: NDArray[np.int64]) -> dict[str, float | None]:
    if not len(found_us):
        return {f"{name}_p50_ms": None, f"{name}_p99_ms": None}
    return {
        f"{name}_p{quantile}_ms": round(float(np.quantile(found_us, quantile / 100)) / 1000, 2)
        for quantile in (50, 99)
    }


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 2)


def _table(result: dict[str, Any]) -> Table:
    table = Table(title="Timers in processing time, windows, watermarks, the pandas form")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for part in ("timers", "windows", "pandas", "pandas_many_rows", "watermarks"):
        for name, value in result[part].items():
            values = value if isinstance(value, list) else [value]
            table.add_row(
                f"{part}: {name}", ", ".join("none" if one is None else f"{one:,}" for one in values)
            )
    table.add_row("watermark_cost_ratio", f"{result['watermark_cost_ratio']:,}")
    return table


if __name__ == "__main__":
    main()
