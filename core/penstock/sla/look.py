"""What one look at stores and workers shows an SLA: samples, places, and what may be done now. Values only.

Neighbours: `penstock run` and the cluster's operator make looks, `observe` makes snapshots of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.figures.lag import Lag
from penstock.metrics.rows import ShardRow
from penstock.schedule.record import OperatorSchedule
from penstock.store.port import ShardCounters


@dataclass(frozen=True, slots=True)
class Samples:
    """What stores and tasks told. `counters` is operator -> shard -> counters, None where its home does not
    know the shard; `rows` is by shard; `spoke` is executor -> when each of its tasks spoke last. `lags` is
    source -> how far it is behind, of those of which that is known."""

    counters: Mapping[str, Mapping[str, ShardCounters | None]]
    rows: Mapping[str, ShardRow]
    spoke: Mapping[str, Sequence[int]]
    lags: Mapping[str, Lag] = field(default_factory=dict)

    def speaking(self, executor: str, since_us: int) -> int:
        """Tasks of `executor` that have spoken since then."""
        return sum(at_us >= since_us for at_us in self.spoke.get(executor, ()))


@dataclass(frozen=True, slots=True)
class Places:
    """Where things run, and where more may. `schedules` are the topology's, by operator; `nodes` is node ->
    tasks that it may have in all, `room` is worker -> tasks that may still be put there; `warm` workers are
    used when no other has room."""

    schedules: Mapping[str, OperatorSchedule]
    nodes: Mapping[str, int]
    room: Mapping[str, int]
    warm: frozenset[str] = frozenset()

    @property
    def executors(self) -> frozenset[str]:
        """The names of all: a new one takes another."""
        return frozenset(
            executor.name for schedule in self.schedules.values() for executor in schedule.executors
        )


@dataclass(frozen=True, slots=True)
class Leeway:
    """What may be done now. `held` says in words why nothing may, "" when it may; `busy` why nothing new may
    be begun, while what is under way goes on. `cores_max`: what others leave to the operators in scope, of a
    budget that they share."""

    held: str = ""
    busy: str = ""
    cores_max: float = math.inf


@dataclass(frozen=True, slots=True)
class SlaLook:
    """One moment."""

    at_us: int
    samples: Samples
    places: Places
    leeway: Leeway = Leeway()
