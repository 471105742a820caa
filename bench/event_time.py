"""`make bench-event-time`: timers in processing time; event time and windows are still to come.

Each record of zipf keys sets a timer for half a second later (`timing.py`). Lateness is taken in an otherwise
idle system, at `IDLE_PER_S` records a second, from when a timer was due to its row in the sink's file.
Timers per CPU-second are those that fired while records came as fast as they were taken, divided by the CPU
time of all processes, the store included; each of them was also set there.
"""

from __future__ import annotations

from typing import Any

from bench import cpu, machine, penstock_side
from bench.penstock_side import PenstockRun
from bench.screen import Screen, scratch, seconds_per_figure, show
from rich.table import Table

SECONDS = 15.0
WARMUP_S = 6.0
IDLE_PER_S = 200.0


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(2)
    with screen.step(f"timers, {IDLE_PER_S:,.0f}/s"), scratch("timers") as folder:
        idle = _measure(IDLE_PER_S, seconds, folder, screen)
    with screen.step("timers, as fast as it goes"), scratch("timers") as folder:
        full = _measure(None, seconds, folder, screen)
    timers = figures(idle, full)
    result = {"bench": "event-time", "timers": timers, "seconds": seconds, "machine": machine.description()}
    show(_table(timers), result)


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


def _measure(rate_per_s: float | None, seconds: float, folder: Any, screen: Screen) -> PenstockRun:
    return penstock_side.measure(
        rate_per_s, "Process", 1, WARMUP_S, seconds, folder, screen.tell, topology="timers", code="timing.py"
    )


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 2)


def _table(timers: dict[str, Any]) -> Table:
    table = Table(title="Timers in processing time")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in timers.items():
        table.add_row(name, f"{value:,}")
    return table


if __name__ == "__main__":
    main()
