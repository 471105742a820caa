"""A node of the simulation: a store that may fail.

It does to calls what networks and crashes do: loses them, loses their replies (after any part of a pipeline),
delivers them late, runs them twice. The node knows which prefix of its log somebody has seen the effects of;
a restart may lose anything behind that, as a real store's log does. What the calls mean is the twin's affair
(`penstock.store.memory.store`). Neighbour: `link` is how actors reach it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.store.memory.node import MemoryNode, ShardRecord
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Answer,
    Assignment,
    Bounds,
    Failures,
    Fetch,
    Listen,
    Load,
    Measure,
    OpenStore,
    Outgoing,
    Publish,
    PutMetrics,
    ReadMetrics,
    ReadOutbox,
    ReadWatermark,
    Request,
    Scan,
    StoreFull,
    StoreUnreachable,
    Tasks,
    WaitControl,
    WaitReady,
    Wake,
    WatermarkFact,
)
from penstock.store.port.moves import Depart, ReadMove
from penstock_simulation.twins.memory_wire import MemoryWire

TOPOLOGY_UID = "t"

BOUNDS = Bounds(
    inbox_bytes_max=60,
    inbox_entries_max=3,
    outbox_bytes_max=70,
    outbox_entries_max=4,
    drain_entries_max=2,
    drain_bytes_max=40,
    entry_bytes_max=120,
    outputs_per_commit_max=8,
    commit_bytes_max=260,
    chunk_bytes_max=100,
    chunk_entries_max=3,
)

_LEAVE_QUEUES = frozenset(
    {Assignment, Fetch, Load, Measure, Outgoing, PutMetrics, ReadMove, ReadOutbox, Scan, Tasks, Wake}
    | {Failures, Listen, ReadMetrics, ReadWatermark, WaitControl}
)
"""Calls after which every inbox, every outbox and every shard's home is as it was."""

StoreFactory = Callable[[MemoryNode, str, Bounds], MemoryStore]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Chances per round trip, each 0..1; `crash` is per lost reply: the store died before it answered."""

    lost_call: float = 0.0
    lost_reply: float = 0.0
    late_call: float = 0.0
    run_twice: float = 0.0
    crash: float = 0.0

    @property
    def total(self) -> float:
        return self.lost_call + self.lost_reply + self.late_call + self.run_twice


CALM = FaultRates()


class SimulatedNode:
    """One store and its faults. `store` reaches it without any, for the simulation's own eyes."""

    def __init__(self, name: str, rng: random.Random, make_store: StoreFactory) -> None:
        self.name = name
        self.starts = 0
        self.rates = CALM
        self.late: list[Request[Any]] = []
        self.has_changed = True
        """Whether queues or homes of shards may be others since this was last set to False."""
        self.publish: Callable[[Publish], Any] | None = None
        """Carries out a publication in the store's place, and looks at what it does."""
        self.rings = 0
        """How often the bell of the outboxes rang."""
        self.remembered = MemoryWire()
        """What the store keeps of the Schedules for its agent."""
        self._remembered_before: dict[bytes, bytes] = {}
        """The same, at the last start."""
        self._waited_for: set[str] = set()
        self._rng = rng
        self._memory = MemoryNode(keep_log=True)
        self._seen_length = 0
        self.store = make_store(self._memory, TOPOLOGY_UID, BOUNDS)
        self.generation = self.store.call(OpenStore(name))
        self.note_seen(self.log_length)

    @property
    def log_length(self) -> int:
        return len(self._memory.log or ())

    def note_seen(self, log_length: int) -> None:
        """Somebody got a reply of when the log was so long: everything before is as durable as promised."""
        self._seen_length = max(self._seen_length, log_length)

    def records(self) -> Iterable[tuple[str, ShardRecord]]:
        """The shards' records as they are, for the checks."""
        return self._memory.topology(TOPOLOGY_UID).shards.items()

    def record(self, shard: str) -> ShardRecord:
        """One shard's record, which is there. KeyError else."""
        return self._memory.topology(TOPOLOGY_UID).shards[shard]

    @property
    def has_told(self) -> bool:
        """Whether any producer has told a watermark here."""
        return bool(self._memory.topology(TOPOLOGY_UID).facts)

    @property
    def facts(self) -> Mapping[str, Mapping[str, WatermarkFact]]:
        """What is known of watermarks: operator -> shard -> fact."""
        return self._memory.topology(TOPOLOGY_UID).facts

    @property
    def is_full(self) -> bool:
        """Whether the store is at its memory limit."""
        return self._memory.memory_bytes_max is not None

    def fill(self, *, full: bool) -> None:
        """Bring the store to its memory limit, or give it room again."""
        self._memory.memory_bytes_max = 0 if full else None

    def published(self, operator: str) -> int:
        """The version of the schedule that the store works by; 0 for none."""
        schedule = self._memory.topology(TOPOLOGY_UID).schedules.get(operator)
        return schedule.version if schedule is not None else 0

    def is_ready(self, ready: str) -> bool:
        """Whether a task that blocks on this list would wake."""
        return bool(self._memory.topology(TOPOLOGY_UID).ready.get(ready))

    def hear(self, ready: str) -> bool:
        """Whether the bell of this list has rung since it was heard last."""
        return self.store.call(WaitReady(ready, 0, look=False))

    def rings_at_news(self, ready: str, producers: Sequence[str]) -> bool:
        """Whether a task that waits on this list is told of each of its producers' next watermarks."""
        listening = self._memory.topology(TOPOLOGY_UID).listening
        return all(ready in listening.get(operator, ()) for operator in producers)

    def looks(self, ready: str) -> Mapping[str, int]:
        """When the shards of a task with timers are to be looked at (milliseconds)."""
        return self._memory.topology(TOPOLOGY_UID).due.get(ready, {})

    def kept_length(self) -> int:
        """How much of the log a crash leaves now: all that was seen, and a part of the rest."""
        unseen = self.log_length - self._seen_length
        return self._seen_length + int(self._rng.random() * (unseen + 1))

    def restart(self) -> int:
        """The store dies, loses a suffix of its log and comes back; answers how many calls it lost."""
        kept = self.kept_length()
        lost = self.log_length - kept
        if lost:
            self._memory.roll_back(kept)
        self.late.clear()
        self.has_changed = True
        self.starts += 1
        if self._rng.random() < 0.5:
            self.remembered.fields = self._remembered_before
        self._remembered_before = dict(self.remembered.fields)
        self.generation = self.store.call(OpenStore(self.name))
        self._seen_length = self.log_length
        return lost

    def deliver_late_call(self) -> tuple[Request[Any], object]:
        """A call whose sender gave up long ago takes effect now, in no order. Nobody gets the answer."""
        call = self.late.pop(int(self._rng.random() * len(self.late)))
        self.has_changed = True
        try:
            return call, self._effect(call)
        except StoreFull as error:
            return call, error

    def carry_out(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """One round trip under the node's faults. Raises StoreUnreachable, StoreFull."""
        if not self.has_changed:
            self.has_changed = any(type(call) not in _LEAVE_QUEUES for call in calls)
        if self.rates.total == 0 or (draw := self._rng.random()) >= self.rates.total:
            return [self._effect(call) for call in calls]
        return self._carry_out_badly(calls, draw)

    def _carry_out_badly(self, calls: Sequence[Request[Any]], draw: float) -> list[Any]:
        rates = self.rates
        if draw < rates.lost_call:
            raise StoreUnreachable("call lost")
        if draw < rates.lost_call + rates.lost_reply:
            for call in calls[: 1 + int(self._rng.random() * len(calls))]:
                self._effect(call)
            if self._rng.random() < rates.crash:
                raise StoreUnreachable(f"store restarts without its last {self.restart()} calls")
            raise StoreUnreachable("reply lost")
        if draw < rates.lost_call + rates.lost_reply + rates.late_call:
            self.late.extend(calls)
            raise StoreUnreachable("call on its way")
        answers = []
        for call in calls:
            answer = self._effect(call)
            if not isinstance(call, (Fetch, Wake)):
                if self._rng.random() < 0.5:
                    answer = self._effect(call)
                else:
                    self.late.append(call)
            answers.append(answer)
        return answers

    def _effect(self, call: Request[Any]) -> Any:
        if self.publish is not None and isinstance(call, Publish):
            return self.publish(call)
        answer = self.store.call(call)
        if type(call) not in _LEAVE_QUEUES:
            self._ring(call, answer)
        return answer

    def _ring(self, call: Request[Any], answer: object) -> None:
        """The bell rings when something begins to wait for a target that nothing waited for, and when what
        waits for a shard has somewhere to go."""
        waited_for = {target for _, target in self._memory.topology(TOPOLOGY_UID).outgoing}
        departed = isinstance(call, Depart) and answer is Answer.OK and call.shard in waited_for
        if departed or not waited_for <= self._waited_for:
            self.rings += 1
        self._waited_for = waited_for
