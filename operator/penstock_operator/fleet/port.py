"""The fleet's port: start, stop, resize and list the workers of one topology.

Two adapters keep this contract: `local.processes.fleet` (processes of this machine) and `memory_fleet` (its
twin for tests and simulations); `tests/contract` runs one suite on both. Nothing here waits: `stop` begins an
end, `workers` tells how far it is. Neighbours: `local.run_decisions` says what to start and stop,
`local.local_run` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from penstock.api.launch.spark_worker_launch import SparkWorkerLaunch
from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.errors import PermanentError

Launch = WorkerLaunch | SparkWorkerLaunch
"""Spark workers for remote tasks are members of the fleet like workers, under names of their own."""


class WorkerStillThereError(PermanentError):
    """A worker of that name runs or is being stopped; two of one name would share its schedule."""


class WorkerNotStartedError(PermanentError):
    """The runtime has no means to start a worker; the message is one sentence that says what to do."""


class WorkerState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class FleetWorker:
    """One worker as its runtime sees it; what it does inside is told by its `WorkerRow`.

    `ending` says in words how an ended worker ended ("" before), e.g. "killed by SIGKILL".
    `cores` is the limit last set by `resize`; None when it may use the whole node.
    An ended worker leaves no process behind, and stays listed until its name is started again.
    """

    worker: str
    uid: str
    attempt: int
    state: WorkerState
    ending: str
    cores: float | None


class Fleet(Protocol):
    """The workers of one topology. Called from one thread."""

    def start(self, launch: Launch) -> None:
        """Start a worker. WorkerStillThereError unless the name is new or its last one ended;
        WorkerNotStartedError."""

    def stop(self, worker: str, grace_s: float) -> None:
        """Ask a worker to leave, and end it by force after `grace_s` (0: now).

        Asked again, the earlier deadline holds. Nothing happens to an unknown or ended worker.
        """

    def resize(self, worker: str, cores: float) -> None:
        """Give a running worker `cores` cores, without a restart. KeyError when it does not run."""

    def workers(self) -> tuple[FleetWorker, ...]:
        """All workers ever started, the last of each name, by name."""

    def log_tail(self, worker: str, lines: int) -> str:
        """The last lines that the last worker of that name wrote; "" when there are none."""
