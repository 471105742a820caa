"""What a node holds in memory: the records, queues and maps behind the twin `memory.store`.

The pieces mirror what `redis.store` keeps in Redis: one `MemoryNode` is one Redis process, one
`TopologyData` all keys of one topology, one `ShardRecord` all keys of one shard. This module
only keeps and counts; the rules of the protocol are in the roles beside it, joined by `memory.store`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

from penstock.store.lives import before_first
from penstock.store.port import Bounds, Call, Entry, Owner, ShardStatus, Watermark, WatermarkFact
from penstock.store.port.moves import Move

_RECORD_BYTES = 128


class Readiness(Enum):
    """Where a shard stands with its owner's ready list."""

    IDLE = "idle"
    """Nothing to do: the next placed entry queues it."""
    QUEUED = "queued"
    """Its name is on the owner's ready list, once."""
    TAKEN = "taken"
    """A Fetch handed it out: the owner's next Commit, or a Claim, decides."""
    HELD = "held"
    """A Fetch met its outbox over the bound: trimming queues it again."""


class Waiting(NamedTuple):
    """An outbox entry."""

    number: int
    placed_us: int
    rows: int
    payload: bytes


@dataclass(slots=True)
class Lane:
    """The producer's side of one pair: numbers issued, and entries that wait in the outbox.

    `acknowledged`, `position` and `intent` are kept for outside sinks (`external`) only.
    """

    external: bool
    issued: int = 0
    acknowledged: int = 0
    position: bytes = b""
    intent: bytes = b""
    waiting: deque[Waiting] = field(default_factory=deque)


PartKey = tuple[Any, ...]
"""Names a part of a shard: its kind, then names."""


@dataclass(slots=True)
class MoveNote:
    """What a store knows of the move that a shard is in, left with or gave up (`moves.ReadMove`).

    At the source `round` is being copied, which consists of `changes` (but the first, which is all); `noted`
    is what commits changed since it began. `clearing`: an older copy goes first. `discarded`: the move is
    dead, and its copy goes.
    """

    move: Move
    round: int = 0
    changes: dict[PartKey, None] = field(default_factory=dict)
    noted: dict[PartKey, None] = field(default_factory=dict)
    chunks: int = 0
    resume: bytes = b""
    rounds: int = 0
    complete: bool = False
    clearing: bool = False
    discarded: bool = False


CALLER_COMMITS, CALLERS_LOOKED_AT = 1024, 64


@dataclass(slots=True)
class Callers:
    """Producers of other nodes that met a full inbox, with the number of the commit that they called after;
    and what of the inbox is kept free for them, less than nothing when they have had more than their part."""

    called: dict[str, int] = field(default_factory=dict)
    size_bytes: float = 0
    entries: float = 0
    largest_bytes: int = 0

    def most(self, bounds: Bounds) -> tuple[float, float]:
        """Bytes and entries that are kept at most."""
        most_bytes = max(bounds.inbox_bytes_max / 4, min(self.largest_bytes, bounds.inbox_bytes_max))
        return most_bytes, max(bounds.inbox_entries_max / 4, 1)


@dataclass(slots=True)
class ShardRecord:
    """One shard: who owns it, how far it is, its inbox, its outbox, its state.

    `home` is the store that has it when it is not this one. `placed` is the number of the last entry that
    the inbox ever took. `taken_from` is the in-sequence: producer -> number of the last entry taken.
    `waiters` are producers of this store that wait for room in the inbox, in line; `callers` are those of
    other stores, None while there are none. `inbox_limit_bytes`, `outbox_limit_bytes` are what the queues may
    hold where that is less than their bounds. `watermark_ms` is what its owner has taken, `reached` what it
    is as far as; `told` of that last, in version `told_version`. `marked` is to be told when the outbox has
    entries up to the numbers in `marks` no more.
    """

    source: bool
    position: bytes
    table_version: int
    status: ShardStatus = ShardStatus.ACTIVE
    home: str = ""
    note: MoveNote | None = None
    epoch: int = 0
    owner: Owner | None = None
    commit: int = 0
    offset: int = 0
    within: bytes = b""
    counts: bytes = b""
    finished: bool = False
    readiness: Readiness = Readiness.IDLE
    placed: int = 0
    inbox: deque[Entry] = field(default_factory=deque)
    inbox_bytes: int = 0
    arrived_rows: int = 0
    completed_rows: int = 0
    taken_from: dict[str, int] = field(default_factory=dict)
    waiters: dict[str, None] = field(default_factory=dict)
    callers: Callers | None = None
    lanes: dict[str, Lane] = field(default_factory=dict)
    outbox_entries: int = 0
    outbox_bytes: int = 0
    inbox_limit_bytes: float = math.inf
    outbox_limit_bytes: float = math.inf
    state: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    timers: dict[bytes, int] = field(default_factory=dict)
    watermark_ms: int | None = None
    reached: Watermark | None = None
    told: Watermark | None = None
    told_version: int = 0
    marked: Watermark | None = None
    marks: dict[str, int] = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """It is stopped for a move, or gone: nobody owns it here and it takes no entries."""
        return self.status is not ShardStatus.ACTIVE and self.status is not ShardStatus.COPYING

    def stop_noting(self) -> None:
        """The copy to another store is given up. The token stays: the next one is newer."""
        if self.note is not None:
            self.status, self.note = ShardStatus.ACTIVE, MoveNote(self.note.move)

    def weight_bytes(self) -> int:
        """What it holds, and something for itself."""
        state = sum(
            len(name) + sum(len(field) + len(value) for field, value in fields.items())
            for name, fields in self.state.items()
        )
        inbox = sum(len(entry.payload) for entry in self.inbox)
        return _RECORD_BYTES + state + inbox + self.outbox_bytes + sum(len(name) + 8 for name in self.timers)

    def empty(self) -> None:
        """Forget all but the tombstone, and who waits for the shard here."""
        fresh = ShardRecord(source=False, position=b"", table_version=0)
        for one in fields(self):
            if one.name not in {"status", "home", "note", "epoch", "waiters"}:
                setattr(self, one.name, getattr(fresh, one.name))

    def _is_limited(self, entries: float, size_bytes: int, kept_bytes: float) -> bool:
        """Whether the inbox has a limit and would be over it with that too, where others keep some room. Two
        entries are always taken: one of this store beside one that another brings, or that would be refused
        for ever."""
        limit_bytes = self.inbox_limit_bytes
        return entries > 1 and self.inbox_bytes + size_bytes + min(kept_bytes, limit_bytes / 2) > limit_bytes

    def has_room(self, size_bytes: int, bounds: Bounds) -> bool:
        """Whether the inbox may take an entry. An empty one takes an entry of whatever size."""
        if not self.inbox:
            return True
        return (
            len(self.inbox) < bounds.inbox_entries_max
            and self.inbox_bytes + size_bytes <= bounds.inbox_bytes_max
            and not self._is_limited(len(self.inbox), size_bytes, 0)
        )

    def may_place(self, size_bytes: int, bounds: Bounds) -> bool:
        """Whether a producer of this node may put an entry into the inbox: callers' room stays free."""
        kept = self.callers
        if kept is None or not self.inbox:
            return self.has_room(size_bytes, bounds)
        kept_bytes, entries = max(0, kept.size_bytes), len(self.inbox) + max(0, kept.entries)
        return (
            entries < bounds.inbox_entries_max
            and self.inbox_bytes + size_bytes + kept_bytes <= bounds.inbox_bytes_max
            and not self._is_limited(entries, size_bytes, kept_bytes)
        )

    def keep_for_callers(self, size_bytes: int, entries: int, bounds: Bounds) -> None:
        """Keep the callers' share of the room that a commit has made."""
        kept = self.callers
        if kept is None:
            return
        if self.commit % CALLERS_LOOKED_AT == 0:
            kept.called = {name: at for name, at in kept.called.items() if at > self.commit - CALLER_COMMITS}
        callers = len(kept.called)
        if not callers:
            self.callers = None
            return
        everybody = callers + len(self.waiters)
        most_bytes, most_entries = kept.most(bounds)
        kept.size_bytes = min(kept.size_bytes + size_bytes * callers / everybody, most_bytes)
        kept.entries = min(kept.entries + entries * callers / everybody, most_entries)

    def note_caller(self, producer: str, size_bytes: int) -> None:
        """An entry of another node was refused for room."""
        kept = self.callers = self.callers or Callers()
        kept.called[producer] = self.commit
        kept.largest_bytes = max(kept.largest_bytes, size_bytes)

    def note_called(self, producer: str, size_bytes: int, bounds: Bounds) -> None:
        """An entry of another node came in."""
        kept = self.callers
        if kept is None:
            return
        if producer in kept.called:
            kept.called[producer] = self.commit
        most_bytes, most_entries = kept.most(bounds)
        kept.size_bytes = max(-most_bytes, kept.size_bytes - size_bytes)
        kept.entries = max(-most_entries, kept.entries - 1)

    def over_bound(self, bounds: Bounds) -> bool:
        """Whether the outbox holds more than a shard that reads on may leave there."""
        return bounds.are_passed_by(self.outbox_bytes, self.outbox_entries, self.outbox_limit_bytes)

    def has_work(self) -> bool:
        """Whether an owner that claims the shard has something to do at once."""
        return not self.finished if self.source else bool(self.inbox)

    def put(self, producer: str, entry: Waiting) -> None:
        """Append an entry to the inbox under the inbox's own next number."""
        self.taken_from[producer] = entry.number
        self.placed += 1
        self.inbox.append(Entry(self.placed, entry.placed_us, entry.payload))
        self.inbox_bytes += len(entry.payload)
        self.arrived_rows += entry.rows

    def trim_inbox(self, offset: int, size_bytes: int, rows: int) -> None:
        """Drop the entries up to `offset`, which the owner says hold `size_bytes` and `rows`."""
        while self.inbox and self.inbox[0].number <= offset:
            self.inbox.popleft()
        self.offset = max(self.offset, offset)
        self.inbox_bytes -= size_bytes
        self.completed_rows += rows

    def lane(self, target: str, external: bool) -> Lane:
        """The pair's lane, made when this is the first output for `target`."""
        lane = self.lanes.get(target)
        if lane is None:
            before = before_first(self.epoch)
            lane = self.lanes[target] = Lane(external, before, before if external else 0)
        return lane

    def queue(self, lane: Lane, entry: Waiting) -> None:
        """Append an entry to the outbox."""
        lane.waiting.append(entry)
        self.outbox_entries += 1
        self.outbox_bytes += len(entry.payload)

    def unqueue(self, lane: Lane) -> Waiting:
        """Take the oldest entry of a pair off the outbox."""
        entry = lane.waiting.popleft()
        self.outbox_entries -= 1
        self.outbox_bytes -= len(entry.payload)
        return entry


class Budget:
    """What one commit may still move from outboxes into inboxes."""

    __slots__ = ("bytes_left", "entries_left")

    def __init__(self, bounds: Bounds) -> None:
        self.entries_left = bounds.drain_entries_max
        self.bytes_left = bounds.drain_bytes_max

    def lasts(self) -> bool:
        return self.entries_left > 0 and self.bytes_left > 0

    def spend(self, entry: Waiting) -> None:
        self.entries_left -= 1
        self.bytes_left -= len(entry.payload)


@dataclass(frozen=True, slots=True)
class PublishedSchedule:
    """One operator's schedule as a node's maps hold it.

    `keepers` are executors that it names no more, and that have shards here until these depart; their workers
    are in `workers` still.
    """

    version: int
    term: int
    workers: dict[str, tuple[str, str, str]]
    executors: dict[str, tuple[str, int]]
    shards: dict[str, tuple[str, str]]
    remote: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    keepers: dict[str, tuple[str, int]] = field(default_factory=dict)

    def place_of(self, executor: str) -> tuple[str, int] | None:
        """Worker and tasks of an executor that may have shards here."""
        return self.executors.get(executor) or self.keepers.get(executor)


TasksSet = tuple[str, dict[str, str], frozenset[str]]
"""Incarnation, shard -> ready list, ready lists of tasks without a shard."""
NO_TASKS: TasksSet = ("", {}, frozenset())


@dataclass(slots=True)
class TopologyData:
    """Everything that a node keeps of one topology."""

    retracted: bool = False
    listed: bool = False
    shards: dict[str, ShardRecord] = field(default_factory=dict)
    ready: dict[str, deque[str]] = field(default_factory=dict)
    rung: set[str] = field(default_factory=set)
    """Ready lists that names came onto when they were empty, since somebody waited there."""
    due: dict[str, dict[str, int]] = field(default_factory=dict)
    """Ready list -> its shards with timers, and when to look at them."""
    listening: dict[str, set[str]] = field(default_factory=dict)
    """Operator -> ready lists that are rung when anything new is known of it."""
    outgoing: dict[tuple[str, str], None] = field(default_factory=dict)
    schedules: dict[str, PublishedSchedule] = field(default_factory=dict)
    workers: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    enrolled: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    control: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, TasksSet] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, dict[int, bytes]] = field(default_factory=dict)
    pairs: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, dict[str, WatermarkFact]] = field(default_factory=dict)
    """What is known of watermarks: operator -> shard -> fact."""


class MemoryNode:
    """One node's store: what a Redis process holds, for all topologies.

    `log`, when kept, holds every call that wrote, and how, in order, like an append-only file:
    `MemoryStore` writes it, `roll_back` replays it.
    """

    def __init__(self, *, keep_log: bool = False, memory_bytes_max: int | None = None) -> None:
        self.memory_bytes_max = memory_bytes_max
        """What shards may hold before calls are refused that a store at its memory limit refuses."""
        self.store_id = ""
        self.run_id = ""
        self.generation = 0
        self.topologies: dict[str, TopologyData] = {}
        self.log: list[tuple[Callable[[Any], object], Call]] | None = [] if keep_log else None

    def topology(self, uid: str) -> TopologyData:
        """The data of topology `uid`, empty when it was never seen here."""
        data = self.topologies.get(uid)
        if data is None:
            data = self.topologies[uid] = TopologyData()
        return data

    def memory_used_bytes(self) -> int:
        """What all shards hold."""
        return sum(
            record.weight_bytes() for data in self.topologies.values() for record in data.shards.values()
        )

    @property
    def is_full(self) -> bool:
        """Whether the node is beyond its memory limit."""
        return self.memory_bytes_max is not None and self.memory_used_bytes() > self.memory_bytes_max

    def roll_back(self, length: int) -> None:
        """Lose every logged call after the first `length`: what a crash does to a log's suffix."""
        if self.log is None:
            raise ValueError("a node that keeps no log cannot be rolled back")
        del self.log[length:]
        self.store_id, self.run_id, self.generation, self.topologies = "", "", 0, {}
        for carry_out, call in self.log:
            carry_out(call)
        for data in self.topologies.values():
            # Ready lists are not logged: claims under the next generation fill them.
            data.ready.clear()
            data.rung.clear()
            data.due.clear()
            data.listening.clear()
