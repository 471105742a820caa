"""What the operator tells of a Topology in its status.

Neighbours: `topology` has it; the cluster's `decisions.status` makes it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from penstock.api.specs.metadata import Conditions, ObservedGeneration
from penstock.api.specs.sizes_spec import OPERATORS_MAX
from penstock.manifest.document import (
    Document,
    Name,
    atomic_list,
    keyed_list,
)


class OperatorStatus(Document):
    """One operator, as it is."""

    name: Name
    tasks_desired: Annotated[int, Field(ge=0)] = 0
    tasks_ready: Annotated[int, Field(ge=0)] = 0
    tasks_remote: Annotated[int, Field(ge=0)] | None = None
    """Of those desired, with remoteTasks: they run on other nodes than their workers'."""
    shards: Annotated[int, Field(ge=0)] = 0
    shards_moving: Annotated[int, Field(ge=0)] = 0
    rate_per_second: Annotated[float, Field(ge=0)] | None = None
    """Rows that came out, a second."""
    latency_p50_ms: Annotated[float, Field(ge=0)] | None = None
    """From the source to here."""
    latency_p99_ms: Annotated[float, Field(ge=0)] | None = None
    backlog: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Entries that wait in its inboxes."""
    watermark: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] | None = None
    """With event time: of a source its own, of a processor that of its input."""
    late_records: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Rows that came behind the watermark, of a processor that goes by event time."""
    lag_records: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Records that are there and were not read, of a source that can tell it."""
    lag_seconds: Annotated[float, Field(ge=0)] | None = None
    """How long ago the last record that was read was made, of the partition where that is longest; 0 where
    all was read."""


StatusText = Annotated[str, StringConstraints(max_length=64)]


class LostShards(Document):
    """Shards of an operator whose state is gone for good."""

    operator: Name
    shards: Annotated[int, Field(ge=1)]
    parts: Annotated[str, StringConstraints(max_length=1024)]
    """Which they are, as Schedules name them: 0-3, 7."""
    why: Annotated[str, StringConstraints(max_length=1024)]
    id: Annotated[str, StringConstraints(max_length=128)]
    """What says in the annotation penstock.dev/accept-loss that they may begin anew, with nothing."""


TABLE_DECISIONS_SHOWN = 10
Share = Annotated[float, Field(ge=0, le=1)]


class EdgeLocality(Document):
    """What part of the rows between two operators stays on its node."""

    from_: Annotated[Name, Field(alias="from")]
    to: Name
    local_share: Share | None = None
    """As it is now, measured."""
    by_hash: Share | None = None
    """Without any table, of bytes, as the last decision reckoned,"""
    expected: Share | None = None
    """and with the tables that it chose, or would have chosen."""


class TableStatus(Document):
    """The newest routing table of an operator."""

    operator: Name
    version: Annotated[int, Field(ge=1, json_schema_extra={"format": "int64"})]
    keys: Annotated[int, Field(ge=0)]
    """All others go where their hash says."""


class TableDecision(Document):
    """One decision on tables: what was chosen and why, and later what it brought."""

    number: Annotated[int, Field(ge=1)]
    time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    rule: StatusText
    """What chose it, in a word or two."""
    reason: Annotated[str, StringConstraints(max_length=4096)]
    actions: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=1024)], ...], atomic_list(OPERATORS_MAX + 1)
    ] = ()
    brought: Annotated[str, StringConstraints(max_length=1024)] = ""
    dry_run: bool = False


class LocalityStatus(Document):
    """Operators with locality Auto: how much stays on its node, and the tables."""

    edges: Annotated[tuple[EdgeLocality, ...], atomic_list(OPERATORS_MAX * 16)] = ()
    tables: Annotated[tuple[TableStatus, ...], keyed_list(OPERATORS_MAX, "operator")] = ()
    under_way: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """The table that is being carried out; no other one is begun meanwhile."""
    decisions: Annotated[tuple[TableDecision, ...], atomic_list(TABLE_DECISIONS_SHOWN)] = ()
    """The newest first."""


class TopologyStatus(Document):
    observed_generation: ObservedGeneration | None = None
    phase: Literal["Pending", "Starting", "Running", "Paused", "Draining", "Finished", "Failed"] | None = None
    state_uid: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The uid that the state goes by: this object's, or with Retain that of the first one of its name."""
    begun: Annotated[tuple[Name, ...], atomic_list(2 * OPERATORS_MAX)] = ()
    """Operators that have had a Schedule: none of theirs is ever begun anew."""
    lost: Annotated[tuple[LostShards, ...], keyed_list(OPERATORS_MAX, "operator")] = ()
    """What is gone and waits for somebody to accept that; empty while nothing is."""
    conditions: Conditions = ()
    workers_desired: Annotated[int, Field(ge=0)] | None = None
    workers_ready: Annotated[int, Field(ge=0)] | None = None
    selector: Annotated[str, StringConstraints(max_length=512)] | None = None
    """Labels of the worker pods, for who scales by what they use."""
    workers: StatusText | None = None
    """Ready of desired, as columns show it: 2/2."""
    tasks: StatusText | None = None
    """Ready of desired over all operators: 3/4."""
    rate: StatusText | None = None
    """Rows read a second over all sources."""
    latency: StatusText | None = None
    """The highest p99 of all sinks."""
    shards_moving: Annotated[int, Field(ge=0)] | None = None
    locality: LocalityStatus | None = None
    operators: Annotated[tuple[OperatorStatus, ...], keyed_list(2 * OPERATORS_MAX, "name")] = ()
    """With the sinks of late rows, which are no operators of their own in the spec."""
