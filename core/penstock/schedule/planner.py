"""The planner: from the schedules as they are to those that fit the workers and the wishes as they are.

One for `penstock run` and for the operator; what only one of them knows comes in as hosts, wishes and
`Runtime`. Where shards run at the start, when a worker is lost, when one is back, and when the number of
workers or tasks changes: each rule stands once, in a module of its own.

1. `task_spread`, `spread`: first schedules, and operators whose executors follow from the hosts.
2. `draft`: operators whose executors stay. `lost_workers` and `returned_workers` say what workers change that
   come and go, `task_numbers` what other numbers of tasks change.
3. `naming`: which workers and stores the schedule names.

What is answered has the version of the schedule that it was worked out from: `book` gives it the next one.
Level-based where it spreads and relocates: from what it made itself it makes no other. Nothing moves that
does not have to. What may not be touched now (a worker whose node is away, a shard that its home has still to
make) is *pinned*: it keeps its executor, its tasks, its home.

Pure. Neighbours: `announcing` brings up tasks before their shards come. A run asks in
`penstock_operator.local.run_placement`, the operator in
`penstock_operator.cluster.workers.schedule_decisions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.schedule.draft import Draft
from penstock.schedule.hosts_and_wishes import CLUSTER, Host, Manner, Runtime, Setting, Wish
from penstock.schedule.lost_workers import relocate, take_over
from penstock.schedule.naming import renewed
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.returned_workers import give_share
from penstock.schedule.spread import spread
from penstock.schedule.task_numbers import give_tasks, take_tasks
from penstock.schedule.task_spread import spread_tasks


def plan(
    old: Mapping[str, OperatorSchedule],
    wishes: Sequence[Wish],
    hosts: Sequence[Host],
    *,
    unborn: Collection[str] = (),
    runtime: Runtime = CLUSTER,
) -> dict[str, OperatorSchedule]:
    """The schedule of every wish's operator; the very object of `old` where nothing differs.

    `old` may lack operators: theirs are first ones. `unborn` names shards that their home
    may still have to make: they stay where they are. Shards are never dropped: one that is in `old` and no
    longer wished stays. A store that `old` names stays named, see `naming.forget_stores`. Where an operator
    has no host to go to, its schedule is left as it is, but for the uids of workers. ValueError when an
    operator without schedule has no host.
    """
    setting = Setting({host.place.name: host for host in hosts}, frozenset(unborn), runtime)
    staying = [w for w in wishes if w.manner is not Manner.SPREAD and w.operator in old]
    planned = _plan_staying(old, staying, setting)
    others = [wish for wish in wishes if wish.operator not in planned]
    tasks = spread_tasks(old, others, _without_room_of(planned.values(), hosts))
    for wish in others:
        before = old.get(wish.operator)
        planned[wish.operator] = spread(before, wish, tasks[wish.operator], setting)
    return {wish.operator: planned[wish.operator] for wish in wishes}


def _plan_staying(
    old: Mapping[str, OperatorSchedule], wishes: Sequence[Wish], setting: Setting
) -> dict[str, OperatorSchedule]:
    """Operators whose executors stay, as far as they can."""
    hosts = setting.hosts
    room = {name: host.task_room for name, host in hosts.items() if not host.is_pinned}
    taken = set[str]()
    drafts = {w.operator: Draft(old[w.operator], w, setting, room, taken) for w in wishes}
    for operator, schedule in old.items():
        draft = drafts.get(operator)
        for executor in draft.executors.values() if draft is not None else schedule.executors:
            taken.add(executor.name)
            if executor.worker in room:
                room[executor.worker] -= executor.tasks
    return {operator: _stayed(draft, setting) for operator, draft in drafts.items()}


def _stayed(draft: Draft, setting: Setting) -> OperatorSchedule:
    if not draft.room:
        return renewed(draft.old, setting)
    if draft.wish.manner is Manner.TAKE_OVER:
        for name, host in setting.hosts.items():
            if host.takes_share:
                give_share(draft, name)
        take_over(draft)
    else:
        before = draft.tasks
        relocate(draft)
        take_tasks(draft, before - draft.wish.tasks)
        give_tasks(draft, draft.wish.tasks - before)
    return draft.schedule()


def _without_room_of(planned: Iterable[OperatorSchedule], hosts: Sequence[Host]) -> list[Host]:
    """`hosts` with the room that is left to the operators that are spread."""
    used = Counter[str]()
    for schedule in planned:
        for executor in schedule.executors:
            used[executor.worker] += executor.tasks
    return [replace(host, task_room=max(0, host.task_room - used[host.place.name])) for host in hosts]
