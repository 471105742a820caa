"""Workers: their starts and incarnations, and how the shards of their executors are spread over tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class MintStart(Request[int | Answer]):
    """A number for one start of a worker's process, above all that were given out here, or enrolled, for it.

    So starts have an order that no clock decides. A process asks once, before it enrols, and again when the
    reply is lost: a number that nobody uses does no harm. UNKNOWN when the topology is retracted.
    """

    worker: str


@dataclass(frozen=True, slots=True)
class Enroll(Request[Answer]):
    """A worker process announces its incarnation (pod uid, start, attempt).

    OK; STALE when the store's map names another uid for this worker, or a later (attempt, start) of the same
    uid has enrolled. Between two uids that no map names the last one counts.
    """

    worker: str
    uid: str
    start: int
    """As `MintStart` answered."""
    attempt: int
    """As whoever starts the process counts, where somebody does; 0 in a pod."""


@dataclass(frozen=True, slots=True)
class SetTasks(Request[Answer]):
    """The worker's own affair: which task runs which shard of an executor.

    `mapping` is shard -> ready list name, `idle` the ready lists of tasks that stand without a shard: they
    stay, for shards to come. Refused (STALE) unless `incarnation` is the enrolled one. Puts a control token
    on every ready list named before or now.
    """

    worker: str
    incarnation: str
    executor: str
    mapping: tuple[tuple[str, str], ...]
    idle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskMap:
    """As the main process of `incarnation` last wrote it; `version` is the one of the operator's schedule
    ("" and {} before the first write)."""

    incarnation: str
    mapping: dict[str, str]
    version: int
    idle: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Tasks(Request[TaskMap]):
    """How the shards of an executor are spread over its tasks. Answers a `TaskMap`."""

    executor: str
    operator: str
