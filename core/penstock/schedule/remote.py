"""Which tasks of a topology's executors run on other nodes than their workers', as a value beside schedules.

Pure. Neighbours: `control.elasticutor.remote_tasks` decides which do, `book` puts them into what is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule

Remote = Mapping[str, tuple[tuple[str, int], ...]]
"""Executor -> (node, tasks), as `ExecutorPlace.remote` has it; executors without are left out."""


def remote_of(schedules: Iterable[OperatorSchedule]) -> Remote:
    return {e.name: e.remote for schedule in schedules for e in schedule.executors if e.remote}


def with_remote(schedule: OperatorSchedule, remote: Remote) -> OperatorSchedule:
    """`schedule`, same version, with exactly these remote tasks; with {} all are at home."""
    executors = tuple(replace(e, remote=tuple(remote.get(e.name, ()))) for e in schedule.executors)
    return replace(schedule, executors=executors)


def kept_remote(schedule: OperatorSchedule, before: Remote) -> Remote:
    """The remote tasks that executors of `schedule` had `before`, as far as they still have the tasks: one
    stays at home."""
    away = {e.name: clipped(before.get(e.name, ()), e.tasks - 1) for e in schedule.executors}
    return {name: tuple(sorted(nodes.items())) for name, nodes in away.items() if nodes}


def clipped(remote: Iterable[tuple[str, int]], most: int) -> Counter[str]:
    """Node -> tasks, `most` in all; the first nodes give theirs up first."""
    away = Counter(dict(remote))
    while away.total() > max(0, most):
        node = min(node for node, count in away.items() if count)
        away[node] -= 1
    return +away
