"""What the supervision of `penstock run` remembers and sees, and what it may have carried out.

Neighbours: `run_decisions` goes from one state to the next, `local_run` sees and carries out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.dataflow.plan import Plan
from penstock.metrics.rows import WorkerRow
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote
from penstock.supervision.restarts import Starts
from penstock_operator.fleet.port import FleetWorker


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    ENDED = "ended"


class Result(StrEnum):
    """Why the run ends. FAILED alone is a failure."""

    FINISHED = "finished"
    TIME_OVER = "time over"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WorkerCare:
    """One worker: the start of it that counts, and how its starts went.

    While it is given its share, being back or new, `shards_before` is how many shards it held when that
    began. `is_warm`: it has no executor, and is not waited for. `has_worked`: it had one once.
    """

    name: str
    uid: str
    attempt: int = 0
    starts: Starts = Starts()  # noqa: RUF009 - frozen
    shards_before: int | None = None
    is_warm: bool = False
    has_worked: bool = False

    @property
    def is_up(self) -> bool:
        return self.starts.is_up

    @property
    def takes_share(self) -> bool:
        return self.shards_before is not None

    @property
    def is_down(self) -> bool:
        """It has died, and is to start again."""
        return self.starts.again_at_s is not None


@dataclass(frozen=True, slots=True)
class SparkWorkerCare:
    """The Spark worker beside one worker: its last start. `home_uid` is the start of the worker that it
    joined; `ended_at_s` is set once it is over."""

    name: str
    attempt: int
    home_uid: str
    is_leaving: bool = False
    ended_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What still waits, over all shards. While `generation` and `commits` (the sum of the shards' commit
    numbers) stay, no shard worked."""

    generation: int
    commits: int
    inbox_entries: int
    outbox_entries: int
    sources_finished: bool
    watermarks_through: bool = True

    @property
    def is_empty(self) -> bool:
        return self.inbox_entries == 0 and self.outbox_entries == 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that the supervision remembers. `token` is unique to this run; uids are made from it.

    `working_since_s` is when the first task ran, and `time_limit_s` counts from there. `message` says why a
    run failed; `log_of` names the worker whose last lines belong to it. `troubles` are the last words of
    workers about their tasks, as they were told. `hosts_wanted` is how many workers are to hold executors,
    `wanted_until_s` until when another one is wanted, `attempts` the last start of each worker that has left.
    `since_s` is what has been so, and since when. `schedules` say nothing of remote tasks: these are in
    `remote`, and go along when schedules are published; `spark_workers` run them, by worker.
    `version_before` is the last that the store has seen before the run began.
    """

    plan: Plan
    token: str
    node: str
    workers: Mapping[str, WorkerCare]
    schedules: Mapping[str, OperatorSchedule]
    time_limit_s: float | None = None
    phase: Phase = Phase.STARTING
    working_since_s: float | None = None
    drain_until_s: float = 0.0
    progressed_at_s: float = 0.0
    last_backlog: Backlog | None = None
    interrupts: int = 0
    result: Result | None = None
    message: str = ""
    log_of: str = ""
    troubles: Mapping[str, str] = field(default_factory=dict)
    hosts_wanted: int = 0
    wanted_until_s: float = 0.0
    since_s: Mapping[str, float] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    remote: Remote = field(default_factory=dict)
    spark_workers: Mapping[str, SparkWorkerCare] = field(default_factory=dict)
    version_before: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. `rows`, `backlog` and `failures` are None when the store was not looked at, or is away.

    `store_fault` is a sentence when the store cannot come back; `interrupts` counts signals so far.
    """

    fleet: tuple[FleetWorker, ...]
    rows: Mapping[str, WorkerRow] | None
    backlog: Backlog | None
    failures: Mapping[str, str] | None
    interrupts: int = 0
    store_fault: str = ""


@dataclass(frozen=True, slots=True)
class PublishSchedules:
    """Write these into the store, before anything that follows."""

    schedules: tuple[OperatorSchedule, ...]


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: str
    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StartSparkWorker:
    """Beside the worker whose uid is `home_uid`, to join its Spark `master`."""

    name: str
    attempt: int
    home_uid: str
    master: str


@dataclass(frozen=True, slots=True)
class StopWorker:
    worker: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Say:
    """An event for people."""

    text: str
    is_trouble: bool = False


Action = PublishSchedules | StartWorker | StartSparkWorker | StopWorker | Say


@dataclass(frozen=True, slots=True)
class Decision:
    """`actions` are carried out in their order."""

    state: RunState
    actions: tuple[Action, ...] = ()


def worker_name(number: int) -> str:
    return f"w{number}"


def worker_number(worker: str) -> int:
    return int(worker.removeprefix("w"))


def worker_uid(token: str, worker: str, attempt: int) -> str:
    """Unique to one start of one worker of one run."""
    return f"{token}-{worker}-{attempt}"
