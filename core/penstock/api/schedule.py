"""`Schedule`: which executors an operator has, in which workers, and which shards each runs.

One object per operator of a topology. Penstock's operator writes it, node agents read it; users write
none. Shards stand in it by part ("17" of "count/17", "docs/a.txt" of "lines/docs/a.txt"), numbers as
ranges, so that 4 096 shards stay small. `pack_parts` and `Assignment.parts` are inverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from penstock.api.specs.metadata import Conditions, ObjectMeta, ObservedGeneration
from penstock.api.specs.sizes_spec import SERVERS_MAX, TASKS_MAX, WORKERS_MAX
from penstock.dataflow.routing_table import CONTENT_TEXT_MAX
from penstock.manifest.document import (
    SHARDS_MAX,
    ApiVersion,
    Document,
    Name,
    ObjectName,
    atomic_list,
    cel,
    keyed_list,
)
from penstock.schedule.record import LIVES_MAX

Counter = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})]
StoreId = Annotated[str, StringConstraints(min_length=1, max_length=253)]
PartRange = Annotated[
    str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})(-[1-9][0-9]{0,8})?$", max_length=19)
]
PartName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE_LENGTH_MAX = 1_000_000


class ScheduledWorker(Document):
    """A worker that holds executors: its node, the node's address, its incarnation's uid; which of the node's
    store servers it works on."""

    name: ObjectName
    node: ObjectName
    host: Annotated[str, StringConstraints(max_length=253)]
    uid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    server: Annotated[int, Field(ge=0, lt=SERVERS_MAX)] = 0


class RemoteTasks(Document):
    """Tasks that run on another node than their worker's."""

    node: ObjectName
    tasks: Annotated[int, Field(ge=1, le=TASKS_MAX)]


class ScheduledExecutor(Document):
    """One share of the operator in a worker, with so many tasks."""

    name: ObjectName
    worker: ObjectName
    node: ObjectName
    tasks: Annotated[int, Field(ge=0, le=TASKS_MAX)]
    remote: Annotated[tuple[RemoteTasks, ...], keyed_list(16, "node")] = ()
    """Those among `tasks` that run on other nodes; their shards stay at home."""


class ScheduledStore(Document):
    """A node's store: where its shards are, and where agents reach it."""

    id: StoreId
    node: ObjectName
    address: Annotated[str, StringConstraints(pattern=r"^[^:/@ ]+:[0-9]{1,5}$", max_length=320)]
    """host:port."""


class Assignment(Document):
    """Shards of one executor whose home is one store."""

    executor: ObjectName
    home: StoreId
    """The store that holds the shards' inboxes and state."""
    fresh_since: Counter = 0
    """The version that these shards were born in, while their home may still have to make them; 0 once they
    exist."""
    added: bool = False
    """They are to be made, and were added after others were: a source's partitions that came later."""
    life: Annotated[int, Field(ge=0, le=LIVES_MAX)] = 0
    """How often their state was lost for good, and that was accepted."""
    ranges: Annotated[tuple[PartRange, ...], atomic_list(SHARDS_MAX)] = ()
    """Numbered parts: "7" or "0-31"."""
    names: Annotated[tuple[PartName, ...], atomic_list(SHARDS_MAX)] = ()
    """Parts with names, such as a source's files."""

    def parts(self) -> Iterator[str]:
        """The shards' parts: the numbers in the ranges' order, then the names."""
        for text in self.ranges:
            first, _, last = text.partition("-")
            yield from map(str, range(int(first), int(last or first) + 1))
        yield from self.names

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for text in self.ranges:
            first, _, last = text.partition("-")
            if last and not int(first) < int(last) <= int(first) + _RANGE_LENGTH_MAX:
                raise ValueError(f"range {text} does not ascend, or is too long")
        return self


class ScheduledTable(Document):
    """Where frequent keys of the operator go; all others go where their hash says."""

    version: Annotated[int, Field(ge=1, le=2**53 - 1, json_schema_extra={"format": "int64"})]
    """One more with each table."""
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
    """SHA-256 of the content, unpacked."""
    content: Annotated[str, StringConstraints(min_length=1, max_length=CONTENT_TEXT_MAX)]
    """Packed. Every node's store has it before anybody goes by it."""


def pack_parts(parts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(ranges, names) of an `Assignment` from parts in any order; each comes once and sorted."""
    numbers: set[int] = set()
    names: set[str] = set()
    for part in parts:
        if _NUMBER.fullmatch(part):
            numbers.add(int(part))
        else:
            names.add(part)
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    texts = tuple(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return texts, tuple(sorted(names))


class ScheduleSpec(Document):
    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.term >= oldSelf.term", "term only grows: a later leader wrote this Schedule"),
            ("self.version >= oldSelf.version", "version only grows"),
            ("self.operator == oldSelf.operator", "a Schedule stays with its operator"),
            (
                "self.topology == oldSelf.topology && self.topologyUid == oldSelf.topologyUid",
                "a Schedule stays with its topology",
            ),
        )
    )

    topology: Name
    topology_uid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    operator: Name
    version: Counter
    """One more at each change."""
    term: Counter
    """The Lease term of the leader that wrote it."""
    workers: Annotated[tuple[ScheduledWorker, ...], keyed_list(WORKERS_MAX, "name")] = ()
    executors: Annotated[tuple[ScheduledExecutor, ...], keyed_list(1024, "name")] = ()
    shards: Annotated[tuple[Assignment, ...], atomic_list(SHARDS_MAX)] = ()
    stores: Annotated[tuple[ScheduledStore, ...], keyed_list(1024, "id")] = ()
    """All stores that are home of a shard or host a worker."""
    source: bool = False
    """The shards are partitions of a source."""
    table: ScheduledTable | None = None
    durability: Literal["Process", "Disk"] | None = None
    """What the topology asks of its stores; where nothing is said, a store does the best it can."""
    store_memory_bytes: Counter | None = None
    """What the topology may take of each store's memory; without it there is no quota."""


class AppliedVersion(Document):
    """What a store's agent says: the version that the store works by, and its generation."""

    node: StoreId
    """The store's id: its node's name, but for further servers of a node."""
    version: Counter
    generation: Counter = 0
    lost_shards: Annotated[int, Field(ge=0)] = 0
    """Shards that were born here, and that the store does not know any more: it has lost its state."""
    shards_moving: Annotated[int, Field(ge=0)] = 0
    """Shards on their way from here to another store."""


class ScheduleStatus(Document):
    observed_generation: ObservedGeneration | None = None
    conditions: Conditions = ()
    applied: Annotated[tuple[AppliedVersion, ...], keyed_list(1024, "node")] = ()
    """Each entry is written by its store's agent."""
    shards_moving: Annotated[int, Field(ge=0)] | None = None
    """Shards on their way to another store, over all nodes; the operator sums them up."""
    tasks_ready: Annotated[int, Field(ge=0)] | None = None
    """Tasks that run, of those in `spec`; as it was last known while a store does not answer."""


class Schedule(Document):
    """Which executors exist, where, with how many tasks, and which shards each runs."""

    api_version: ApiVersion
    kind: Literal["Schedule"]
    metadata: ObjectMeta
    spec: ScheduleSpec
    status: ScheduleStatus | None = None
