"""Whether what was decided last has been done, and whether work may be moved about now, in words.

A schedule is settled when every store that it names and that is there has applied it and has nothing on the
move; until all are, no new placement decision is made, except for the dead, and except after a deadline.
Where one store is all there is, each schedule is settled as it is written. Pure. Neighbours: `hosts` asks
whether it may change, what keeps an SLA whether it may act.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.schedule.record import AppliedPlace, OperatorSchedule, StorePlace
from penstock.schedule.store_ids import in_words
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker, WorkerState

TREATMENT_DEADLINE_S = 120.0
"""What has not settled by then does not hold up other decisions any more."""


@dataclass(frozen=True, slots=True)
class Settling:
    """`waits` says in words what for, `shards_moving` over all schedules; `is_overdue` after the deadline.
    `is_complete`: also by stores that are away."""

    waits: tuple[str, ...] = ()
    shards_moving: Mapping[str, int] = field(default_factory=dict)
    is_overdue: bool = False
    is_complete: bool = True

    @property
    def may_change(self) -> bool:
        return not self.waits or self.is_overdue


def settling(
    schedules: Iterable[tuple[OperatorSchedule, Sequence[AppliedPlace]]],
    is_there: Callable[[StorePlace], bool],
    since: SinceWhen,
) -> Settling:
    """`schedules` are those that stand, each with what the agents say of it; `is_there` asks for a store and
    its node."""
    waits: list[str] = []
    moving: dict[str, int] = {}
    is_complete = True
    for schedule, told in schedules:
        applied = {place.store: place for place in told}
        moving[schedule.operator] = sum(place.shards_moving for place in told)
        for store in schedule.stores:
            place = applied.get(store.id)
            has_applied = place is not None and place.version >= schedule.version
            if has_applied and place is not None and place.shards_moving == 0:
                continue
            is_complete = False
            if not is_there(store):
                continue
            if has_applied and place is not None:
                waits.append(
                    f"{place.shards_moving} shards of {schedule.operator} leave {in_words(store.id)}"
                )
            else:
                told_of = f"has not applied version {schedule.version} of {schedule.operator}"
                waits.append(f"the store of {in_words(store.id)} {told_of}")
    is_overdue = bool(waits) and since.lasts_s("unsettled") >= TREATMENT_DEADLINE_S
    return Settling(tuple(waits), moving, is_overdue, is_complete)


def held_back(workers: Iterable[Worker], awaited: Collection[str] = ()) -> str:
    """Why shards and tasks may not be moved about now, in words; "" when they may. Who holds executors has to
    be ready; `awaited` are to hold some again, and are waited for too."""
    down = [
        worker.name
        for worker in workers
        if worker.name in awaited or (worker.holds_executors and worker.state is not WorkerState.READY)
    ]
    return f"worker {', '.join(down)} is not ready" if down else ""
