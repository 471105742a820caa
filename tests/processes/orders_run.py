"""A run of `orders -> count -> shown`: everything of `penstock run` but Spark.

`python -m processes.orders_run FOLDER [--fresh]`, for tests that kill what it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock_operator.local.run_start import RunRequest, run_topology
from penstock_operator.local.showing.run_output import open_output
from processes.orders_plan import PROCESS_RECORDS, orders_plan


def worker_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "processes.orders_worker", str(launch_file)]


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
        summary = run_topology(request, output, worker_command)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    output.end(summary)
    return 1 if summary.result == "failed" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
