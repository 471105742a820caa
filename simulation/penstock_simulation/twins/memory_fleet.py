"""The fleet's twin in memory: workers that are only their names, on a clock that is passed in.

What a real worker does by itself is done by hand here: `leave` (it goes when asked, or by itself) and
`die`. Kept equal to `processes.fleet` by the contract suite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock_operator.fleet.port import FleetWorker, Launch, WorkerState, WorkerStillThereError


@dataclass
class _Worker:
    launch: Launch
    state: WorkerState = WorkerState.RUNNING
    ending: str = ""
    cores: float | None = None
    deadline_s: float | None = None
    lines: list[str] = field(default_factory=list)


class MemoryFleet:
    """Keeps the port `Fleet`."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._workers: dict[str, _Worker] = {}

    def start(self, launch: Launch) -> None:
        self._enforce()
        before = self._workers.get(launch.worker)
        if before is not None and before.state is not WorkerState.ENDED:
            raise WorkerStillThereError(f"worker {launch.worker} is still {before.state}")
        self._workers[launch.worker] = _Worker(launch)

    def stop(self, worker: str, grace_s: float) -> None:
        known = self._workers.get(worker)
        if known is None or known.state is WorkerState.ENDED:
            return
        deadline_s = self._clock_s() + grace_s
        known.state = WorkerState.STOPPING
        known.deadline_s = deadline_s if known.deadline_s is None else min(known.deadline_s, deadline_s)

    def resize(self, worker: str, cores: float) -> None:
        self._enforce()
        known = self._workers[worker]
        if known.state is not WorkerState.RUNNING:
            raise KeyError(worker)
        known.cores = cores

    def workers(self) -> tuple[FleetWorker, ...]:
        self._enforce()
        return tuple(
            FleetWorker(name, known.launch.uid, known.launch.attempt, known.state, known.ending, known.cores)
            for name, known in sorted(self._workers.items())
        )

    def log_tail(self, worker: str, lines: int) -> str:
        known = self._workers.get(worker)
        return "" if known is None else "\n".join(known.lines[-lines:])

    def write(self, worker: str, line: str) -> None:
        """A line of the worker's output."""
        self._workers[worker].lines.append(line)

    def leave(self, worker: str, exit_code: int) -> None:
        """The worker's own end."""
        self._end(worker, f"ended with exit code {exit_code}")

    def die(self, worker: str) -> None:
        """An end from outside."""
        self._end(worker, "killed by SIGKILL")

    def _end(self, worker: str, ending: str) -> None:
        known = self._workers[worker]
        known.state = WorkerState.ENDED
        known.ending = ending

    def _enforce(self) -> None:
        now_s = self._clock_s()
        for name, known in self._workers.items():
            due = known.deadline_s is not None and known.deadline_s <= now_s
            if due and known.state is WorkerState.STOPPING:
                self._end(name, "killed by SIGKILL")
