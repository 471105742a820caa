"""What a Schedule's status says of it in two numbers: shards on the move, tasks that run. Pure.

The agents write `status.applied`, each its own store's entry; the operator sums up and owns the two numbers
alone, so no two writers name one field. What is not known is None, and what was written stays (promise 7).
Neighbours: `decide` asks, `schedule_status` writes, `status` shows the same for the Topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.figures.operators import Running, tasks_running, tasks_told
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock_operator.cluster.observing.observed import Observed, ObservedSchedule


@dataclass(frozen=True, slots=True)
class ScheduleFigures:
    """Of the Schedule object `name`. `shards_moving` None: a store has yet to apply the schedule, and to say
    what it has to give away. `tasks_ready` None: a store with some of its tasks does not answer."""

    name: str
    shards_moving: int | None
    tasks_ready: int | None


def schedule_figures(observed: Observed, begun: Mapping[str, int]) -> tuple[ScheduleFigures, ...]:
    """Of all Schedules that stay. `begun` is operator -> shards that get another home by what is decided now,
    so that a treatment shows all its moves from its beginning."""
    running = running_in(observed)
    return tuple(
        ScheduleFigures(
            seen.name,
            begun.get(seen.schedule.operator) or _moving(seen),
            None if _is_unanswered(observed, seen.schedule) else tasks_running(seen.schedule, running) or 0,
        )
        for seen in observed.schedules
        if not seen.is_deleting
    )


def rehomed(old: OperatorSchedule, new: OperatorSchedule) -> int:
    """Shards that exist and have another home in `new`."""
    return sum(
        shard in old.shards and old.shards[shard].home != place.home and not place.fresh_since
        for shard, place in new.shards.items()
    )


def _moving(seen: ObservedSchedule) -> int | None:
    applied = {place.store: place.version for place in seen.applied}
    if any(applied.get(store.id, -1) < seen.schedule.version for store in seen.schedule.stores):
        return None
    return sum(place.shards_moving for place in seen.applied)


def running_in(observed: Observed) -> Running:
    """What the main processes tell of their tasks; None of a worker whose store does not answer."""

    def running(place: WorkerPlace) -> Mapping[str, int] | None:
        reading = observed.readings.get(place.store)
        if reading is None:
            return None
        return tasks_told(reading.workers.get(place.name), place, reading.now_us)

    return running


def _is_unanswered(observed: Observed, schedule: OperatorSchedule) -> bool:
    """A store that is there says nothing. One that is away is known: no task can run beside it."""
    there = {store.id for store in observed.stores if store.ready}
    beside = {place.store for place in schedule.workers}
    return any(observed.readings.get(store) is None for store in beside & there)
