"""One topology's schedules as they stand, and what is written of them next.

Who decides (the planner, an SLA's loop) answers schedules that are to be; here alone they are given versions,
shards are marked as born, and remote tasks are put in. A schedule that was worked out has the version of the
one that it was worked out from: so a decision that somebody else's was faster than is known, and dropped.

Pure. Neighbours: `record` is the value; `penstock run` and the cluster's operator write what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.schedule.births import mark_born, moves_unborn
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
    makes all shards at once."""

    schedules: Mapping[str, OperatorSchedule]
    remote: Remote = field(default_factory=dict)
    applied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def is_current(self, change: OperatorSchedule) -> bool:
        """Whether `change` was worked out from the schedule that stands."""
        old = self.schedules.get(change.operator)
        return old is not None and change.version == old.version

    def moves_unborn(self, change: OperatorSchedule) -> bool:
        """Whether `change` moves what its home has yet to make: it has to wait."""
        old = self.schedules[change.operator]
        return moves_unborn(old, change, self.applied.get(change.operator, {}))

    def opened(self, place: PlaceRemote | None = None) -> Written:
        """All schedules as they stand, with their remote tasks: nobody has seen them yet."""
        return self._written(self.schedules, tuple(self.schedules), place, 0)

    def written(
        self, changes: Iterable[OperatorSchedule], *, term: int = 0, place: PlaceRemote | None = None
    ) -> Written:
        """`changes` are schedules of operators that the book has, one each; one that is as it stands is left
        out. `term` is of who writes. With `place` tasks run where that says, and schedules in which nothing
        else is new are written for it; without, they stay where they are."""
        schedules = dict(self.schedules)
        changed = []
        for change in changes:
            old = schedules[change.operator]
            if change == old:
                continue
            new = _following(old, change, term)
            schedules[new.operator] = mark_born(new, self.applied.get(new.operator, {}), old)
            changed.append(new.operator)
        return self._written(schedules, changed, place, term)

    def _written(
        self,
        schedules: Mapping[str, OperatorSchedule],
        changed: Iterable[str],
        place: PlaceRemote | None,
        term: int,
    ) -> Written:
        names, schedules, remote = list(changed), dict(schedules), dict(self.remote)
        if place is None:
            for name in names:
                for executor in schedules[name].executors:
                    remote.pop(executor.name, None)
                remote |= kept_remote(schedules[name], self.remote)
        else:
            remote = dict(place(schedules.values(), self.remote))
            for name in [name for name in schedules if name not in names]:
                old = schedules[name]
                if with_remote(old, self.remote) != with_remote(old, remote):
                    schedules[name] = _following(old, old, term)
                    names.append(name)
        book = replace(self, schedules=schedules, remote=remote)
        return Written(book, tuple(with_remote(schedules[name], remote) for name in names))


def _following(old: OperatorSchedule, new: OperatorSchedule, term: int) -> OperatorSchedule:
    """`new` as the version after `old`."""
    version = max(new.version, old.version + 1)
    return replace(new, version=version, term=max(new.term, old.term, term))
