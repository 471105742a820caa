"""A worker as supervision knows it: how it is, what it holds, whether it should be elsewhere. Values only.

A worker is *ready*, *starting* (what it holds waits for it), *dead* (what it holds goes to others) or *away*:
its node or its node's store is not there, so what it holds can go nowhere. Neighbours: `judge` says which,
each runtime makes the rest of what it sees; all other modules of this room read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote
from penstock.schedule.store_ids import store_id


class WorkerState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    DEAD = "dead"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a worker has over all schedules. `remote_tasks` are among `tasks`."""

    executors: int = 0
    shards: int = 0
    tasks: int = 0
    remote_tasks: int = 0


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: a start of it (`uid`: a process tree, a pod), or a name in schedules of which none is there
    (`uid` "").

    `number` is the one in its name, `group` the operator that it is for, "" for all. `ending` says in words
    why it is on its way out, or how it has ended; `is_told_to_go`: somebody has seen to that already.
    `is_current`: made from what workers are made from now. `leaves_store`: in words, why it is to work on
    another store of its node; `crowds_store`: why it would better do so. `lacks_cores`: its node does not
    give it those that it asks for, and perhaps never will. `may_start`: if no start of it is there, another
    one may be made now.
    """

    name: str
    number: int
    state: WorkerState
    uid: str = ""
    node: str = ""
    server: int = 0
    """Which of its node's store servers it works on."""
    group: str = ""
    ending: str = ""
    is_told_to_go: bool = False
    is_current: bool = True
    is_cordoned: bool = False
    leaves_store: str = ""
    crowds_store: str = ""
    lacks_cores: bool = False
    may_start: bool = True
    holding: Holding = Holding()

    @property
    def is_there(self) -> bool:
        return bool(self.uid)

    @property
    def store(self) -> str:
        """The id of the store that it works on."""
        return store_id(self.node, self.server)

    @property
    def is_leaving(self) -> bool:
        return bool(self.ending) or self.is_told_to_go

    @property
    def must_go(self) -> bool:
        """It runs, and should run elsewhere or anew."""
        return self.has_to_go or bool(self.crowds_store) or self.lacks_cores

    @property
    def has_to_go(self) -> bool:
        """It must go, and not only for the better: to cores that its node does not give it, or to a store
        with fewer beside it."""
        return not self.is_current or self.is_cordoned or bool(self.leaves_store)

    @property
    def holds_executors(self) -> bool:
        return self.holding.executors > 0

    @property
    def is_idle(self) -> bool:
        """It could work, and has nothing to do."""
        return self.state is WorkerState.READY and not self.holds_executors and not self.must_go


def holdings(schedules: Iterable[OperatorSchedule], remote: Remote) -> dict[str, Holding]:
    """By worker; those that hold nothing are not in it. `remote` has the tasks that run on other nodes."""
    executors, shards, tasks, away = (Counter[str]() for _ in range(4))
    for schedule in schedules:
        held = Counter(place.executor for place in schedule.shards.values())
        for executor in schedule.executors:
            executors[executor.worker] += 1
            shards[executor.worker] += held[executor.name]
            tasks[executor.worker] += executor.tasks
            away[executor.worker] += sum(count for _, count in remote.get(executor.name, ()))
    return {name: Holding(count, shards[name], tasks[name], away[name]) for name, count in executors.items()}
