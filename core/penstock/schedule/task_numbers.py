"""Fewer or more tasks than the schedule has, where tasks come and go as executors.

Bounds were narrowed, or another decider has left more or fewer than are allowed. Pure. Neighbours: `draft` is
what is changed; where executors follow from the hosts `task_spread` has the rule.
"""

from __future__ import annotations

from penstock.schedule.draft import Draft


def take_tasks(draft: Draft, tasks: int) -> None:
    """So many tasks go: from executors of several first, then who holds least goes whole."""
    for _ in range(tasks):
        movable = draft.movable()
        if not movable:
            return
        most = max(movable, key=lambda e: e.tasks)
        if most.tasks > 1:
            draft.resize(most.name, most.tasks - 1)
            continue
        if len(movable) < 2:
            return
        least = min(movable, key=lambda e: len(draft.held(e.name)))
        draft.drop([least.name])
        draft.deal_out(draft.held(least.name))


def give_tasks(draft: Draft, tasks: int) -> None:
    """So many tasks come, where there is room: each a new executor with half of the fullest one's shards."""
    for _ in range(tasks):
        worker = draft.roomiest(1)
        fullest = max(draft.movable(), key=lambda e: len(draft.held(e.name)), default=None)
        if worker is None or fullest is None or len(shards := draft.held(fullest.name)) < 2:
            return
        target = draft.add(worker, 1)
        draft.runs.update(dict.fromkeys(shards[len(shards) // 2 :], target))
