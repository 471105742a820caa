"""The node store's port: the calls of the protocol as values, and what they answer.

Two adapters keep this contract: `redis.store` (Redis Functions) and `memory.store` (the twin
that the simulation runs on). `tests/contract` runs one suite on both. Neighbours: `keys`
names what is stored where, `codec` packs rows into entries, `ownership` turns a task's work into
these calls, `sender` delivers outboxes between stores.

A call's role is its module here. The modules of the same name in `memory` and `redis`, and the part of the
same name in `redis/functions`, carry it out. Others import from here, not from the modules; but for `moves`,
which only those who move shards know.

What is made for every entry, output or state change is a named tuple, all else a frozen dataclass.

Words: a shard's *record* holds epoch, owner, commit number, offset and counters. An *entry* is
one packed batch of rows. A *pair* is (producer shard, target); its entries are numbered 1, 2, ...
without a hole. The *inbox* numbers its entries by the shard's own counter (never by a clock).
A *ready list* is the one list that a task waits for; it names the shards that have work.

Every call is atomic in its store. None is retried by the adapter: a call whose reply is lost
raises `StoreUnreachable`, and only the caller knows whether repeating it is safe (it is for all calls
that carry a number, an epoch or a version, and those are all of them but `Fetch`, the waits
and `Wake`; what a lost `Fetch` took off the ready list comes back by `Claim`).
"""

from __future__ import annotations

from penstock.store.port.administration import (
    KeepTopologies,
    OpenStore,
    ReadGeneration,
    Retract,
    SomeTopologies,
    Topologies,
    TopologiesAmong,
)
from penstock.store.port.answers import Answer, Moved, ShardStatus, Watermark
from penstock.store.port.bounds import Bounds
from penstock.store.port.claims import Claim, Claimed, Create, ExternalCursor, Owner, Reopen
from penstock.store.port.commits import Commit, Output, StateWrite, TimerWrite
from penstock.store.port.deliveries import (
    Acknowledge,
    Append,
    Intend,
    Outgoing,
    OutgoingTargets,
    ReadOutbox,
    WaitOutgoing,
)
from penstock.store.port.errors import (
    ProtocolMismatch,
    StoreDiskFull,
    StoreFull,
    StoreUnreachable,
    UnreadableState,
)
from penstock.store.port.failures import ClearFailure, Failures, ReportFailure
from penstock.store.port.measures import (
    Measure,
    PutMetrics,
    ReadMemory,
    ReadMetrics,
    ShardCounters,
    StoreMemory,
    Weigh,
    told_here,
)
from penstock.store.port.node_store import NodeStore
from penstock.store.port.ready_lists import (
    CONTROL_TOKEN,
    RUNG,
    DueTimer,
    Entry,
    Fetch,
    Fetched,
    FetchedShard,
    WaitReady,
    Wake,
)
from penstock.store.port.request import Call, Request
from penstock.store.port.schedules import AssignedExecutor, Assignment, Publish, WaitControl, WorkerAssignment
from penstock.store.port.state import LOAD_BYTES, Load, Scan, StateSnapshot
from penstock.store.port.tables import (
    PAIR_NAMES_MAX,
    TABLES_KEPT,
    DropPairs,
    DropTable,
    PairNames,
    PutPairs,
    PutTable,
    ReadPairs,
    ReadTable,
    TableVersions,
)
from penstock.store.port.watermarks import (
    Advance,
    Advanced,
    Advancing,
    Listen,
    ReadFacts,
    ReadWatermark,
    TakeFacts,
    ToldOperators,
    WatermarkFact,
)
from penstock.store.port.workers import Enroll, MintStart, SetTasks, TaskMap, Tasks

__all__ = [
    "CONTROL_TOKEN",
    "LOAD_BYTES",
    "PAIR_NAMES_MAX",
    "RUNG",
    "TABLES_KEPT",
    "Acknowledge",
    "Advance",
    "Advanced",
    "Advancing",
    "Answer",
    "Append",
    "AssignedExecutor",
    "Assignment",
    "Bounds",
    "Call",
    "Claim",
    "Claimed",
    "ClearFailure",
    "Commit",
    "Create",
    "DropPairs",
    "DropTable",
    "DueTimer",
    "Enroll",
    "Entry",
    "ExternalCursor",
    "Failures",
    "Fetch",
    "Fetched",
    "FetchedShard",
    "Intend",
    "KeepTopologies",
    "Listen",
    "Load",
    "Measure",
    "MintStart",
    "Moved",
    "NodeStore",
    "OpenStore",
    "Outgoing",
    "OutgoingTargets",
    "Output",
    "Owner",
    "PairNames",
    "ProtocolMismatch",
    "Publish",
    "PutMetrics",
    "PutPairs",
    "PutTable",
    "ReadFacts",
    "ReadGeneration",
    "ReadMemory",
    "ReadMetrics",
    "ReadOutbox",
    "ReadPairs",
    "ReadTable",
    "ReadWatermark",
    "Reopen",
    "ReportFailure",
    "Request",
    "Retract",
    "Scan",
    "SetTasks",
    "ShardCounters",
    "ShardStatus",
    "SomeTopologies",
    "StateSnapshot",
    "StateWrite",
    "StoreDiskFull",
    "StoreFull",
    "StoreMemory",
    "StoreUnreachable",
    "TableVersions",
    "TakeFacts",
    "TaskMap",
    "Tasks",
    "TimerWrite",
    "ToldOperators",
    "Topologies",
    "TopologiesAmong",
    "UnreadableState",
    "WaitControl",
    "WaitOutgoing",
    "WaitReady",
    "Wake",
    "Watermark",
    "WatermarkFact",
    "Weigh",
    "WorkerAssignment",
    "told_here",
]
