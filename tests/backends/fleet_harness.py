"""One way to handle both fleets in the contract suite: workers that obey, that are deaf, that die."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from clocks.eventually import eventually
from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock_operator.fleet.port import Fleet, FleetWorker, WorkerState
from penstock_operator.local.processes.fleet import LocalFleet
from penstock_simulation.twins.memory_fleet import MemoryFleet

LINES = ("one", "two", "three")

_PROGRAM = """
import signal, subprocess, sys, time
deaf = "deaf" in sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else (lambda *_: sys.exit(0)))
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
print("one"); print("two"); print("three", flush=True)
time.sleep(600)
"""


def harmless_command(launch_file: Path) -> Sequence[str]:
    """A worker that starts a child in another process group, writes `LINES` and waits."""
    return [sys.executable, "-S", "-c", _PROGRAM, launch_file.name]


def launch_of(worker: str, attempt: int = 0) -> WorkerLaunch:
    return WorkerLaunch(
        topology_uid="t",
        manifest="topology.yaml",
        base_dir=".",
        worker=worker,
        uid=f"{worker}-{attempt}",
        attempt=attempt,
        store_id="local",
        store_url="unix:///nowhere",
    )


def spark_launch_of(name: str) -> SparkWorkerLaunch:
    return SparkWorkerLaunch(
        worker=name,
        uid=f"{name}-0",
        master="spark://127.0.0.1:7077",
        node="beside",
        host="127.0.0.1",
        key_file="/nowhere",
        home_uid="w0-0",
    )


class FleetHarness(Protocol):
    fleet: Fleet

    def start(self, worker: str, attempt: int = 0) -> None:
        """Start a worker and wait until it has written its lines. One named "deaf..." does not obey."""

    def kill(self, worker: str) -> None: ...

    def until(self, worker: str, state: WorkerState) -> FleetWorker: ...

    def pass_time(self, seconds: float) -> None: ...


class MemoryHarness:
    def __init__(self) -> None:
        self._now_s = 0.0
        self.memory = MemoryFleet(lambda: self._now_s)
        self.fleet: Fleet = self.memory

    def start(self, worker: str, attempt: int = 0) -> None:
        self.fleet.start(launch_of(worker, attempt))
        for line in LINES:
            self.memory.write(worker, line)

    def kill(self, worker: str) -> None:
        self.memory.die(worker)

    def until(self, worker: str, state: WorkerState) -> FleetWorker:
        seen = by_name(self.fleet)[worker]
        if seen.state is WorkerState.STOPPING and state is WorkerState.ENDED and "deaf" not in worker:
            self.memory.leave(worker, 0)
            seen = by_name(self.fleet)[worker]
        assert seen.state is state
        return seen

    def pass_time(self, seconds: float) -> None:
        self._now_s += seconds


class LocalHarness:
    def __init__(self, folder: Path) -> None:
        self._skipped_s = 0.0
        self.local = LocalFleet(
            folder,
            f"test-{os.getpid()}",
            harmless_command,
            lambda: time.monotonic() + self._skipped_s,
            harmless_command,
        )
        self.fleet: Fleet = self.local

    def start(self, worker: str, attempt: int = 0) -> None:
        self.fleet.start(launch_of(worker, attempt))
        eventually(lambda: self.fleet.log_tail(worker, 1) == LINES[-1])

    def kill(self, worker: str) -> None:
        os.kill(self.local.pid(worker), signal.SIGKILL)

    def until(self, worker: str, state: WorkerState) -> FleetWorker:
        eventually(lambda: by_name(self.fleet)[worker].state is state)
        return by_name(self.fleet)[worker]

    def pass_time(self, seconds: float) -> None:
        self._skipped_s += seconds


def by_name(fleet: Fleet) -> dict[str, FleetWorker]:
    return {worker.worker: worker for worker in fleet.workers()}
