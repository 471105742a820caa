"""Workers as process trees of this machine: the port `Fleet` behind `penstock run`.

A worker is a main process in a session of its own, a JVM and Python processes under it. When the main process
ends, however it ended, the rest of its tree is killed: what it had claimed is taken by others at once,
and Spark's Python processes would otherwise outlive it. It ends itself when this very process is killed.
Neighbours: `marked_processes` finds a worker's tree, `worker_memory` holds it to its limit, `worker_logs`
keeps what it prints, `sentinel` ends what a killed run has left.
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

from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.process_look import EXIT_JVM_GONE, STOPPED, look_at
from penstock_operator.fleet.port import (
    FleetWorker,
    Launch,
    WorkerNotStartedError,
    WorkerState,
    WorkerStillThereError,
)
from penstock_operator.local.processes.marked_processes import MARK, kill_marked, marked, marks
from penstock_operator.local.processes.parent_death import ends_with_starter
from penstock_operator.local.processes.worker_logs import begin_log, bound_log
from penstock_operator.local.processes.worker_memory import keep_within

_PR_SET_CHILD_SUBREAPER = 36
_TAIL_BYTES = 64 << 10
_SWEEP_S_MAX = 10.0
_LOOK_S = 1.0
"""Between two looks at which processes there are, at logs, and at main processes that stand still."""
_MEMORY_LOOK_S = 0.25
_STOPPED_S = 60.0
"""A main process that was stopped is killed after so long; its tasks have gone on meanwhile. The kubelet
would see it as late."""


def worker_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "penstock_worker", str(launch_file)]


def spark_worker_command(launch_file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "penstock_worker.spark.spark_worker", str(launch_file)]


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
    stopped_since_s: float | None = None
    tree: frozenset[int] = frozenset()


class LocalFleet:
    """Keeps the port `Fleet`. `folder` gets a launch file and a log file per worker.

    `token` marks this run's processes. `command` turns a launch file into the process to start,
    `spark_command` that of a Spark worker. A worker may hold `memory_bytes`. The thread that starts workers
    has to live as long as they: they end with it.
    """

    def __init__(
        self,
        folder: Path,
        token: str,
        command: Callable[[Path], Sequence[str]] = worker_command,
        clock_s: Callable[[], float] = time.monotonic,
        spark_command: Callable[[Path], Sequence[str]] = spark_worker_command,
        memory_bytes: int | None = None,
    ) -> None:
        self._folder = folder
        self._token = token
        self._command = command
        self._spark_command = spark_command
        self._clock_s = clock_s
        self._memory_bytes = memory_bytes
        self._workers: dict[str, _Worker] = {}
        self._look_s = self._memory_look_s = 0.0
        self.tell: Callable[[str], None] = lambda _: None
        """Told in a sentence what was done to a worker that nobody had asked for."""
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
        self._look()
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

    def kills_file(self, worker: str) -> Path:
        """Where it is written whom of a worker's processes were killed for memory: lines "PID REASON"."""
        return self._folder / f"{worker}.kills"

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
        if is_first:
            begin_log(log_file)
            self.kills_file(launch.worker).unlink(missing_ok=True)
        bound_log(log_file)
        with log_file.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command(launch_file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ends_with_starter(),  # noqa: PLW1509 - it takes no lock
                env={**os.environ, "PYTHONUNBUFFERED": "1", MARK: self._mark(launch)},
            )
        return _Worker(launch, process, log_start)

    def _mark(self, launch: Launch) -> str:
        return f"{self._token}/worker/{launch.uid}/{launch.attempt}/"

    def _look(self) -> None:
        """What nobody asks for: bounds of memory and logs, and the end of what stands still."""
        now_s = self._clock_s()
        living = {name: known for name, known in self._workers.items() if known.process.poll() is None}
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            trees = marks(f"{self._token}/worker/") if living else {}
            for name, known in living.items():
                mark = self._mark(known.launch)
                known.tree = frozenset(pid for pid, found in trees.items() if found == mark)
                if bound_log(self.log_file(name)):
                    known.log_start = 0
                self._end_stopped(name, known, now_s)
        if self._memory_bytes is not None and now_s >= self._memory_look_s:
            self._memory_look_s = now_s + _MEMORY_LOOK_S
            for name, known in living.items():
                if isinstance(known.launch, WorkerLaunch):
                    told = keep_within(known.tree, self._memory_bytes, self.kills_file(name))
                    if told:
                        self.tell(f"worker {name} {told}")

    def _end_stopped(self, name: str, known: _Worker, now_s: float) -> None:
        seen = look_at(known.process.pid)
        if seen is None or seen.state != STOPPED:
            known.stopped_since_s = None
        elif known.stopped_since_s is None:
            known.stopped_since_s = now_s
        elif now_s - known.stopped_since_s >= _STOPPED_S:
            self.tell(f"worker {name} was stopped {_STOPPED_S:.0f} s ago and did not go on: it is killed")
            known.process.kill()

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
    if code == EXIT_JVM_GONE:
        return "ended, because its JVM had"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
