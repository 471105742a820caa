"""`python -m penstock_worker LAUNCH.json`: one worker process, until told to stop.

Exit codes: 0 stopped as asked, 1 it can never work (one sentence on stderr), 3 replaced by another start.
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.api.worker_launch import WorkerLaunch
from penstock.errors import PenstockError
from penstock.store.redis_store import RedisStore
from penstock_worker.clock import SystemClock
from penstock_worker.control_watch import ControlWatch
from penstock_worker.main_process import MainProcess, Replaced
from penstock_worker.prometheus import WorkerCollector, serve

_LOG = logging.getLogger("penstock_worker")


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    launch = WorkerLaunch.model_validate_json(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        return _run(launch)
    except Replaced as replaced:
        _LOG.warning("leaving: %s", replaced)
        return 3
    except PenstockError as error:
        sys.stderr.write(f"worker {launch.worker}: {error}\n")
        return 1


def _run(launch: WorkerLaunch) -> int:
    plan = compile_topology(load_topology(launch.manifest, launch.overrides))
    collector = WorkerCollector(plan.topology, launch.worker)
    if launch.metrics_port is not None:
        serve(collector, launch.metrics_port)
    # Spark takes seconds to import and start: what can fail has failed before.
    from penstock_worker.resident_tasks import ResidentTasks
    from penstock_worker.spark_session import start_session

    session = start_session(plan, launch.worker)
    store = RedisStore(launch.store_url, launch.topology_uid)
    watch = ControlWatch(RedisStore(launch.store_url, launch.topology_uid), launch.worker)
    resident = ResidentTasks(session.sparkContext, watch.wake)
    process = MainProcess(launch, plan, store, resident, watch, collector, SystemClock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.request_stop())
    watch.start()
    try:
        process.run()
    finally:
        watch.stop()
        store.close()
        session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
