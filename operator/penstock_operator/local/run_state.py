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
from penstock_operator.fleet import FleetWorker


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

    `is_up` holds between ready and death, `restart_at_s` is set between death and the next start. `is_warm`:
    it has no executor, and is not waited for. `has_worked`: it had one once.
    """

    name: str
    uid: str
    attempt: int = 0
    is_up: bool = False
    up_since_s: float = 0.0
    restart_at_s: float | None = None
    early_deaths: int = 0
    deaths_in_row: int = 0
    restarts: int = 0
    warm_until_s: float | None = None
    is_warm: bool = False
    has_worked: bool = False


@dataclass(frozen=True, slots=True)
class SparkWorkerCare:
    """The Spark worker beside one worker: its last start. `home_uid` is the start of the worker that it
    joined; `ended_at_s` is set once it is over, `idle_since_s` while no task is wanted there."""

    name: str
    attempt: int
    home_uid: str
    is_leaving: bool = False
    idle_since_s: float | None = None
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

    @property
    def is_empty(self) -> bool:
        return self.inbox_entries == 0 and self.outbox_entries == 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that the supervision remembers. `token` is unique to this run; uids are made from it.

    `working_since_s` is when the first task ran, and `time_limit_s` counts from there. `message` says why a
    run failed; `log_of` names the worker whose last lines belong to it. `troubles` are the last words of
    workers about their tasks, as they were told. `wanted_until_s` is until when
    another worker is wanted, `attempts` the last start of each worker that has left. `schedules` say nothing
    of remote tasks: these are in `remote`, and go along when schedules are published; `spark_workers` run
    them, by worker. `version_before` is the last that the store has seen before the run began.
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
    wanted_until_s: float = 0.0
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


def worker_uid(token: str, worker: str, attempt: int) -> str:
    """Unique to one start of one worker of one run."""
    return f"{token}-{worker}-{attempt}"
