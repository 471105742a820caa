"""An operator whose executors follow from its hosts: first schedules, and those that are spread.

One executor on each host that has tasks, shards by tasks, homes beside their executors. Nothing moves that
does not have to: a new host takes its share, one that goes leaves its own. What may not be touched (a pinned
host, an unborn shard) keeps its executor, its tasks, its home. Pure. Neighbours: `task_spread` says where
tasks go, `shares` where shards go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.schedule.executor_names import executor_name
from penstock.schedule.hosts_and_wishes import Host, Setting, Wish
from penstock.schedule.naming import changed, renewed
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace
from penstock.schedule.shares import share_out


def spread(
    before: OperatorSchedule | None,
    wish: Wish,
    tasks: Mapping[str, int],
    setting: Setting,
) -> OperatorSchedule:
    """The operator's schedule with `tasks` (worker -> tasks), from the one `before`, if there is one."""
    old = before or OperatorSchedule.unwritten(wish.operator, is_source=wish.is_source)
    active = [host for host in setting.hosts.values() if not host.is_pinned]
    if not active:
        if before is None:
            raise ValueError(f"operator {wish.operator} has no worker to be placed on")
        return renewed(old, setting)
    worker_of = {executor.name: executor.worker for executor in old.executors}
    stuck = _stuck(old, worker_of, setting)
    free = [shard for shard in old.shards if shard not in stuck]
    weights = tasks or _idle(worker_of, [old.shards[shard].executor for shard in free], active)
    names = _executor_names(old, wish.operator, weights)
    held: dict[str, list[str]] = {name: [] for name in names.values()}
    for shard in free:
        if (worker := worker_of[old.shards[shard].executor]) in names:
            held[names[worker]].append(shard)
    store_of = {names[worker]: setting.hosts[worker].store.id for worker in weights}
    runs = share_out(
        [*free, *(shard for shard in wish.shards if shard not in old.shards)],
        {shard: old.shards[shard].home for shard in free},
        held,
        {names[worker]: weight for worker, weight in weights.items()},
        store_of,
    )
    shards = dict(old.shards)
    for shard in (*free, *(shard for shard in wish.shards if shard not in old.shards)):
        executor, home = runs[shard], store_of[runs[shard]]
        known = old.shards.get(shard)
        shards[shard] = replace(known, executor=executor, home=home) if known else ShardPlace(executor, home)
    return changed(old, _executors(old, names, tasks, shards, wish, setting), shards, setting)


def _stuck(old: OperatorSchedule, worker_of: Mapping[str, str], setting: Setting) -> set[str]:
    """Shards that stay where they are."""
    pinned = {name for name, host in setting.hosts.items() if host.is_pinned}
    return {
        shard
        for shard, place in old.shards.items()
        if shard in setting.unborn or worker_of[place.executor] in pinned
    }


def _idle(worker_of: Mapping[str, str], runs: Iterable[str], active: Sequence[Host]) -> dict[str, int]:
    """Hosts of an operator without tasks, weighed so that nothing moves: those that hold its shards (which
    the executors `runs` run), or the first one."""
    holding = Counter(worker_of[executor] for executor in runs)
    kept = {host.place.name: holding[host.place.name] for host in active if holding[host.place.name]}
    return kept or {active[0].place.name: 1}


def _executor_names(old: OperatorSchedule, operator: str, workers: Iterable[str]) -> dict[str, str]:
    """worker -> executor: the one it has, or a first one."""
    known = {executor.worker: executor.name for executor in old.executors}
    return {worker: known.get(worker, executor_name(operator, worker)) for worker in workers}


def _executors(
    old: OperatorSchedule,
    names: Mapping[str, str],
    tasks: Mapping[str, int],
    shards: Mapping[str, ShardPlace],
    wish: Wish,
    setting: Setting,
) -> tuple[ExecutorPlace, ...]:
    """Old ones that still have shards in their order, then new ones."""
    holders = {place.executor for place in shards.values()}
    tasks_of = {names[worker]: tasks.get(worker, 0) for worker in names}
    out = []
    for executor in old.executors:
        if executor.name not in holders:
            continue
        host = setting.hosts.get(executor.worker)
        is_mine = executor.name in tasks_of and not (host is not None and host.is_pinned)
        count = tasks_of[executor.name] if is_mine else 0 if wish.is_held else executor.tasks
        out.append(replace(executor, tasks=count))
    known = {executor.name for executor in out}
    new = ((name, worker) for worker, name in names.items() if name in holders and name not in known)
    return (*out, *(ExecutorPlace(name, worker, tasks_of[name]) for name, worker in new))
