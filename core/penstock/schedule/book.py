"""One topology's schedules as they stand, and what is written of them next.

Who decides (the planner, an SLA's loop) answers schedules that are to be; here alone they are given versions
and terms, shards are marked as born, and remote tasks are put in. A schedule that was worked out has the
version of the one that it was worked out from: so a decision that somebody else's was faster than is known,
and dropped.

Pure. Neighbours: `record` is the value; `penstock run` and the cluster's operator write what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.schedule.births import is_born, with_births
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote, kept_remote, with_remote

PlaceRemote = Callable[[Iterable[OperatorSchedule], Remote], Remote]
"""(all schedules, their remote tasks as they were) -> which tasks are remote now."""


@dataclass(frozen=True, slots=True)
class Written:
    """`schedules` are to be written, in this order; `book` is as it stands once they are."""

    book: ScheduleBook
    schedules: tuple[OperatorSchedule, ...]


@dataclass(frozen=True, slots=True)
class ScheduleBook:
    """`schedules` is operator -> schedule as it stands, without its remote tasks, which are in `remote`.
    `applied` is operator -> store id -> version that the store works by; {} where there is one store, which
    makes all shards at once. `version_before` is the last that stores have seen of operators that have no
    schedule here: first ones go on from it. `seen_by_stores` is operator -> the newest that any store has
    seen, where a schedule was made again from what stores know: the next one is newer."""

    schedules: Mapping[str, OperatorSchedule]
    remote: Remote = field(default_factory=dict)
    applied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    version_before: int = 0
    seen_by_stores: Mapping[str, int] = field(default_factory=dict)

    def is_current(self, change: OperatorSchedule) -> bool:
        """Whether `change` was worked out from the schedule that stands, or from none where none does."""
        old = self.schedules.get(change.operator)
        return change.version == (old.version if old is not None else 0)

    def unborn(self, operators: Iterable[str]) -> frozenset[str]:
        """Shards of these operators that their homes may still have to make."""
        known = [self.schedules[operator] for operator in operators if operator in self.schedules]
        return frozenset(
            shard
            for schedule in known
            for shard, place in schedule.shards.items()
            if not is_born(place, self.applied.get(schedule.operator, {}))
        )

    def written(
        self,
        changes: Iterable[OperatorSchedule],
        *,
        anew: Collection[str] = (),
        term: int | None = None,
        place: PlaceRemote | None = None,
    ) -> Written:
        """`changes` are current ones, one for each operator; one that is as it stands is left out. Operators
        that the book does not have get their first schedules. Those in `anew` are written whether they
        differ or not. `term` is of who writes (None: there are none). With `place` tasks run where that says,
        and schedules in which nothing else is new are written for it; without, they stay where they are."""
        schedules, names = dict(self.schedules), list[str]()
        for change in changes:
            if change != schedules.get(change.operator):
                schedules[change.operator] = self._next(change, term)
                names.append(change.operator)
        for name in anew:
            if name not in names:
                schedules[name] = self._next(schedules[name], term)
                names.append(name)
        if place is None:
            remote = self._kept([schedules[name] for name in names])
        else:
            remote = place(schedules.values(), self.remote)
            for name in [name for name in schedules if name not in names]:
                old = schedules[name]
                if with_remote(old, self.remote) != with_remote(old, remote):
                    schedules[name] = self._next(old, term)
                    names.append(name)
        book = replace(self, schedules=schedules, remote=dict(remote))
        return Written(book, tuple(with_remote(schedules[name], remote) for name in names))

    def _next(self, change: OperatorSchedule, term: int | None) -> OperatorSchedule:
        """`change` as the version after the one that stands."""
        old = self.schedules.get(change.operator)
        if not self.is_current(change):
            raise ValueError(
                f"schedule of {change.operator}: worked out from version {change.version}, and "
                f"{old.version if old is not None else 'none'} stands"
            )
        before = old.version if old is not None else self.version_before
        before = max(before, self.seen_by_stores.get(change.operator, 0))
        # Its own term, also where a later one stands: who leads no more is refused by it, and learns of it.
        new = replace(change, version=before + 1, term=change.term if term is None else term)
        return with_births(old, new, self.applied.get(change.operator, {}))

    def _kept(self, changed: Iterable[OperatorSchedule]) -> Remote:
        """The remote tasks as they are, of `changed` as far as they still have the tasks."""
        remote = dict(self.remote)
        for schedule in changed:
            for executor in schedule.executors:
                remote.pop(executor.name, None)
            remote |= kept_remote(schedule, self.remote)
        return remote
