"""`python -m bench.step_forms`: CPU time of one filter and projection in each form of step.

What a task does between a read and a commit, in this process: wire rows go through the step and become
entries for a sink. Half of the rows come out, five columns go in and three out. Each form's best of many
turns, by CPU time, so that other load on the machine matters little. `make bench-throughput` has whole
systems; this one compares the forms, and two versions of the code.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.expressions.column_step import read_filter, read_select
from penstock.dataflow.plan import ARROW, PANDAS, ROWS, Fanout, Step
from penstock.store.port import Bounds
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.values.held import Held

GIVEN = parse_schema("auction bigint, bidder string, price double, channel string, at timestamp")
OUTPUT = parse_schema("auction bigint, bidder string, price double")
FORMS = {
    "map, Rows": ("in_rows", ROWS),
    "map, tuples": ("in_tuples", ROWS),
    "mapInPandas": ("in_pandas", PANDAS),
    "mapInArrow": ("in_arrow", ARROW),
    "filter and select": ("", ""),
}
FILTER = "price > 500"
SELECT = ("auction", "bidder", "price * 0.908 AS price")
PARTS = (64, 1024, 8192)
"""Rows at once; a source's part has at most 1024."""
SECONDS = 1.0
BEGIN_US = 1_700_000_000_000_000


def ns_per_row(function: str, form: str, rows: int) -> float:
    generator = random.Random(1)
    given = [
        (
            generator.randrange(10_000),
            f"bidder {generator.randrange(1000)}",
            1000 * generator.random(),
            "channel",
            BEGIN_US + n,
        )
        for n in range(rows)
    ]
    out = Fanout(OUTPUT, (), (ConsoleSink("out"),), ())
    if form:
        step = Step("kept", f"bench.filtering:{function}", out, form=form)
    else:
        columns = replace(read_select(SELECT, GIVEN), kept=read_filter(FILTER, GIVEN), filter_text=FILTER)
        step = Step("kept", "", out, columns=columns)
    runner = FanoutRunner(Fanout(GIVEN, (step,), (), ()), Path())
    held, bounds, times_us = Held(Bounds(), alone=False), Bounds(), [BEGIN_US] * rows
    best_ns, end = float("inf"), time.process_time() + SECONDS
    while time.process_time() < end:
        begun_ns = time.process_time_ns()
        for _ in range(5):
            outputs = OutputBatch(bounds, "bids/0", held)
            runner.feed(given, times_us, outputs)
            outputs.drain()
        best_ns = min(best_ns, (time.process_time_ns() - begun_ns) / 5)
    return best_ns / rows


def main() -> None:
    figures: dict[str, dict[str, int]] = {}
    print(f"{'rows a CPU-second, at so many at once':40}" + "".join(f"{rows:>12}" for rows in PARTS))
    for name, (function, form) in FORMS.items():
        found = {str(rows): round(1e9 / ns_per_row(function, form, rows)) for rows in PARTS}
        figures[name] = found
        print(f"{name:40}" + "".join(f"{value:>12,}" for value in found.values()))
    print(json.dumps({"bench": "step_forms", "rows_per_cpu_second": figures}))


if __name__ == "__main__":
    main()
