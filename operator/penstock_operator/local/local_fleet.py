"""Workers as process trees of this machine: the port `Fleet` behind `penstock run`.

A worker is a main process in a session of its own, a JVM and Python processes under it. When the main process
ends, however it ended, the rest of its tree is killed: what it had claimed is taken by others at once,
and Spark's Python processes would otherwise outlive it. Neighbours: `marked_processes` finds a worker's
tree, `sentinel` does the same when this very process was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.api.spark_worker_launch import SparkWorkerLaunch
from penstock_operator.fleet import (
    FleetWorker,
    Launch,
    WorkerNotStartedError,
    WorkerState,
    WorkerStillThereError,
)
from penstock_operator.local.marked_processes import MARK, kill_marked, marked

_PR_SET_CHILD_SUBREAPER = 36
_LOG_BYTES_MAX = 16 << 20
_TAIL_BYTES = 64 << 10
_SWEEP_S_MAX = 10.0


def worker_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "penstock_worker", str(launch_file)]


def spark_worker_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "penstock_worker.spark_worker", str(launch_file)]


@dataclass
class _Worker:
    launch: Launch
    process: subprocess.Popen[bytes]
    log_start: int
    """Where this attempt begins in the log file."""
    deadline_s: float | None = None
    cores: float | None = None
    cpus: frozenset[int] = frozenset()
    sweep_until_s: float | None = None
    swept: bool = False


class LocalFleet:
    """Keeps the port `Fleet`. `folder` gets a launch file and a log file per worker.

    `token` marks this run's processes. `command` turns a launch file into the process to start,
    `spark_command` that of a Spark worker.
    """

    def __init__(
        self,
        folder: Path,
        token: str,
        command: Callable[[Path], Sequence[str]] = worker_command,
        clock_s: Callable[[], float] = time.monotonic,
        spark_command: Callable[[Path], Sequence[str]] = spark_worker_command,
    ) -> None:
        self._folder = folder
        self._token = token
        self._command = command
        self._spark_command = spark_command
        self._clock_s = clock_s
        self._workers: dict[str, _Worker] = {}
        _adopt_orphans()

    def start(self, launch: Launch) -> None:
        before = self._workers.get(launch.worker)
        if before is not None and before.process.poll() is None:
            raise WorkerStillThereError(f"worker {launch.worker} still runs as process {before.process.pid}")
        if before is not None:
            self._sweep(before)
        try:
            self._workers[launch.worker] = self._spawn(launch, is_first=before is None)
        except OSError as error:
            raise WorkerNotStartedError(
                f"Worker {launch.worker} cannot be started in {self._folder} ({error.strerror}): "
                "free what it lacks, or choose another directory with --state-dir."
            ) from error

    def stop(self, worker: str, grace_s: float) -> None:
        known = self._workers.get(worker)
        if known is None or known.process.poll() is not None:
            return
        deadline_s = self._clock_s() + grace_s
        if known.deadline_s is None:
            known.process.terminate()
            known.deadline_s = deadline_s
        else:
            known.deadline_s = min(known.deadline_s, deadline_s)
        self._enforce(known)

    def resize(self, worker: str, cores: float) -> None:
        """Bind the worker's threads to as many CPUs, those that fewest workers are bound to.

        A slice of a core is rounded up: a bare process has no finer limit.
        """
        known = self._workers[worker]
        if known.process.poll() is not None or known.deadline_s is not None:
            raise KeyError(worker)
        known.cpus = frozenset()
        machine = sorted(os.sched_getaffinity(0))
        bound = [cpu for other in self._workers.values() for cpu in other.cpus]
        machine.sort(key=bound.count)
        known.cpus = frozenset(machine[: max(1, math.ceil(cores))])
        known.cores = cores
        for pid in marked(self._mark(known.launch)):
            _bind(pid, known.cpus)

    def workers(self) -> tuple[FleetWorker, ...]:
        for known in self._workers.values():
            self._enforce(known)
        return tuple(self._seen(name) for name in sorted(self._workers))

    def log_tail(self, worker: str, lines: int) -> str:
        known = self._workers.get(worker)
        if known is None:
            return ""
        with self.log_file(worker).open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(known.log_start, end - _TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def log_file(self, worker: str) -> Path:
        return self._folder / f"{worker}.log"

    def pid(self, worker: str) -> int:
        """The main process of a worker. KeyError when it was never started."""
        return self._workers[worker].process.pid

    def close(self) -> None:
        """Kill whatever still runs, and wait until nothing is left."""
        for known in self._workers.values():
            known.process.kill()
        for known in self._workers.values():
            known.process.wait()
        self.workers()
        while not all(known.swept for known in self._workers.values()):
            time.sleep(0.01)
            self.workers()

    def _spawn(self, launch: Launch, *, is_first: bool) -> _Worker:
        command = self._spark_command if isinstance(launch, SparkWorkerLaunch) else self._command
        launch_file = self._folder / f"{launch.worker}.json"
        launch_file.write_text(launch.model_dump_json(indent=2), encoding="utf-8")
        log_file = self.log_file(launch.worker)
        fresh = is_first or log_file.stat().st_size > _LOG_BYTES_MAX
        with log_file.open("wb" if fresh else "ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command(launch_file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", MARK: self._mark(launch)},
            )
        return _Worker(launch, process, log_start)

    def _mark(self, launch: Launch) -> str:
        return f"{self._token}/worker/{launch.uid}/{launch.attempt}/"

    def _seen(self, name: str) -> FleetWorker:
        known = self._workers[name]
        code = known.process.poll()
        if code is not None:
            state = WorkerState.ENDED
        else:
            state = WorkerState.RUNNING if known.deadline_s is None else WorkerState.STOPPING
        ending = "" if code is None else _ending(code)
        return FleetWorker(name, known.launch.uid, known.launch.attempt, state, ending, known.cores)

    def _enforce(self, known: _Worker) -> None:
        """Kill a worker past its deadline, and what an ended one left behind."""
        if known.process.poll() is None:
            if known.deadline_s is not None and known.deadline_s <= self._clock_s():
                known.process.kill()
            return
        self._sweep(known)

    def _sweep(self, known: _Worker) -> None:
        """Kill what is left of an ended worker and collect it; done when its session is empty."""
        if known.swept:
            return
        if known.sweep_until_s is None:
            known.sweep_until_s = self._clock_s() + _SWEEP_S_MAX
        kill_marked(self._mark(known.launch))
        left = _session(known.process.pid)
        for pid in left:
            with contextlib.suppress(ChildProcessError):  # not ours yet, or collected by its parent
                os.waitpid(pid, os.WNOHANG)
        known.swept = not left or self._clock_s() >= known.sweep_until_s


def _session(leader: int) -> list[int]:
    """Processes of a session that has lost its leader, zombies included."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
    return found


def _adopt_orphans() -> None:
    """Processes whose parent is gone become ours: a container's first process may never collect them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _bind(pid: int, cpus: frozenset[int]) -> None:
    """Every thread of a process; later ones inherit from the one that makes them."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), cpus)
    except (FileNotFoundError, ProcessLookupError):
        return


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
