"""`make bench-throughput-forms`: one count, and one filter and projection, in each form.

Records per CPU-second of whole systems, as fast as they go: `penstock run` with its store, its Spark session
and its sinks, and all their CPU time; and Spark itself beside it. `step_forms` compares what the step alone
takes.
"""

from __future__ import annotations

from typing import Any

from bench import cpu, machine, penstock_side, spark_side, spark_windows
from bench.filtering_keys import FILTER, SELECT
from bench.penstock_side import PenstockRun
from bench.screen import Screen, scratch, seconds_per_figure, show
from bench.spark_sweep import SATURATION_RATE_PER_S
from bench.spark_windows import SparkWindows
from rich.table import Table

SECONDS = 12.0
WARMUP_S = 6.0
COUNTS = {
    "count, Rows": ("counting.py", ()),
    "count, pandas": (
        "counting_in_pandas.py",
        ("code.module=counting_in_pandas", "count.processor=counting_in_pandas:Count"),
    ),
}
FEW_KEYS = "records.source.zipf.keys=16"
"""So few that each of a batch's keys has tens of rows."""
_NO_MAP = "kept.map=null"
STEPS = {
    "step, map of Rows": (),
    "step, map of tuples": ("kept.map=filtering_keys:in_tuples",),
    "step, mapInPandas": (_NO_MAP, "kept.mapInPandas=filtering_keys:in_pandas"),
    "step, mapInArrow": (_NO_MAP, "kept.mapInArrow=filtering_keys:in_arrow"),
    "step, filter and select": (
        _NO_MAP,
        "kept.outputSchema=null",
        f"kept.filter={FILTER}",
        f"kept.select=[{', '.join(SELECT)}]",
    ),
    "transform": (_NO_MAP, "kept.transform=filtering_keys:in_spark"),
}
SPARKS = {"Spark, filter and select": "filter", "Spark, mapInArrow": "filter_in_arrow"}
"""Structured Streaming, in the micro-batches that `spark_sweep` froze for throughput."""
SPARK_WARMUP_S = 25.0
"""A JVM's first jobs take seconds."""


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(2 * len(COUNTS) + len(STEPS) + len(SPARKS))

    def measured(name: str, topology: str, code: str, sets: tuple[str, ...], *, keyed: bool) -> PenstockRun:
        warmup_s = SPARK_WARMUP_S if name == "transform" else WARMUP_S
        with screen.step(name), scratch("forms") as folder:
            return penstock_side.measure(
                None, "Process", 1, warmup_s, seconds, folder, screen.tell,
                topology=topology, code=code, sets=sets, keyed=keyed,
            )  # fmt: skip

    runs: dict[str, PenstockRun | SparkWindows] = {}
    for name, (code, sets) in COUNTS.items():
        runs[name] = measured(name, "counting", code, sets, keyed=True)
        few = f"{name}, 16 keys"
        runs[few] = measured(few, "counting", code, (*sets, FEW_KEYS), keyed=True)
    for name, sets in STEPS.items():
        runs[name] = measured(name, "filtering", "filtering_keys.py", sets, keyed=False)
    for name, query in SPARKS.items():
        with screen.step(name), scratch("forms") as folder:
            runs[name] = spark_windows.measure(
                query, spark_side.settings_for("throughput"), SATURATION_RATE_PER_S, SPARK_WARMUP_S,
                seconds, folder, screen.tell, saturated=True,
            )  # fmt: skip
    result: dict[str, Any] = {
        "bench": "throughput_forms",
        "records_per_cpu_s": {name: round(run.records_per_cpu_s) for name, run in runs.items()},
        "records_per_s": {name: round(run.processed_per_s) for name, run in runs.items()},
        "seconds": seconds,
        "machine": machine.description(),
    }
    show(_table(runs), result)


def _table(runs: dict[str, PenstockRun | SparkWindows]) -> Table:
    table = Table(title="One count, and one filter and projection, as fast as they go")
    table.add_column("form")
    for header in ("records/s", "per CPU-second"):
        table.add_column(header, justify="right")
    for name, run in runs.items():
        table.add_row(name, f"{run.processed_per_s:,.0f}", f"{run.records_per_cpu_s:,.0f}")
    return table


if __name__ == "__main__":
    main()
