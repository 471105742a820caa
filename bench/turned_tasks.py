"""Tasks of the product turned by hand, in this process, on a redis-server of their own.

Time is what they are told, and durations are CPU time of this process: other load on the machine makes it
slower, but changes nothing of what is done. Neighbours: `task_cost` and `locality.counting_cost` compare
versions and settings by it.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.node_store import NodeStore as Server

from penstock.dataflow.plan import Plan
from penstock.errors import RetryError
from penstock.store.port import (
    Bounds,
    Create,
    Enroll,
    NodeStore,
    OpenStore,
    Owner,
    Publish,
    Request,
    SetTasks,
    WaitReady,
)
from penstock.store.redis.store import RedisStore, load_functions
from penstock_worker.kinds.sources import open_reader
from penstock_worker.spark.task_entry import Readers, assemble
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.loop import TaskLoop

_INCARNATION = "u1/5/1"


class TurnedClock:
    """What time it is is told; durations are this process's CPU time."""

    anchor = None

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us

    def share(self, store: object) -> None:
        """There is no other process."""

    def now_us(self) -> int:
        return self.time_us

    def wall_us(self) -> int:
        return self.time_us

    def monotonic_us(self) -> int:
        return time.process_time_ns() // 1000

    def sleep_us(self, microseconds: int) -> None:
        self.time_us += microseconds


class Unwaiting:
    """A connection that does not block: others are in the same thread."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store

    def call(self, call: Request[Any]) -> Any:
        return self._store.call(replace(call, timeout_ms=1) if isinstance(call, WaitReady) else call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def connected(url: str, topology_uid: str) -> NodeStore:
    """A connection to a server that may not be up yet, its functions loaded. Raises RuntimeError."""
    for _ in range(200):
        with suppress(OSError, RetryError):
            load_functions(url)
            store = RedisStore(url, topology_uid, Bounds())
            store.call(OpenStore("n1"))
            return store
        time.sleep(0.05)
    raise RuntimeError(f"no store at {url}")


def published(store: NodeStore, operator: str, shards: Sequence[str], *, source: bool) -> None:
    """Shards of an operator, made, and given to one executor."""
    executor = f"{operator}-w1"
    workers = (("w1", "n1", "localhost", "u1"),)
    named = tuple((shard, executor, "n1") for shard in shards)
    store.call(Publish(operator, 1, 0, workers, ((executor, "w1", 1),), named))
    for shard in shards:
        store.call(Create(shard, source=source))


class TurnedNode:
    """A store, open for topology "t", and a worker that has enrolled. It ends with this process, or by
    `stop`."""

    def __init__(self, folder: Path, plan: Plan, port: int, time_us: int) -> None:
        self.folder = folder
        self.plan = plan
        self.clock = TurnedClock(time_us)
        self.server = Server(folder, "n1", port)
        self.server.start()
        atexit.register(self.server.stop)
        self.store = connected(self.server.url, "t")

    def stop(self) -> None:
        self.server.stop()

    def publish(self, operator: str, shards: Sequence[str], *, source: bool) -> None:
        """All shards of an operator are the one worker's."""
        published(self.store, operator, shards, source=source)

    def enroll(self) -> None:
        """Once all is published."""
        self.store.call(Enroll("w1", "u1", 5, 1))

    def task(self, operator: str, shards: Sequence[str], readers: Readers = open_reader) -> TaskLoop:
        """The one task of an operator; it claims its shards in its first turns."""
        ready = f"{operator}.ready"
        self.name_tasks(operator, dict.fromkeys(shards, ready))
        launch = self.launch(operator, ready)
        store = RedisStore(self.server.url, "t", Bounds())
        waiter: Any = Unwaiting(RedisStore(self.server.url, "t", Bounds()))
        return assemble(launch, store, waiter, self.clock, readers=readers)

    def name_tasks(self, operator: str, lists: Mapping[str, str]) -> None:
        """Shard -> ready list: whose task claims it."""
        self.store.call(SetTasks("w1", _INCARNATION, f"{operator}-w1", tuple(lists.items())))

    def launch(self, operator: str, ready: str, number: int = 0) -> TaskLaunch:
        """What the operator's task with this ready list is begun with."""
        owner = Owner(f"{operator}-w1", _INCARNATION, ready)
        return TaskLaunch(
            "t", self.server.url, "w1", owner, number,
            self.plan.stage(operator), str(self.folder), False, Bounds(),
        )  # fmt: skip

    def store_us(self) -> int:
        """CPU time of the store so far."""
        process = self.server.process
        assert process is not None
        fields = Path(f"/proc/{process.pid}/schedstat").read_text().split()
        return int(fields[0]) // 1000
