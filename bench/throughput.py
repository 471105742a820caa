"""`make bench-throughput`: the highest rate held without a growing inbox, in records per CPU-second.

Each side is first run as fast as it goes; then the highest paced rate is searched under which nothing grows.
Unpaced, Penstock's source waits for room in the inboxes and reads in full batches: where nothing grows in
that run either, and it counted more, its figures are the side's. Spark's are those of the better one of its
runs, for each CPU-second. Figures are records counted, divided by the CPU time of all processes of the side,
the store included. BENCH_TASKS sets the counting tasks (1).
Spark takes bounded batches (the bound is in its frozen settings): the larger they are, the more records share
one access to state, and the older a record gets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench import cpu, machine, penstock_side, plots, spark_side
from bench.held import NothingHeldError, highest_held
from bench.penstock_side import PenstockRun
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.spark_side import SparkRun
from bench.spark_sweep import SATURATION_RATE_PER_S
from rich.table import Table

SECONDS = 12.0
PENSTOCK_WARMUP_S = 6.0
SPARK_WARMUP_S = 25.0
SPARK_BATCHES_MIN = 6
"""So many full batches fit into the time that is measured, if need be it is lengthened."""
SPARK_SLOWEST_PER_S = 25_000.0
"""The time fits this rate, before anything is known of the machine: under half of what the sweep saw."""
SPARK_FULL_BATCHES_MIN = 3
"""Of the run that tells where to look; a rate takes the ends of two batches."""
STEPS = 4
"""Runs of the search for Penstock's highest paced rate."""
TARGET_PER_S = 40_000.0
"""Measured in any case: what one task is to hold, and how old records get then."""
BELOW, ABOVE = 0.25, 1.1
"""Of what a run as fast as it goes read and counted: where the search begins."""
SPARK_BELOW, SPARK_ABOVE = 0.8, 1.02
SPARK_STEPS = 2
"""Spark's batches are bounded, so its rate at saturation is what it can hold, to within little."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """A line of the table. Ages are None where all that waits is due at once; `batch_ms` is Spark's."""

    per_s: float
    held: bool
    per_cpu_s: float
    cores_used: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_s_by_process: dict[str, float]
    batch_ms: dict[str, float] | None = None


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    tasks = int(os.environ.get("BENCH_TASKS", "1"))
    settings = spark_side.settings_for("throughput")
    screen = Screen(3 + STEPS + SPARK_STEPS)

    def penstock(rate_per_s: float | None) -> PenstockRun:
        rate = "as fast as it goes" if rate_per_s is None else f"{rate_per_s:,.0f}/s"
        with screen.step(f"Penstock, {rate}"), scratch("penstock") as folder:
            run = penstock_side.measure(
                rate_per_s, "Process", tasks, PENSTOCK_WARMUP_S, seconds, folder, screen.tell
            )
        screen.note(_told(run))
        return run

    def spark(rate_per_s: float, measured_s: float) -> SparkRun:
        saturated = rate_per_s == SATURATION_RATE_PER_S
        rate = "as fast as it goes" if saturated else f"{rate_per_s:,.0f}/s"
        with screen.step(f"Spark, {rate}"), scratch("spark") as folder:
            run = spark_side.measure(
                settings,
                rate_per_s,
                SPARK_WARMUP_S,
                measured_s,
                folder,
                screen.tell,
                saturated=saturated,
            )
        screen.note(_told(run))
        return run

    full = penstock(None)
    slower, faster = sorted((full.read_per_s, full.processed_per_s))
    paced_rate, paced = highest_held(BELOW * slower, ABOVE * faster, STEPS, penstock)
    rate, best = paced_rate, paced
    if full.held and full.processed_per_s > paced_rate:
        rate, best = full.processed_per_s, full
    target = penstock(TARGET_PER_S)
    peer_full_s = max(seconds, SPARK_FULL_BATCHES_MIN * settings.max_records / SPARK_SLOWEST_PER_S)
    peer_full = spark(SATURATION_RATE_PER_S, peer_full_s)
    if not peer_full.processed_per_s:
        raise NothingHeldError(
            f"Spark ended under two batches of {settings.max_records} records in {peer_full_s:.0f} s"
        )
    measured_s = max(seconds, SPARK_BATCHES_MIN * settings.max_records / peer_full.processed_per_s)
    peer_rate, peer = highest_held(
        SPARK_BELOW * peer_full.processed_per_s,
        SPARK_ABOVE * peer_full.processed_per_s,
        SPARK_STEPS,
        lambda rate_per_s: spark(rate_per_s, measured_s),
    )
    peer_per_cpu_s = max(peer.records_per_cpu_s, peer_full.records_per_cpu_s)
    found = {
        "penstock": _figures(rate, best),
        "penstock_paced": _figures(paced_rate, paced),
        f"penstock_at_{TARGET_PER_S:.0f}": _figures(TARGET_PER_S, target),
        "spark_micro_batch": _figures(peer_rate, peer),
        # all that it has not fetched is due at once there: ages tell nothing
        "spark_as_fast_as_it_goes": replace(
            _figures(peer_full.processed_per_s, peer_full), p50_ms=None, p99_ms=None
        ),
    }
    ratio = round(best.records_per_cpu_s / peer_per_cpu_s, 2)
    result: dict[str, Any] = {
        "bench": "throughput",
        "penstock_per_cpu_s": round(best.records_per_cpu_s, 1),
        "spark_micro_batch_per_cpu_s": round(peer_per_cpu_s, 1),
        "ratio": ratio,
        "penstock_one_task_per_s": round(rate, 1) if tasks == 1 else None,
        "mode": "Process",
        "counting_tasks": tasks,
        **{name: asdict(figures) for name, figures in found.items()},
        "records_a_batch_max": settings.max_records,
        "seconds": seconds,
        "machine": machine.description(),
    }
    plots.throughput(
        RESULTS / "throughput.png",
        {"Penstock, Process": best.records_per_cpu_s, "Spark, micro-batch": peer_per_cpu_s},
        {"Penstock, Process": rate, "Spark, micro-batch": peer_rate},
    )
    show(_table(tasks, list(found.values()), ratio), result)


def _figures(rate_per_s: float, run: PenstockRun | SparkRun) -> _Figures:
    ages, batch_ms = (run.records, run.batch_ms) if isinstance(run, SparkRun) else (run.rows, None)
    return _Figures(
        per_s=round(rate_per_s, 1),
        held=run.held,
        per_cpu_s=round(run.records_per_cpu_s, 1),
        cores_used=round(run.cores_used, 2),
        p50_ms=_ms(ages.quantile_us(0.5)),
        p99_ms=_ms(ages.quantile_us(0.99)),
        cpu_s_by_process=_rounded(run.cpu_s_by_process),
        batch_ms=batch_ms,
    )


def _told(run: PenstockRun | SparkRun) -> str:
    held = "held" if run.held else "not held"
    return f"{held}: {run.processed_per_s:,.0f}/s, {run.records_per_cpu_s:,.0f} per CPU-second"


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(spent, 1) for name, spent in seconds.items() if spent >= 0.1}


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 1)


def _table(tasks: int, found: Sequence[_Figures], ratio: float) -> Table:
    table = Table(title="The highest rate held without a growing inbox")
    table.add_column("system")
    for header in ("records/s", "per CPU-second", "cores used", "p50 ms", "p99 ms"):
        table.add_column(header, justify="right")
    label = f"Penstock, {tasks} counting task(s)"
    labels = (
        label,
        f"{label}, paced",
        f"{label}, at {TARGET_PER_S:,.0f}/s",
        "Spark, micro-batch",
        "Spark, as fast as it goes",
    )
    for name, figures in zip(labels, found, strict=True):
        table.add_row(
            name,
            f"{figures.per_s:,.0f}",
            f"{figures.per_cpu_s:,.0f}",
            f"{figures.cores_used:.2f}",
            str(figures.p50_ms or ""),
            str(figures.p99_ms or ""),
        )
    table.caption = f"Penstock counts {ratio} times as many records in a CPU-second"
    return table


if __name__ == "__main__":
    main()
