"""What `penstock run` asks the planner: its workers as hosts, its operators as wishes.

The run knows one node with one store, in which it has made all shards, and no cores: a worker has room for
what its Spark session admits. Executors stay where they are; only workers that are lost, or back, change what
runs where. Pure. Neighbours: `run_workers` knows who hosts, `penstock.schedule.planner` has the
rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.dataflow.plan import Plan
from penstock.schedule.hosts_and_wishes import ONE_MACHINE, Host, Manner, Wish
from penstock.schedule.planner import plan as plan_schedules
from penstock.schedule.record import OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.supervision.hosts import Hosts
from penstock_operator.local.run_state import RunState, WorkerCare


def first_schedules(
    plan: Plan, shards: Mapping[str, Sequence[str]], workers: Sequence[WorkerPlace]
) -> dict[str, OperatorSchedule]:
    """The first schedule of every operator, on all `workers`; `shards` is operator -> shard names.

    ValueError without workers, or when two executors would share a name.
    """
    wishes = [
        Wish(stage.operator, tuple(shards[stage.operator]), stage.tasks.initial, is_source=stage.is_source)
        for stage in plan.stages
    ]
    hosts = [Host(place, _store(place.node), session_tasks(plan)) for place in workers]
    schedules = plan_schedules({}, wishes, hosts, runtime=ONE_MACHINE)
    names = [executor.name for schedule in schedules.values() for executor in schedule.executors]
    if len(set(names)) < len(names):
        raise ValueError(f"topology {plan.topology}: two executors would have one name among {sorted(names)}")
    return schedules


def planned_on(state: RunState, hosts: Hosts, takers: Collection[str]) -> dict[str, OperatorSchedule]:
    """The schedules with everything on `hosts`, as far as these can take it. `takers` are given their share;
    executors that were announced in them are planned anew."""
    wishes = [
        Wish(
            stage.operator,
            tuple(state.schedules[stage.operator].shards),
            min(stage.tasks.initial, len(state.schedules[stage.operator].shards)),
            is_source=stage.is_source,
            manner=Manner.TAKE_OVER,
        )
        for stage in state.plan.stages
    ]
    room = session_tasks(state.plan)
    places = [
        Host(
            place_of(state, state.workers[worker.name]),
            _store(state.node),
            room,
            is_pinned=worker in hosts.pinned,
            takes_share=worker.name in takers,
        )
        for worker in (*hosts.active, *hosts.pinned)
    ]
    return plan_schedules(state.schedules, wishes, places, runtime=ONE_MACHINE)


def with_shards(schedule: OperatorSchedule, names: Sequence[str], home: str) -> OperatorSchedule:
    """`schedule` with further shards, each on the executor that has the fewest for its tasks."""
    held = {executor.name: len(schedule.shards_of(executor.name)) for executor in schedule.executors}
    tasks = {executor.name: max(executor.tasks, 1) for executor in schedule.executors}
    shards = dict(schedule.shards)
    for name in names:
        taker = min(held, key=lambda executor: (held[executor] / tasks[executor], executor))
        shards[name] = ShardPlace(taker, home)
        held[taker] += 1
    return replace(schedule, shards=shards)


def session_tasks(plan: Plan) -> int:
    """A worker's session has room for every operator's `tasks.max`."""
    return sum(stage.tasks.max for stage in plan.stages)


def spare_tasks(state: RunState, lost: Collection[str]) -> dict[str, int]:
    """Living worker -> tasks that its session has still room for."""
    room = session_tasks(state.plan)
    scheduled = dict.fromkeys(state.workers.keys() - set(lost), 0)
    for schedule in state.schedules.values():
        for executor in schedule.executors:
            if executor.worker in scheduled:
                scheduled[executor.worker] += executor.tasks
    return {name: max(0, room - tasks) for name, tasks in scheduled.items()}


def place_of(state: RunState, care: WorkerCare) -> WorkerPlace:
    return WorkerPlace(care.name, state.node, state.node, care.uid)


def _store(node: str) -> StorePlace:
    """The run's one store goes by the name of its node; everybody knows where it is."""
    return StorePlace(node, node, "")
