"""What becomes of executors whose worker goes, where executors stay otherwise.

Two ways, by the operator's manner: an executor is made anew, whole, on another host (`relocate`), or the
operator's other executors take over what it ran (`take_over`). Pure. Neighbours: `draft` is what is changed;
where executors follow from the hosts `spread` has the rule.
"""

from __future__ import annotations

from penstock.schedule.draft import Draft
from penstock.schedule.record import ExecutorPlace


def relocate(draft: Draft) -> None:
    """Each goes whole to where there is room, else its shards go to the others; the last one goes to a host
    even without room."""
    for executor in draft.leaving():
        _relocate(draft, executor)


def _relocate(draft: Draft, executor: ExecutorPlace) -> None:
    draft.drop([executor.name])
    shards = draft.held(executor.name)
    worker = draft.roomiest(executor.tasks)
    if worker is not None:
        target = draft.add(worker, executor.tasks)
        draft.runs.update(dict.fromkeys(shards, target))
    elif draft.movable():
        draft.deal_out(shards)
    else:
        most = max(draft.room, key=lambda name: draft.room[name])
        draft.runs.update(dict.fromkeys(shards, draft.add(most, 1)))


def take_over(draft: Draft) -> None:
    """Shards go to the operator's living executors, and only they move; tasks go along as far as there is
    room. Where none lives that may be given something, hosts with room take the operator on; where none has
    any, shards stay and wait for their worker's return."""
    gone = draft.leaving()
    if not gone:
        return
    tasks = sum(executor.tasks for executor in gone)
    if not draft.movable():
        able = [name for name, room in draft.room.items() if room > 0]
        hosts = sorted(able, key=lambda name: (-draft.room[name], name))
        for host in hosts[: min(tasks, len(draft.runs))]:
            draft.add(host, 0)
        if not draft.movable():
            return
    names = {executor.name for executor in gone}
    draft.drop(names)
    for _ in range(tasks):
        takers = [executor for executor in draft.movable() if draft.room[executor.worker] > 0]
        if not takers:
            break
        taker = min(takers, key=lambda e: (e.tasks, -draft.room[e.worker], e.name))
        draft.resize(taker.name, taker.tasks + 1)
    draft.deal_out([shard for shard, executor in draft.runs.items() if executor in names])
