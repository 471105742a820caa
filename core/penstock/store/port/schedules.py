"""Schedules: how they come into a store's maps, and what these say of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class Publish(Request[Answer]):
    """Write one operator's schedule into the store's maps, in the order of versions.

    OK; DONE when exactly this version is there; STALE when a newer version or a higher term is. A large one
    reaches a store in parts and counts whole with the last of them; StoreUnreachable when another publication
    came between them. Wakes the control stream of every worker named in the old or the new schedule.
    Whoever has a shard here whose home is another store now, or was to have it, keeps it until it departs: it
    stays in `Assignment` and may claim, also when its executor or its worker is named no more. The tasks
    (`SetTasks`) of one that is named no more and keeps nothing are forgotten, and woken.
    `workers` is worker -> (node, host, uid) of all workers named by `executors`, and of any others
    that may be given some later;
    `executors` is executor -> (worker, tasks); `shards` is shard name -> (executor, home store).
    `remote` is executor -> (node, tasks): those of its tasks that run on other nodes than its worker's.
    """

    operator: str
    version: int
    term: int
    workers: tuple[tuple[str, str, str, str], ...]
    executors: tuple[tuple[str, str, int], ...]
    shards: tuple[tuple[str, str, str], ...]
    remote: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AssignedExecutor:
    """`remote` is (node, tasks) of those among `tasks` that run on another node than the worker's."""

    operator: str
    executor: str
    version: int
    tasks: int
    shards: tuple[str, ...]
    remote: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """`retracted`: the topology is gone. `uid` is the incarnation's uid that the map expects
    ("" when the map does not name the worker)."""

    uid: str
    retracted: bool
    generation: int
    executors: tuple[AssignedExecutor, ...]


@dataclass(frozen=True, slots=True)
class Assignment(Request[WorkerAssignment]):
    """What this store's maps say of a worker. Answers a `WorkerAssignment`.

    Its executors list only shards whose home is this store: a worker's tasks work on nothing else.
    """

    worker: str


@dataclass(frozen=True, slots=True)
class WaitControl(Request[int]):
    """Block until the worker's control stream has something newer than `after`, or timeout.

    Answers the last number of the stream (int).
    """

    worker: str
    after: int
    timeout_ms: int
