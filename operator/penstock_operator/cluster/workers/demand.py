"""What a topology wants at the moment: shards and tasks of each operator, and whether its work is done.

Level-based: what the stores count decides, a Schedule that says 0 tasks is the memory of an idle operator.
A count that is missing is not zero (promise 7): then things stay as they are. Pure. Neighbours:
`schedule_decisions` carries the wishes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.control.target import TaskLimits
from penstock.dataflow.partitions import shard_name
from penstock.dataflow.plan import Plan, Stage
from penstock.figures.watermarks import are_through
from penstock.schedule.hosts_and_wishes import Manner, Wish
from penstock.schedule.record import OperatorSchedule
from penstock.store.port import ShardCounters
from penstock.supervision.since_when import SinceWhen
from penstock_operator.cluster.observing.observed import Observed

IDLE_AFTER_S = 60.0
"""An operator with tasks.min 0 gives back its last task after so long without input."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Everything that waits, over all shards of all operators, if every shard was seen. `fingerprint` changes
    whenever a shard works."""

    inbox_entries: int
    outbox_entries: int
    are_sources_finished: bool
    are_watermarks_through: bool
    fingerprint: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return self.inbox_entries == 0 and self.outbox_entries == 0


def counters_of(observed: Observed, schedule: OperatorSchedule) -> list[ShardCounters | None]:
    """Of all its shards, each from its home; None for one that could not be seen or is not known there."""
    found: list[ShardCounters | None] = []
    for shard, place in schedule.shards.items():
        reading = observed.readings.get(place.home)
        found.append(reading.shards.get(shard) if reading is not None else None)
    return found


def known_shards(
    observed: Observed, plan: Plan, schedules: Mapping[str, OperatorSchedule]
) -> dict[str, tuple[str, ...]]:
    """operator -> all of its shards: those it has, and those that are new. An operator whose shards are not
    known yet is left out."""
    known: dict[str, tuple[str, ...]] = {}
    for stage in plan.stages:
        old = tuple(schedules[stage.operator].shards) if stage.operator in schedules else ()
        parts = stage.head.fixed_parts
        if stage.initial_of and old:
            # Initial state is what there was at the first start.
            found = []
        elif parts is None:
            found = _announced(observed, stage.operator)
        else:
            found = [shard_name(stage.operator, part) for part in parts]
        shards = dict.fromkeys((*old, *found))
        if shards:
            known[stage.operator] = tuple(shards)
    return known


def partition_faults(observed: Observed, operators: Sequence[str]) -> list[str]:
    """Why workers found no partitions of these sources, each reason once."""
    readings = [reading for reading in observed.readings.values() if reading is not None]
    told = (reading.partition_faults.get(operator) for operator in operators for reading in readings)
    return list(dict.fromkeys(message for message in told if message))


def _announced(observed: Observed, operator: str) -> list[str]:
    readings = [reading for reading in observed.readings.values() if reading is not None]
    return sorted({shard for reading in readings for shard in reading.partitions.get(operator, ())})


def wishes(
    observed: Observed,
    plan: Plan,
    schedules: Mapping[str, OperatorSchedule],
    since: SinceWhen,
    *,
    are_sources_held: bool,
) -> dict[str, Wish]:
    """operator -> what is wanted of it, for all whose shards are known."""
    shards = known_shards(observed, plan, schedules)
    wanted = {}
    for stage in plan.stages:
        if stage.operator not in shards:
            continue
        schedule = schedules.get(stage.operator)
        wanted[stage.operator] = Wish(
            operator=stage.operator,
            shards=shards[stage.operator],
            tasks=_tasks(observed, stage, schedule, since),
            is_held=are_sources_held and stage.is_source,
            is_source=stage.is_source,
            manner=Manner.RELOCATE if stage.operator in observed.sla.limits else Manner.SPREAD,
            is_treated=stage.operator in observed.sla.treated,
        )
    return wanted


def _tasks(observed: Observed, stage: Stage, schedule: OperatorSchedule | None, since: SinceWhen) -> int:
    limits = observed.sla.limits.get(stage.operator)
    if limits is not None:
        return _tasks_of_sla(stage, schedule, limits, is_treated=stage.operator in observed.sla.treated)
    bounds = stage.tasks
    wanted = min(max(bounds.initial, bounds.min), bounds.max)
    if bounds.min > 0 or schedule is None:
        return max(wanted, 1)
    counters = counters_of(observed, schedule)
    seen = [counter for counter in counters if counter is not None]
    if stage.is_source:
        is_done = len(seen) == len(counters) and all(counter.finished for counter in seen)
        return 0 if is_done else max(wanted, 1)
    if any(counter.inbox_entries for counter in seen):
        return max(wanted, 1)
    if len(seen) < len(counters):
        return schedule.tasks
    if schedule.tasks == 0:
        return 0
    return 0 if since.lasts_s(f"idle:{stage.operator}") >= IDLE_AFTER_S else max(wanted, 1)


def _tasks_of_sla(
    stage: Stage, schedule: OperatorSchedule | None, limits: TaskLimits, *, is_treated: bool
) -> int:
    """As many as the LatencySLA has decided, which is what the Schedule says, within its bounds."""
    if schedule is None:
        return min(max(stage.tasks.initial, limits.min), limits.max)
    holders = {place.executor for place in schedule.shards.values()}
    tasks = sum(e.tasks for e in schedule.executors if is_treated or e.name in holders)
    return min(max(tasks, limits.min), limits.max)


def backlog(observed: Observed, plan: Plan, schedules: Mapping[str, OperatorSchedule]) -> Backlog | None:
    """None unless every operator has a schedule and every shard was seen."""
    inbox = outbox = commits = generations = 0
    finished = True
    seen: dict[str, list[ShardCounters | None]] = {}
    for stage in plan.stages:
        schedule = schedules.get(stage.operator)
        if schedule is None:
            return None
        seen[stage.operator] = counters_of(observed, schedule)
        for counter in seen[stage.operator]:
            if counter is None:
                return None
            inbox += counter.inbox_entries
            outbox += counter.outbox_entries
            commits += counter.commit
            generations += counter.generation
            finished = finished and (counter.finished or not stage.is_source)
    return Backlog(inbox, outbox, finished, are_through(plan, seen), (generations, commits, inbox, outbox))
