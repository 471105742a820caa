"""`make bench-throughput`: the highest rate held without a growing inbox, in records per CPU-second.

Each side is first run as fast as it goes, which tells what to try; then at a share of that, step by step
lower until nothing grows. The figures are those of the run that held: records counted, divided by the CPU
time of all processes of the side, the store included. Spark takes bounded batches (the bound is in its frozen
settings): the larger they are, the more records share one access to state, and the older a record gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import cpu, machine, penstock_side, plots, spark_side
from bench.penstock_side import PenstockRun
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.spark_peer import Settings
from bench.spark_side import SparkRun
from bench.spark_sweep import SATURATION_RATE_PER_S
from rich.table import Table

SECONDS = 15.0
PENSTOCK_WARMUP_S = 6.0
SPARK_WARMUP_S = 25.0
SPARK_BATCHES_MIN = 6
"""So many full batches fit into the time that is measured, if need be it is lengthened."""
SHARES = (0.95, 0.85, 0.75, 0.65, 0.55, 0.45)
"""Of the rate at saturation, tried in this order until one is held."""
TASKS = 2


class NothingHeldError(Exception):
    """Not even the lowest of `SHARES` was held."""


def _held(what: str, saturated_per_s: float, run: Callable[[float], Any]) -> tuple[float, Any]:
    """The first share of `saturated_per_s` that is held: (rate, run). Raises NothingHeldError."""
    for share in SHARES:
        rate_per_s = float(round(saturated_per_s * share))
        found = run(rate_per_s)
        if found.held:
            return rate_per_s, found
    raise NothingHeldError(f"{what} held no rate down to {SHARES[-1]:.0%} of {saturated_per_s:.0f}/s")


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(6)

    def penstock(tasks: int, rate_per_s: float | None) -> PenstockRun:
        rate = "as fast as it goes" if rate_per_s is None else f"{rate_per_s:,.0f}/s"
        with (
            screen.step(f"Penstock, {tasks} counting tasks, {rate}"),
            scratch("penstock") as folder,
        ):
            return penstock_side.measure(
                rate_per_s, "Process", tasks, PENSTOCK_WARMUP_S, seconds, folder, screen.tell
            )

    settings = spark_side.settings_for("throughput")

    def spark(rate_per_s: float, measured_s: float) -> SparkRun:
        rate = "as fast as it goes" if rate_per_s == SATURATION_RATE_PER_S else f"{rate_per_s:,.0f}/s"
        with screen.step(f"Spark, micro-batch, {rate}"), scratch("spark") as folder:
            return spark_side.measure(settings, rate_per_s, SPARK_WARMUP_S, measured_s, folder, screen.tell)

    several = penstock(TASKS, None)
    several_rate, several_held = _held(
        "Penstock", _saturated_per_s(several), lambda rate_per_s: penstock(TASKS, rate_per_s)
    )
    one = penstock(1, None)
    one_rate, one_held = _held("One task", _saturated_per_s(one), lambda rate_per_s: penstock(1, rate_per_s))
    peer = spark(SATURATION_RATE_PER_S, seconds)
    batch_s = settings.max_records / peer.processed_per_s
    peer_rate, peer_held = _held(
        "Spark",
        peer.processed_per_s,
        lambda rate_per_s: spark(rate_per_s, max(seconds, SPARK_BATCHES_MIN * batch_s)),
    )

    best_rate, best = max(
        ((several_rate, several_held), (one_rate, one_held)), key=lambda found: found[1].records_per_cpu_s
    )
    result = {
        "bench": "throughput",
        "penstock_per_cpu_s": round(best.records_per_cpu_s, 1),
        "spark_micro_batch_per_cpu_s": round(peer_held.records_per_cpu_s, 1),
        "ratio": round(best.records_per_cpu_s / peer_held.records_per_cpu_s, 2),
        "penstock_one_task_per_s": round(one_held.processed_per_s, 1),
        "mode": "Process",
        "penstock_per_s": best_rate,
        "spark_micro_batch_per_s": peer_rate,
        "penstock_tasks": {
            str(TASKS): _penstock(several, several_rate, several_held),
            "1": _penstock(one, one_rate, one_held),
        },
        "spark_micro_batch": _spark(settings, peer, peer_rate, peer_held),
        "seconds": seconds,
        "machine": machine.description(),
    }
    plots.throughput(
        RESULTS / "throughput.png",
        {
            "Penstock, Process": best.records_per_cpu_s,
            "Spark, micro-batch": peer_held.records_per_cpu_s,
        },
        {"Penstock, Process": best_rate, "Spark, micro-batch": peer_rate},
    )
    show(_table(result), result)


def _saturated_per_s(run: PenstockRun) -> float:
    """What is read as fast as it goes fills the inboxes first and is counted later: the slower of the two."""
    return min(run.read_per_s, run.processed_per_s)


def _penstock(saturated: PenstockRun, rate_per_s: float, held: PenstockRun) -> dict[str, Any]:
    return {
        "saturated_per_s": round(_saturated_per_s(saturated), 1),
        "saturated_per_cpu_s": round(saturated.records_per_cpu_s, 1),
        "held_per_s": rate_per_s,
        "held_per_cpu_s": round(held.records_per_cpu_s, 1),
        "cores_used": round(held.cores_used, 2),
        "p50_ms": _ms(held.rows.quantile_us(0.5)),
        "p99_ms": _ms(held.rows.quantile_us(0.99)),
        "cpu_s_by_process": _rounded(held.cpu_s_by_process),
    }


def _spark(settings: Settings, saturated: SparkRun, rate_per_s: float, held: SparkRun) -> dict[str, Any]:
    return {
        "saturated_per_s": round(saturated.processed_per_s, 1),
        "saturated_per_cpu_s": round(saturated.records_per_cpu_s, 1),
        "held_per_s": rate_per_s,
        "held_per_cpu_s": round(held.records_per_cpu_s, 1),
        "cores_used": round(held.cores_used, 2),
        "p50_ms": _ms(held.records.quantile_us(0.5)),
        "p99_ms": _ms(held.records.quantile_us(0.99)),
        "records_a_batch_max": settings.max_records,
        "batch_ms": held.batch_ms,
        "cpu_s_by_process": _rounded(held.cpu_s_by_process),
    }


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(spent, 1) for name, spent in seconds.items() if spent >= 0.1}


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 1)


def _table(result: dict[str, Any]) -> Table:
    table = Table(title="The highest rate held without a growing inbox")
    table.add_column("system")
    for header in ("records/s", "per CPU-second", "cores used", "p50 ms", "p99 ms"):
        table.add_column(header, justify="right")
    lines = {
        **{f"Penstock, {n} counting task(s)": found for n, found in result["penstock_tasks"].items()},
        "Spark, micro-batch": result["spark_micro_batch"],
    }
    for label, found in lines.items():
        table.add_row(
            label,
            f"{found['held_per_s']:,.0f}",
            f"{found['held_per_cpu_s']:,.0f}",
            f"{found['cores_used']:.2f}",
            str(found["p50_ms"]),
            str(found["p99_ms"]),
        )
    table.caption = f"Penstock counts {result['ratio']} times as many records in a CPU-second"
    return table


if __name__ == "__main__":
    main()
