"""A worker whose cycle may be N-Storm's: `python -m bench.cycled_worker LAUNCH.json`.

The file `cycle` beside the launch file holds T_W in seconds: the main process looks for a new schedule so
often, and is not woken by one. Without the file, and with 0, it is the product's worker. Only the bench of
migrations uses it, for its peers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock_worker.__main__ import main
from penstock_worker.main_process.control_watch import ControlWatch


def cycle_by(file: Path) -> None:
    """Have every wait of the main process look into `file` first."""
    product = ControlWatch.wait

    def wait(self: ControlWatch, seconds: float) -> bool:
        worker_s = float(file.read_text()) if file.exists() else 0.0
        if not worker_s:
            return product(self, seconds)
        time.sleep(worker_s)
        return product(self, 0)

    ControlWatch.wait = wait  # type: ignore[method-assign]


if __name__ == "__main__":
    cycle_by(Path(sys.argv[1]).with_name("cycle"))
    sys.exit(main(sys.argv[1:]))
