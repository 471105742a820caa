"""`python -m processes.orders_worker LAUNCH.json`: a worker of `orders_run` as a process, until SIGTERM.

It ends as the product's does. Neighbour: `sparkless_worker` is what it runs.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.errors import PenstockError
from penstock.store.redis.store import RedisStore
from penstock_worker.main_process.loop import Replaced
from penstock_worker.process.clock import SystemClock
from processes.numbered_rows import NumberedRows
from processes.orders_plan import PROCESS_RECORDS, orders_plan
from processes.sparkless_worker import SparklessWorker

TURN_S = 0.01


def main(launch_file: str) -> int:
    launch = WorkerLaunch.model_validate_json(Path(launch_file).read_text(encoding="utf-8"))
    worker = SparklessWorker(
        launch,
        orders_plan(PROCESS_RECORDS),
        lambda: RedisStore(launch.store_url, launch.topology_uid),
        SystemClock(),
        lambda *_: NumberedRows(PROCESS_RECORDS, int(TURN_S * 1e6)),
    )
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        while not worker.process.ended:
            worker.turn()
            if told.wait(TURN_S):
                worker.process.request_stop()
    except Replaced:
        return 3
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
