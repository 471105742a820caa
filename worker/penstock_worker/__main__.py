"""`python -m penstock_worker [LAUNCH.json]`: one worker process, until told to stop.

Without a launch file it is the worker of a pod: the environment says what the file would (`worker_launch`).

Exit codes: 0 stopped as asked, 1 it can never work (one sentence on stderr), 3 replaced by another start (a
local worker only: in a cluster it waits), 4 its JVM has ended.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.launch.worker_launch import WorkerLaunch, launch_from
from penstock.api.load import load_topology
from penstock.dataflow.plan import Plan
from penstock.errors import PenstockError
from penstock.store.redis.store import RedisStore
from penstock_worker.main_process.control_watch import ControlStream, ControlWatch
from penstock_worker.main_process.loop import MainProcess, Replaced
from penstock_worker.main_process.prometheus import WorkerCollector, serve
from penstock_worker.main_process.source_announcer import SourceAnnouncer
from penstock_worker.main_process.vitals import Vitals
from penstock_worker.main_process.worker_report import WorkerReport
from penstock_worker.process.clock import SystemClock
from penstock_worker.spark.environment import prepare

_LOG = logging.getLogger("penstock_worker")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from outside of the pod


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    worker = ""
    try:
        launch = _launch(arguments)
        worker = f" {launch.worker}"
        return _run(launch)
    except Replaced as replaced:
        _LOG.warning("leaving: %s", replaced)
        return 3
    except PenstockError as error:
        sys.stderr.write(f"worker{worker}: {error}\n")
        return 1


def _launch(arguments: list[str]) -> WorkerLaunch:
    if arguments:
        return WorkerLaunch.model_validate_json(Path(arguments[0]).read_text(encoding="utf-8"))
    return launch_from(prepare())


def _leave(*_: object) -> None:
    """Until there are tasks to retire, there is nothing to wait for; the first process of a container has to
    say so itself."""
    raise SystemExit(0)


def _run(launch: WorkerLaunch) -> int:
    topology = load_topology(launch.manifest, launch.overrides, runtime=launch.runtime)
    plan = compile_topology(topology, launch.runtime)
    clock = SystemClock()
    vitals = Vitals(clock)
    collector = WorkerCollector(plan.topology, launch.worker)
    if launch.metrics_port is not None:
        address = _ANY_ADDRESS if launch.runtime == "cluster" else "127.0.0.1"
        serve(collector, vitals, launch.metrics_port, address)
    if launch.base_dir not in sys.path:
        sys.path.insert(0, launch.base_dir)
    # Spark takes seconds to import and start: what can fail has failed before.
    from penstock_worker.spark.batch_door import open_batch_door
    from penstock_worker.spark.jvm_watch import JvmWatch, end_at_once
    from penstock_worker.spark.resident_tasks import MemoryLimit, ResidentTasks
    from penstock_worker.spark.session import start_session
    from penstock_worker.spark.task_ends import TaskEnds

    announcer = _announcer(launch, plan, clock)
    if announcer is not None:
        announcer.start()
    ends = TaskEnds()
    session = start_session(plan, launch)
    jvm_watch = JvmWatch(session.jvm, partial(end_at_once, launch.worker), ends)
    jvm_watch.start()
    vitals.resting("it is not enrolled yet")
    store = RedisStore(launch.store_url, launch.topology_uid)
    watch = ControlWatch(ControlStream(RedisStore(launch.store_url, launch.topology_uid), launch.worker))
    memory = MemoryLimit(f"{plan.memory_bytes / (1 << 20):.0f}Mi", launch.kills_file)
    door = open_batch_door(session.spark, plan, Path(launch.base_dir))
    resident = ResidentTasks(
        session.spark.sparkContext,
        session.places,
        watch.wake,
        ends=ends,
        memory=memory,
        batch_door=door.path if door is not None else "",
    )
    spark_master = session.master.url if session.master is not None else ""
    report = WorkerReport(launch, store, collector, clock, os.getpid(), spark_master)
    process = MainProcess(launch, plan, store, resident, report, clock, vitals, announcer)

    def stop(*_: object) -> None:
        process.request_stop()
        watch.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    watch.start()
    try:
        process.run(watch.wait)
    finally:
        jvm_watch.dismiss()
        resident.close()
        if door is not None:
            door.close()
        watch.stop()
        if announcer is not None:
            announcer.stop()
        store.close()
        session.stop()
    return 0


def _announcer(launch: WorkerLaunch, plan: Plan, clock: SystemClock) -> SourceAnnouncer | None:
    """`penstock run` looks for partitions itself."""
    if launch.runtime == "local":
        return None
    return SourceAnnouncer(launch, plan, RedisStore(launch.store_url, launch.topology_uid), clock)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
