"""What a run publishes of its schedules: those that changed, with their remote tasks.

Pure. With remote tasks, what a worker's cores are not worth goes beside it, as on a cluster it would go to
another node; that is for trying it out, not for more speed: the machine's cores are the same. Neighbours:
`run_decisions` calls, `penstock.schedule.book` gives versions, `elasticutor.remote_tasks` says which
tasks go, `spark_worker_care` keeps what runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.control.elasticutor.remote_tasks import Room, place_remote
from penstock.schedule.book import ScheduleBook, Written
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote
from penstock_operator.local.run_state import Action, PublishSchedules, RunState
from penstock_operator.local.spark_worker_care import BESIDE


def publish_first(state: RunState) -> tuple[RunState, list[Action]]:
    """The first schedules, as the run begins; their versions go on from those that the store has seen."""
    book = ScheduleBook({}, version_before=state.version_before)
    return _published(state, book.written(state.schedules.values(), place=_RemotePlaces(state)))


def publish_changed(
    state: RunState, schedules: Mapping[str, OperatorSchedule]
) -> tuple[RunState, list[Action]]:
    """Take schedules that were worked out from those of `state`, and publish those that changed."""
    return _published(state, _book(state).written(schedules.values(), place=_RemotePlaces(state)))


def publish_decided(state: RunState, schedules: Sequence[OperatorSchedule]) -> tuple[RunState, list[Action]]:
    """The same for schedules that an SLA's loop worked out; one of an older version is dropped."""
    book = _book(state)
    current = [schedule for schedule in schedules if book.is_current(schedule)]
    return _published(state, book.written(current, place=_RemotePlaces(state)))


def _book(state: RunState) -> ScheduleBook:
    return ScheduleBook(state.schedules, state.remote)


def _published(state: RunState, written: Written) -> tuple[RunState, list[Action]]:
    state = replace(state, schedules=dict(written.book.schedules), remote=written.book.remote)
    return state, [PublishSchedules(written.schedules)] if written.schedules else []


class _RemotePlaces:
    """Which tasks of schedules run beside their workers. The place is as large."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def __call__(self, schedules: Iterable[OperatorSchedule], before: Remote) -> Remote:
        if not self._state.plan.remote_tasks:
            return {}
        each = self._state.plan.workers.tasks_each
        own: Mapping[str, int] = dict.fromkeys(self._state.workers, each)
        room = Room(own, node_of={}, beside={BESIDE: each * len(own)})
        return place_remote(schedules, before, room)
