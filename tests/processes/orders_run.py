"""A run of `orders -> count -> shown` whose workers are stand-ins: everything of `penstock run` but Spark.

`python stand_in_run.py FOLDER [--fresh]`, for tests that kill what it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.connectors.console import ConsoleSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Fanout, KeyedEdge, Plan, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.errors import PenstockError
from penstock_operator.local.run_start import RunRequest, run_topology
from penstock_operator.local.showing.run_output import open_output
from processes.stand_in_workers import KEYED_SHARDS, PROCESS_RECORDS

PARTITIONS = 2
ROW = Schema((Column("name", "string"), Column("number", "bigint")))


def orders_plan(records: int) -> Plan:
    """orders (zipf) -> count (keyed) -> shown (console); `records` of each of two partitions."""
    source = ZipfSource(10, 1.0, 8, 0, None, records * PARTITIONS, 0.0, PARTITIONS, 1)
    edge = KeyedEdge("count", (0,), KEYED_SHARDS)
    orders = Stage("orders", source, Tasks(1, 4, 2), Fanout(ROW, (), (), (edge,)))
    count = Stage(
        "count",
        Processor("m:Count", ROW, (0,), KEYED_SHARDS),
        Tasks(1, 4, 2),
        Fanout(ROW, (), (ConsoleSink("shown"),), ()),
    )
    return Plan("orders", "m", "Process", 2, 1 << 31, (orders, count))


def expected_names(records: int) -> list[str]:
    """What the console shows in all, sorted."""
    return sorted(f"orders/{part}:{number}" for part in range(PARTITIONS) for number in range(records))


def stand_in_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "processes.stand_in_workers", str(launch_file)]


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    request = RunRequest(
        plan=orders_plan(PROCESS_RECORDS),
        manifest_text="",
        base_dir=folder,
        state_folder=folder / "state",
        workers=2,
        time_limit_s=None,
        fresh="--fresh" in arguments,
        metrics_port=None,
    )
    output = open_output(live=False, log_every_s=1.0)
    try:
        summary = run_topology(request, output, stand_in_command)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    output.end(summary)
    return 1 if summary.result == "failed" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
