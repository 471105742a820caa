"""`python -m bench.locality.worker LAUNCH.json`: the product's worker without a Spark session, until SIGTERM.

Main process, tasks, stages, state and sinks are the product's. What Spark does in a worker is to start its
tasks as Python processes; here they are forks of the main process, so that six workers of three tasks each
fit onto two cores. The launch's manifest is a JSON file of `Application`. Neighbour: `nodes` starts it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import msgspec
from bench.locality.streams import StreamReader
from bench.locality.topology import locality_plan

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.errors import PenstockError
from penstock.store.redis.store import RedisStore
from penstock_worker.main_process.control_watch import ControlStream, ControlWatch
from penstock_worker.main_process.loop import MainProcess, Replaced
from penstock_worker.main_process.prometheus import WorkerCollector
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.main_process.vitals import Vitals
from penstock_worker.main_process.worker_report import WorkerReport
from penstock_worker.process.clock import SystemClock
from penstock_worker.spark.task_entry import assemble
from penstock_worker.task.launch import TaskLaunch

_FORK = get_context("fork")
_PR_SET_PDEATHSIG = 1


class Application(msgspec.Struct, frozen=True):
    """What the plan is made of."""

    hosts: int
    types: tuple[str, str]
    sink: bool
    locality: bool = True


class ForkedTasks:
    """Keeps the port `TaskStarter`."""

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir
        self._running: list[tuple[ResidentTask, ForkProcess]] = []

    def can_start(self, node: str) -> bool:
        return not node

    def start(self, launch: TaskLaunch) -> ResidentTask:
        task = ResidentTask(launch, launch.name)
        process = _FORK.Process(target=_run_task, args=(launch, self._base_dir), name=launch.name)
        process.start()
        self._running.append((task, process))
        return task

    def cancel(self, task: ResidentTask) -> None:
        for one, process in self._running:
            if one is task:
                process.kill()

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        return False

    def prepare(self, busy_share: float) -> None:
        """Nobody stands by."""

    def look(self) -> None:
        """Say of those that are over that they are."""
        for one in [one for one in self._running if not one[1].is_alive()]:
            self._running.remove(one)
            task, process = one
            process.join()
            task.error = f"exit code {process.exitcode}" if process.exitcode else ""
            task.ended.set()

    def close(self) -> None:
        for _, process in self._running:
            process.kill()
            process.join()


def _run_task(launch: TaskLaunch, base_dir: Path) -> None:
    # A main process that is killed takes its tasks along.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store, waiter = (RedisStore(launch.store_url, launch.topology_uid, launch.bounds) for _ in range(2))
    clock = SystemClock(launch.anchor)
    assemble(launch, store, waiter, clock, readers=lambda *_: StreamReader(base_dir)).run()


def main(launch_file: str) -> int:
    """The exit code: 0 when it was told to end."""
    launch = WorkerLaunch.model_validate_json(Path(launch_file).read_text(encoding="utf-8"))
    told = msgspec.json.decode(Path(launch.manifest).read_bytes(), type=Application)
    plan = locality_plan(told.hosts, told.types, sink=told.sink, locality=told.locality)
    store = RedisStore(launch.store_url, launch.topology_uid)
    clock = SystemClock()
    tasks = ForkedTasks(Path(launch.base_dir))
    report = WorkerReport(
        launch, store, WorkerCollector(plan.topology, launch.worker), clock, pid=os.getpid()
    )
    process = MainProcess(launch, plan, store, tasks, report, clock, Vitals(clock))
    watch = ControlWatch(ControlStream(RedisStore(launch.store_url, launch.topology_uid), launch.worker))

    def stop(*_: object) -> None:
        process.request_stop()
        watch.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    watch.start()

    def wait(seconds: float) -> None:
        watch.wait(seconds)
        tasks.look()

    try:
        process.run(wait)
    except Replaced:
        return 3
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        tasks.close()
        watch.stop()
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
