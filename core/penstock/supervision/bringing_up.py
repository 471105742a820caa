"""Brings executors up before their shards come: no record is late for a task's start (promise 10).

New executors are announced without shards first, and take theirs once their tasks are up, or after a while.
Where work waits (who held it is dead) shards go at once. Pure. Neighbours: `penstock.schedule.planner` says
what runs where, `penstock.schedule.announcing` makes the announcement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.schedule.announcing import announce, announced_executors
from penstock.schedule.hosts_and_wishes import CLUSTER, Runtime
from penstock.schedule.record import ExecutorPlace, OperatorSchedule
from penstock.supervision.since_when import SinceWhen

WARM_S = 15.0
"""Executors that were announced take their shards after this time, their tasks up or not."""


@dataclass(frozen=True, slots=True)
class Step:
    """`schedule` is the next one: the very object of before where nothing is to be written. `is_warming`: new
    executors have yet to start their tasks, and what is planned comes later."""

    schedule: OperatorSchedule
    is_warming: bool = False


def next_step(
    old: OperatorSchedule,
    planned: OperatorSchedule,
    is_up: Callable[[ExecutorPlace], bool],
    since: SinceWhen,
    *,
    is_urgent: bool = False,
    runtime: Runtime = CLUSTER,
) -> Step:
    """From `old` towards `planned`. `is_up` says whether tasks of an executor run."""
    if planned is old or is_urgent:
        return Step(planned)
    places = {executor.name: executor for executor in planned.executors}
    news = [name for name in announced_executors(old, planned) if not is_up(places[name])]
    if not news or since.lasts_s(f"announced:{planned.operator}") >= WARM_S:
        return Step(planned)
    return Step(announce(old, planned, runtime=runtime), is_warming=True)
