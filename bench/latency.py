"""`make bench-latency`: from source timestamp to sink, Penstock beside Spark's micro-batches.

Both count the same zipf keys with the same processor. A record's timestamp is when it was due; its age is
taken when the row that counts it has arrived: for Penstock in the sink's file, after the commit; for Spark
when the batch's output is in the hands of the driver or of the sink. An output row of Penstock is as old as
the oldest record behind it, which cannot be less than a record's own age; for Spark each record's own age
counts (`by_row` gives Penstock's way for Spark). Where the two differ, Spark is favoured.
Penstock keeps its log with fsync off (Process) or at each write (Disk); Spark's checkpoint is written to the
same disk without fsync, which is Process.

BUSY=N has so many processes spin beside it all, which together have as large a share of the cores as the
bench with a side (`busy`, `core_groups`); then the result is `latency_busy`. Not with BENCH_ON_ERROR.

With BENCH_ON_ERROR=DeadLetter (or Retry) Penstock counts with code that fails on about 3 records of 10 000,
of which that is made; beside it the same without an `onError` and without failures, in turns, in place of
Spark.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bench import cpu, machine, penstock_side, plots, spark_side
from bench.busy import spinners, spinning
from bench.core_groups import core_group
from bench.penstock_side import PenstockRun
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.spark_side import SparkRun
from rich.table import Table

from penstock.metrics.latency import LatencyHistogram

RATES_PER_S = (1_000, 10_000)
COUNT_TASKS = {1_000: 1, 10_000: 2}
"""As many as Spark's shuffle partitions at the higher rate."""
SECONDS = 15.0
PENSTOCK_WARMUP_S = 6.0
SPARK_WARMUP_S = 25.0
MODES = {"penstock": "Process", "penstock_disk": "Disk"}
FAILING = ("code.module=counting_failing", "count.processor=counting_failing:Count")


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    if policy := os.environ.get("BENCH_ON_ERROR"):
        _measure_failing(policy, seconds)
        return
    busy = spinners(0)
    name = "latency_busy" if busy else "latency"
    with spinning(busy), core_group() as side:
        if busy:
            side.take(os.getpid())
        rates, curves = _measure(seconds)
    RESULTS.mkdir(exist_ok=True)
    plots.latency(RESULTS / f"{name}.png", curves)
    machine_now = machine.description()
    result = {"bench": name, "rates": rates, "spinning": busy, "seconds": seconds, "machine": machine_now}
    if busy:
        result["core_groups"] = side.is_there
    show(_table(rates, busy), result)


def _measure(seconds: float) -> tuple[dict[str, Any], dict[int, dict[str, LatencyHistogram]]]:
    screen = Screen(len(RATES_PER_S) * (len(MODES) + 1))
    rates: dict[str, Any] = {}
    curves: dict[int, dict[str, LatencyHistogram]] = {}
    for rate_per_s in RATES_PER_S:
        figures: dict[str, Any] = {}
        curves[rate_per_s] = {}
        for name, durability in MODES.items():
            with screen.step(f"Penstock, {durability}, {rate_per_s:,}/s"), scratch("penstock") as folder:
                run = penstock_side.measure(
                    float(rate_per_s),
                    durability,
                    COUNT_TASKS[rate_per_s],
                    PENSTOCK_WARMUP_S,
                    seconds,
                    folder,
                    screen.tell,
                )
            figures[name] = _penstock(run, durability)
            curves[rate_per_s][f"Penstock, {durability}"] = run.rows
        with screen.step(f"Spark, micro-batch, {rate_per_s:,}/s"), scratch("spark") as folder:
            settings = spark_side.settings_for(f"latency_{rate_per_s}")
            peer = spark_side.measure(
                settings, float(rate_per_s), SPARK_WARMUP_S, seconds, folder, screen.tell
            )
        figures["spark_micro_batch"] = _spark(peer)
        curves[rate_per_s]["Spark, micro-batch"] = peer.records
        figures["ratio_p99"] = _ratio(figures["spark_micro_batch"]["p99_ms"], figures["penstock"]["p99_ms"])
        rates[str(rate_per_s)] = figures
    return rates, curves


def _measure_failing(policy: str, seconds: float) -> None:
    """With code that fails, and without, in turns."""
    then = ("count.onError.then=DeadLetter",) if policy == "Retry" else ()
    fails = (*FAILING, f"count.onError.policy={policy}", *then)
    sides: dict[str, tuple[str, Sequence[str]]] = {
        "none_fails": ("counting.py", ()),
        policy: ("counting_failing.py", fails),
    }
    screen = Screen(len(RATES_PER_S) * len(MODES) * len(sides))
    rates: dict[str, Any] = {}
    for rate_per_s in RATES_PER_S:
        figures = rates[str(rate_per_s)] = {}
        for durability in MODES.values():
            for name, (code, sets) in sides.items():
                with screen.step(f"{name}, {durability}, {rate_per_s:,}/s"), scratch("penstock") as folder:
                    run = penstock_side.measure(
                        float(rate_per_s),
                        durability,
                        COUNT_TASKS[rate_per_s],
                        PENSTOCK_WARMUP_S,
                        seconds,
                        folder,
                        screen.tell,
                        code=code,
                        sets=sets,
                    )
                figures[f"{name}, {durability}"] = _penstock(run, durability)
    result = {
        "bench": "latency_on_error",
        "policy": policy,
        "rates": rates,
        "seconds": seconds,
        "machine": machine.description(),
    }
    show(_failing_table(rates), result)


def _failing_table(rates: dict[str, Any]) -> Table:
    table = Table(title="Latency from source timestamp to sink, with code that fails and without")
    for header in ("records/s", "onError"):
        table.add_column(header)
    for header in ("p50 ms", "p99 ms", "max ms", "sustained", "cores used"):
        table.add_column(header, justify="right")
    for rate, figures in rates.items():
        for name, found in figures.items():
            table.add_row(
                f"{int(rate):,}",
                name,
                *(str(found[quantile]) for quantile in ("p50_ms", "p99_ms", "max_ms")),
                "yes" if found["sustained"] else "no",
                f"{found['cores_used']:.2f}",
            )
        table.add_section()
    return table


def _quantiles(histogram: LatencyHistogram) -> dict[str, float | None]:
    return {
        "p50_ms": _ms(histogram.quantile_us(0.5)),
        "p99_ms": _ms(histogram.quantile_us(0.99)),
        "max_ms": _ms(histogram.max_us()),
    }


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 2)


def _ratio(peer_ms: float | None, own_ms: float | None) -> float | None:
    return None if peer_ms is None or own_ms is None else round(peer_ms / own_ms, 1)


def _penstock(run: PenstockRun, durability: str) -> dict[str, Any]:
    return {
        **_quantiles(run.rows),
        "mode": durability,
        "sustained": run.held,
        "processed_per_s": round(run.processed_per_s, 1),
        "cores_used": round(run.cores_used, 2),
        "rows": run.rows.total,
        "at_commit": _quantiles(run.records),
    }


def _spark(run: SparkRun) -> dict[str, Any]:
    return {
        **_quantiles(run.records),
        "sustained": run.held,
        "processed_per_s": round(run.processed_per_s, 1),
        "cores_used": round(run.cores_used, 2),
        "records": run.records.total,
        "by_row": _quantiles(run.groups),
        "batches": run.batches,
        "batch_ms": run.batch_ms,
    }


def _table(rates: dict[str, Any], busy: int) -> Table:
    beside = f", beside {busy} that spin" if busy else ""
    table = Table(title=f"Latency from source timestamp to sink{beside}")
    for header in ("records/s", "system"):
        table.add_column(header)
    for header in ("p50 ms", "p99 ms", "max ms", "sustained", "processed/s", "cores used", "Spark's p99 is"):
        table.add_column(header, justify="right")
    names = {**{name: f"Penstock, {mode}" for name, mode in MODES.items()}, "spark_micro_batch": "Spark"}
    for rate, figures in rates.items():
        peer_p99_ms = figures["spark_micro_batch"]["p99_ms"]
        for name, label in names.items():
            found = figures[name]
            ratio = _ratio(peer_p99_ms, found["p99_ms"]) if name in MODES else None
            table.add_row(
                f"{int(rate):,}",
                label,
                *(str(found[quantile]) for quantile in ("p50_ms", "p99_ms", "max_ms")),
                "yes" if found["sustained"] else "no",
                f"{found['processed_per_s']:,.0f}",
                f"{found['cores_used']:.2f}",
                "" if ratio is None else f"{ratio:,.0f} x",
            )
        table.add_section()
    return table


if __name__ == "__main__":
    main()
