"""One operator's schedule as a value: which executors exist, where, and which shards each runs.

`planner` makes and changes these, `book` numbers them, `diff` compares what a worker runs with its part of
one; `penstock.store.publishing` turns one into the store's call. A schedule is checked where it is made:
whoever holds one may rely on every shard having an executor and every executor a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.dataflow.routing_table import digest_of
from penstock.schedule.store_ids import server_of, store_id

LIVES_MAX = 99
"""How often a shard may be begun anew: stores number by lives, see `penstock.store.lives`."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker as a schedule names it: where it runs, which start of it (`uid`) may act, and which of its
    node's store servers it works on."""

    name: str
    node: str
    host: str
    uid: str
    server: int = 0

    @property
    def store(self) -> str:
        """The id of the store that it works on."""
        return store_id(self.node, self.server)


@dataclass(frozen=True, slots=True)
class ExecutorPlace:
    """An operator's share of one worker. `tasks` may be 0: it holds its shards and runs none.

    `remote` says which of its tasks run on other nodes than the worker's (Elasticutor 3.1): (node, tasks), in
    order of nodes. Their shards' home stays where it is.
    """

    name: str
    worker: str
    tasks: int
    remote: tuple[tuple[str, int], ...] = ()

    @property
    def tasks_at_home(self) -> int:
        return self.tasks - sum(count for _, count in self.remote)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A node store as a schedule names it: the node that it is on, and where agents reach it (host:port)."""

    id: str
    node: str
    address: str

    @property
    def server(self) -> int:
        """Which of its node's servers it is."""
        return server_of(self.id)


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Which executor runs a shard, and which store (by id) holds its inbox and state.

    `fresh_since` is the version that the shard was born in, while its home may still have to make it; 0 once
    it exists. A shard of 0 that its home does not know has been lost, and is never made anew.
    """

    executor: str
    home: str
    fresh_since: int = 0
    is_added: bool = False
    """It is to be made, and was added after others of its operator were: so a partition of a source has no
    part in where that one begins."""
    life: int = 0
    """How often its state was lost for good, and it was begun anew with nothing."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The routing table that keys of an operator go by: its version, and its content with the digest of that
    (`dataflow.routing_table`). Whoever brings a schedule into a store puts it there first. Raises ValueError
    for a content that is another one."""

    version: int
    digest: str
    content: bytes

    def __post_init__(self) -> None:
        if self.version < 1:
            raise ValueError(f"version {self.version} of a routing table")
        if digest_of(self.content) != self.digest:
            raise ValueError(f"the content of version {self.version} of a routing table is another one")


@dataclass(frozen=True, slots=True)
class AppliedPlace:
    """What a store's agent says of a schedule: the version that the store (by id) works by, and its
    generation. `lost_shards` were born and are not there; `shards_moving` are on their way from here."""

    store: str
    version: int
    generation: int
    lost_shards: int = 0
    shards_moving: int = 0


@dataclass(frozen=True, slots=True)
class OperatorSchedule:
    """The record that the operator writes, one for each operator of a topology.

    `version` is one more at each change, 0 for a first one that is not written yet; `term` is the Lease term
    of the leader that wrote it. Shard names are "OPERATOR/PART". `stores` are all that are home of a shard or
    host a worker; none where there is only one store, which everybody knows (`penstock run`). Raises
    ValueError for a record that contradicts itself.
    """

    operator: str
    version: int
    term: int
    workers: tuple[WorkerPlace, ...]
    executors: tuple[ExecutorPlace, ...]
    shards: Mapping[str, ShardPlace]
    stores: tuple[StorePlace, ...] = ()
    is_source: bool = False
    """Its shards are partitions of a source: they have no inbox, and their home makes them so."""
    table: TablePlace | None = None
    """None: all keys go where their hash says."""

    def __post_init__(self) -> None:
        if self.version < 0 or self.term < 0:
            raise ValueError(f"schedule of {self.operator}: version {self.version}, term {self.term}")
        workers = {worker.name for worker in self.workers}
        executors = {executor.name for executor in self.executors}
        if len(workers) < len(self.workers) or len(executors) < len(self.executors):
            raise ValueError(f"schedule of {self.operator}: a worker or an executor is there twice")
        stores = {store.id for store in self.stores}
        if len(stores) < len(self.stores):
            raise ValueError(f"schedule of {self.operator}: a store is there twice")
        for executor in self.executors:
            if executor.worker not in workers:
                raise ValueError(f"executor {executor.name} is in worker {executor.worker}, which is unknown")
            if executor.tasks < 0:
                raise ValueError(f"executor {executor.name} has {executor.tasks} tasks")
            if any(count < 1 for _, count in executor.remote) or executor.tasks_at_home < 0:
                raise ValueError(
                    f"executor {executor.name} has {executor.tasks} tasks, remote ones {executor.remote}"
                )
        prefix = f"{self.operator}/"
        for shard, place in self.shards.items():
            if not shard.startswith(prefix):
                raise ValueError(f"shard {shard} is not one of operator {self.operator}")
            if place.executor not in executors:
                raise ValueError(f"shard {shard} is on executor {place.executor}, which is unknown")
            if stores and place.home not in stores:
                raise ValueError(f"the home of shard {shard} is store {place.home}, which is unknown")
            if not 0 <= place.fresh_since <= self.version:
                raise ValueError(
                    f"shard {shard} is fresh since version {place.fresh_since} in one of {self.version}"
                )

    @classmethod
    def unwritten(cls, operator: str, *, is_source: bool) -> Self:
        """What a first schedule is worked out from."""
        return cls(operator, 0, 0, (), (), {}, (), is_source)

    def shards_of(self, executor: str) -> tuple[str, ...]:
        """The shards that `executor` runs, in the schedule's order."""
        return tuple(shard for shard, place in self.shards.items() if place.executor == executor)

    @property
    def tasks(self) -> int:
        """Tasks over all executors: what the operator costs."""
        return sum(executor.tasks for executor in self.executors)
