"""What an SLA's loop answers to a look, and how its answers are carried out where it runs. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.record import OperatorSchedule
from penstock.sla.treatment import STEP_US_MAX

UNAVAILABLE = "MetricsUnavailable"
HELD = "Held"
"""Conditions: the store says nothing; workers come or go, or the run ends."""
NEWS_WINDOWS = 2
"""A condition that lasts so many windows is told."""


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
