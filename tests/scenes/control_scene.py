"""Operators for tests of policies: one that counts what it is told, one that is worked like water, and the
metrics that a diagnosis starts from, written down."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.control.decision import (
    AddExecutor,
    ExecutorView,
    Health,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.streamswitch.examination import Examination

SLOT_US = 100_000


@dataclass
class Counts:
    """What one shard has counted since it was born."""

    arrived: int = 0
    completed: int = 0
    waited_us: float | None = 0.0
    served_us: float | None = 0.0
    busy_us: float | None = 0.0
    writer: object = "w0"

    def sample(self) -> ShardSample:
        return ShardSample(
            self.arrived, self.completed, self.waited_us, self.served_us, self.busy_us, self.writer
        )


class Feed:
    """An operator "op" whose shards count what a test tells them; `assignment` may be changed between
    looks."""

    def __init__(self, assignment: Mapping[str, str], tasks: int = 1) -> None:
        self.assignment = dict(assignment)
        self.counts = {shard: Counts() for shard in assignment}
        self.at_us = 0
        self.tasks = tasks

    def add(
        self, shard: str, arrived: int, completed: int, latency_us: float = 0.0, busy_us: float = 0.0
    ) -> None:
        """`latency_us` is the mean of the completed rows, `busy_us` the useful time of one of them."""
        counts = self.counts[shard]
        counts.arrived += arrived
        counts.completed += completed
        if counts.waited_us is not None:
            counts.waited_us += completed * latency_us
        if counts.busy_us is not None:
            counts.busy_us += completed * busy_us

    def seen(
        self, unread: Collection[str] = (), treatment: bool = False, executors: Sequence[str] | None = None
    ) -> OperatorSnapshot:
        names = executors or tuple(dict.fromkeys(self.assignment.values()))
        return OperatorSnapshot(
            operator="op",
            executors=tuple(ExecutorSeen(name, self.tasks, self.tasks) for name in names),
            assignment=dict(self.assignment),
            samples={s: None if s in unread else counts.sample() for s, counts in self.counts.items()},
            treatment=treatment,
        )

    def topology(self, **seen: object) -> TopologySnapshot:
        return TopologySnapshot(self.at_us, {"op": self.seen(**seen)})  # type: ignore[arg-type]


@dataclass
class Shard:
    executor: str
    arrival_per_s: float
    latency_us: float = 1000.0


def examination(
    executors: Mapping[str, tuple[float, float]],
    shards: Mapping[str, Shard],
    stalled: Collection[str] = (),
) -> Examination:
    """`executors`: name -> (mu per s, l_i in us)."""
    names = tuple(executors)
    holder = np.array([names.index(shard.executor) for shard in shards.values()], np.intp)
    arrival = np.array([shard.arrival_per_s for shard in shards.values()], dtype=np.float64)
    completed = np.full(len(shards), 10.0)
    return Examination(
        at_us=1_000_000,
        executors=names,
        tasks=(1,) * len(names),
        shards=tuple(shards),
        holder=holder,
        arrival_per_s=np.bincount(holder, weights=arrival, minlength=len(names)),
        service_per_s=np.array([mu for mu, _ in executors.values()], dtype=np.float64),
        instantaneous_us=np.array([latency for _, latency in executors.values()], dtype=np.float64),
        stalled=np.array([name in stalled for name in names]),
        shard_arrival_per_s=arrival,
        shard_completed=completed,
        shard_latency_sum_us=completed * np.array([shard.latency_us for shard in shards.values()]),
        shard_backlog=np.zeros(len(shards)),
    )


@dataclass
class Water:
    """An operator "op" in virtual time: rows by the slot, first come first served, `service_per_s` a task.

    A treatment pauses source and destination for `pause_slots`, then the shards have moved.
    """

    shards: Sequence[str]
    executors: Sequence[str]
    service_per_s: float = 1000.0
    pause_slots: int = 2
    slot: int = 0
    assignment: dict[str, str] = field(init=False)
    counts: dict[str, Counts] = field(init=False)
    queues: dict[str, deque[list[float]]] = field(init=False)
    pending: PolicyDecision | None = None
    resumes_at: int = 0

    def __post_init__(self) -> None:
        self.executors = list(self.executors)
        self.assignment = {s: self.executors[i % len(self.executors)] for i, s in enumerate(self.shards)}
        self.counts = {shard: Counts() for shard in self.shards}
        self.queues = {shard: deque() for shard in self.shards}

    def step(self, rows: Mapping[str, int]) -> TopologySnapshot:
        """One slot in which `rows` arrive, worked at its end."""
        self.slot += 1
        for shard, count in rows.items():
            if count:
                self.queues[shard].append([self.slot, count])
                self.counts[shard].arrived += count
        if self.pending is not None and self.slot >= self.resumes_at:
            self._carry_out(self.pending)
            self.pending = None
        for executor in self.executors:
            if executor not in self._paused():
                self._work(executor)
        return TopologySnapshot(self.slot * SLOT_US, {"op": self._seen()})

    def treat(self, decision: PolicyDecision) -> None:
        """Begin what `decision` asks for; one at a time."""
        assert self.pending is None, "a decision during a treatment"
        self.pending = decision
        self.resumes_at = self.slot + self.pause_slots
        self.executors = [
            *self.executors,
            *(action.name for action in decision.actions if isinstance(action, AddExecutor)),
        ]

    def _paused(self) -> set[str]:
        if self.pending is None:
            return set()
        moves = [action for action in self.pending.actions if isinstance(action, MoveShards)]
        return {name for move in moves for name in (move.source, move.destination)}

    def _work(self, executor: str) -> None:
        held = [shard for shard in self.shards if self.assignment[shard] == executor]
        budget = self.service_per_s * SLOT_US / 1e6
        while budget > 0 and (waiting := [shard for shard in held if self.queues[shard]]):
            shard = min(waiting, key=lambda name: self.queues[name][0][0])
            came, rows = self.queues[shard][0]
            done = min(rows, budget)
            budget -= done
            self.queues[shard][0][1] -= done
            if self.queues[shard][0][1] <= 0:
                self.queues[shard].popleft()
            counts = self.counts[shard]
            counts.completed += int(done)
            counts.waited_us = (counts.waited_us or 0.0) + done * (self.slot - came) * SLOT_US
            counts.served_us = (counts.served_us or 0.0) + done * 1e6 / self.service_per_s
            counts.busy_us = (counts.busy_us or 0.0) + done * 1e6 / self.service_per_s

    def _carry_out(self, decision: PolicyDecision) -> None:
        for action in decision.actions:
            match action:
                case MoveShards(shards, source, destination):
                    for shard in shards:
                        assert self.assignment[shard] == source
                        self.assignment[shard] = destination
                case RemoveExecutor(name):
                    assert name not in self.assignment.values()
                    self.executors = [executor for executor in self.executors if executor != name]
                case _:
                    pass

    def _seen(self) -> OperatorSnapshot:
        return OperatorSnapshot(
            operator="op",
            executors=tuple(ExecutorSeen(name, 1, 1) for name in self.executors),
            assignment=dict(self.assignment),
            samples={shard: counts.sample() for shard, counts in self.counts.items()},
            treatment=self.pending is not None,
        )


def view(
    name: str,
    arrival_per_s: float = 100.0,
    service_per_s: float = 1000.0,
    instantaneous_us: float = 5000.0,
    expected_us: float = 2000.0,
    health: Health = Health.GOOD,
) -> ExecutorView:
    return ExecutorView(name, arrival_per_s, service_per_s, instantaneous_us, expected_us, health)


def decision(
    at_us: int, treatment: Treatment = Treatment.NONE, health: Health = Health.GOOD, **more: object
) -> PolicyDecision:
    return PolicyDecision(
        at_us=at_us,
        policy="Scripted",
        operator=str(more.pop("operator", "op")),
        treatment=treatment,
        rule="scripted",
        reason="a test says so",
        health=health,
        **more,  # type: ignore[arg-type]
    )
