"""One operator's schedule while it is changed and its executors stay, as far as they can.

`room` and `taken` (names of executors) are those of the whole plan: what one operator takes is not there for
the next. Neighbours: `lost_workers`, `returned_workers` and `task_numbers` change a draft, `planner` begins
and ends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from penstock.schedule.executor_names import executor_name, free_name
from penstock.schedule.hosts_and_wishes import Manner, Setting, Wish
from penstock.schedule.naming import changed
from penstock.schedule.record import ExecutorPlace, OperatorSchedule
from penstock.schedule.shares import deal


class Draft:
    """`executors` by name and `runs` (shard -> executor) are as they are to be. A shard's executor may be
    one that is gone only until the shard is dealt out."""

    def __init__(
        self, old: OperatorSchedule, wish: Wish, setting: Setting, room: dict[str, int], taken: set[str]
    ) -> None:
        self.old = old
        self.wish = wish
        self.room = room
        """Host that takes and gives -> tasks that there is room for; below 0 where there are too many."""
        self._taken = taken
        self._setting = setting
        self.runs = {shard: place.executor for shard, place in old.shards.items()}
        holders = set(self.runs.values())
        self.executors = {e.name: e for e in old.executors if e.name in holders or self._stays(e)}
        self._fixed = {self.runs[shard] for shard in setting.unborn if shard in self.runs}

    def _stays(self, executor: ExecutorPlace) -> bool:
        """Whether one without shards stays. What was announced for an earlier plan does not: it is planned
        anew, by the same name in the same place."""
        if self.wish.manner is Manner.TAKE_OVER:
            host = self._setting.hosts.get(executor.worker)
            return host is None or not host.takes_share
        return self.wish.is_treated

    @property
    def tasks(self) -> int:
        return sum(executor.tasks for executor in self.executors.values())

    def leaving(self) -> list[ExecutorPlace]:
        """Executors on workers that are no hosts any more."""
        hosts = self._setting.hosts
        return [e for e in self.executors.values() if e.worker not in hosts and e.name not in self._fixed]

    def movable(self) -> list[ExecutorPlace]:
        """Executors on hosts that take and give."""
        return [e for e in self.executors.values() if e.worker in self.room and e.name not in self._fixed]

    def held(self, executor: str) -> list[str]:
        return [shard for shard, name in self.runs.items() if name == executor]

    def store_of(self, executor: str) -> str:
        """The id of the store beside an executor whose worker is a host."""
        return self._setting.hosts[self.executors[executor].worker].store.id

    def roomiest(self, tasks: int) -> str | None:
        """The host with room for so many tasks that has the fewest executors of the operator, then the most
        room."""
        here = Counter(executor.worker for executor in self.executors.values())
        able = [name for name, room in self.room.items() if room >= tasks]
        return min(able, key=lambda name: (here[name], -self.room[name]), default=None)

    def add(self, worker: str, tasks: int) -> str:
        """Another executor, by its name; its shards come later."""
        name = executor_name(self.old.operator, worker)
        if name in self._taken:
            name = free_name(self.old.operator, worker, self._taken)
        self._taken.add(name)
        self.executors[name] = ExecutorPlace(name, worker, tasks)
        self.room[worker] -= tasks
        return name

    def resize(self, executor: str, tasks: int) -> None:
        before = self.executors[executor]
        self.executors[executor] = replace(before, tasks=tasks)
        if before.worker in self.room:
            self.room[before.worker] -= tasks - before.tasks

    def drop(self, executors: Iterable[str]) -> None:
        """Executors go; their shards are still to be given to others."""
        for name in executors:
            gone = self.executors.pop(name)
            if gone.worker in self.room:
                self.room[gone.worker] += gone.tasks

    def deal_out(self, shards: Collection[str]) -> None:
        """Each to the executor with the fewest shards a task."""
        counts = Counter(name for shard, name in self.runs.items() if shard not in shards)
        self.runs.update(deal(shards, counts, {e.name: e.tasks for e in self.movable()}))

    def schedule(self) -> OperatorSchedule:
        """As it is to be, homes beside executors; the very object of before where nothing differs."""
        worker_of = {executor.name: executor.worker for executor in self.executors.values()}
        shards = dict(self.old.shards)
        for shard, place in self.old.shards.items():
            executor = self.runs[shard]
            if worker_of[executor] in self.room and shard not in self._setting.unborn:
                shards[shard] = replace(place, executor=executor, home=self.store_of(executor))
        return changed(self.old, tuple(self.executors.values()), shards, self._setting)
