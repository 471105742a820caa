"""What a worker gets that is back, or new, where executors stay otherwise.

Pure. Neighbours: `draft` is what is changed, `shares` says how many shards are the worker's share.
"""

from __future__ import annotations

from penstock.schedule.draft import Draft
from penstock.schedule.shares import share_out


def give_share(draft: Draft, worker: str) -> None:
    """An executor in `worker`, with as few shard moves as its share needs.

    Tasks that the operator lacks (of its wish) go to it; if none are missing, tasks move to it from executors
    that have two more. It gets none where it would be without tasks or without shards, and simply keeps those
    that still hold shards.
    """
    if any(executor.worker == worker for executor in draft.executors.values()):
        return
    gone = {executor.name for executor in draft.leaving()}
    tasks = {e.name: e.tasks for e in draft.executors.values() if e.name not in gone}
    if len(tasks) >= len(draft.runs):
        return
    mine = max(0, max(draft.wish.tasks, draft.tasks) - sum(tasks.values()))
    while tasks and tasks[most := max(tasks, key=lambda name: tasks[name])] >= mine + 2:
        tasks[most] -= 1
        mine += 1
    if mine == 0:
        return
    draft.drop(gone)
    for executor, count in tasks.items():
        draft.resize(executor, count)
    tasks[draft.add(worker, mine)] = mine
    held = {executor: draft.held(executor) for executor in tasks}
    homes = {shard: draft.old.shards[shard].home for shard in draft.runs}
    stores = {executor: draft.store_of(executor) for executor in tasks}
    draft.runs = share_out(list(draft.runs), homes, held, tasks, stores)
