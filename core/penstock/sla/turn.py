"""What an SLA's loop is given at each look, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.metrics.rows import ShardRow
from penstock.schedule.record import OperatorSchedule
from penstock.sla.treatment import STEP_US_MAX
from penstock.store.port import ShardCounters

UNAVAILABLE = "MetricsUnavailable"
HELD = "Held"
"""Conditions: the store says nothing; workers come or go, or the run ends."""
NEWS_WINDOWS = 2
"""A condition that lasts so many windows is told."""


@dataclass(frozen=True, slots=True)
class SlaLook:
    """What one look at store and fleet showed. `counters` is operator -> shard -> counters, `tasks` executor
    -> when each of its tasks spoke last; `room` is worker -> tasks that may still be put there; `taken` are
    the names of all executors; `warm` workers are used when no other has room. `held` says in words why
    nothing may be done now, "" when it may; `busy` why nothing new may be begun, while what is under way goes
    on. `cores_max`: what others leave to the operators in scope, of a budget that they share."""

    at_us: int
    counters: Mapping[str, Mapping[str, ShardCounters | None]]
    rows: Mapping[str, ShardRow]
    tasks: Mapping[str, Sequence[int]]
    schedules: Mapping[str, OperatorSchedule]
    nodes: Mapping[str, int]
    room: Mapping[str, int]
    taken: frozenset[str]
    warm: frozenset[str] = frozenset()
    held: str = ""
    busy: str = ""
    cores_max: float = math.inf


@dataclass(frozen=True, slots=True)
class Ways:
    """How decisions are carried out where the loop runs. `move_us_max`: shards that move longer are stuck.
    `are_tasks_single`: an executor of several tasks is split first (StreamSwitch). `has_remote_cores`: an
    executor may have cores on other nodes than its worker's. `keeps_timeline`: for a picture at the end."""

    move_us_max: int = STEP_US_MAX
    are_tasks_single: bool = False
    has_remote_cores: bool = True
    keeps_timeline: bool = True


@dataclass(frozen=True, slots=True)
class SlaEvent:
    """Something to tell people."""

    text: str
    is_trouble: bool = False
    kind: str = ""
    """The treatment that was begun; "" for anything else."""


@dataclass(frozen=True, slots=True)
class SlaTurn:
    """What comes of one look: schedules to publish, and what to tell. `lacks_room`: more tasks are wanted
    than the workers that are up have room for."""

    schedules: tuple[OperatorSchedule, ...] = ()
    events: tuple[SlaEvent, ...] = ()
    lacks_room: bool = False
