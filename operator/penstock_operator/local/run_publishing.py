"""What a run publishes of its schedules: those that changed, with their remote tasks.

Pure. With remote tasks, what a worker's cores are not worth goes beside it, as on a cluster it would go to
another node; that is for trying it out, not for more speed: the machine's cores are the same. Neighbours:
`run_decisions` calls, `penstock.control.remote_tasks` says which tasks go, `spark_worker_care` keeps
what runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.control.remote_tasks import Remote, Room, place_remote, with_remote
from penstock.schedule.record import OperatorSchedule
from penstock_operator.local.processes.spark_worker_care import BESIDE
from penstock_operator.local.run_state import Action, PublishSchedules, RunState


def publish_first(state: RunState) -> tuple[RunState, list[Action]]:
    """All schedules, as the run begins."""
    return _publish(state, tuple(state.schedules.values()))


def publish_changed(
    state: RunState, schedules: Mapping[str, OperatorSchedule]
) -> tuple[RunState, list[Action]]:
    """Take new schedules, and publish those that changed; versions only grow."""
    kept = dict(state.schedules)
    changed = []
    for name, new in schedules.items():
        before = kept[name]
        if new == before:
            continue
        kept[name] = new if new.version > before.version else replace(new, version=before.version + 1)
        changed.append(kept[name])
    return _publish(replace(state, schedules=kept), changed)


def _publish(state: RunState, changed: Sequence[OperatorSchedule]) -> tuple[RunState, list[Action]]:
    """`changed` are among the schedules of `state`; beside them those go in which nothing is new but their
    remote tasks."""
    remote = _remote_now(state)
    schedules, published = dict(state.schedules), list(changed)
    done = {schedule.operator for schedule in changed}
    for name, old in state.schedules.items():
        if name not in done and with_remote(old, state.remote) != with_remote(old, remote):
            schedules[name] = replace(old, version=old.version + 1)
            published.append(schedules[name])
    state = replace(state, schedules=schedules, remote=remote)
    if not published:
        return state, []
    return state, [PublishSchedules(tuple(with_remote(schedule, remote) for schedule in published))]


def _remote_now(state: RunState) -> Remote:
    """Which tasks of the schedules as they are now run beside their workers. The place is as large."""
    if not state.plan.remote_tasks:
        return {}
    each = state.plan.workers.tasks_each
    own: Mapping[str, int] = dict.fromkeys(state.workers, each)
    room = Room(own, node_of={}, beside={BESIDE: each * len(own)})
    return place_remote(state.schedules.values(), state.remote, room)
