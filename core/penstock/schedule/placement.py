"""Where shards run at the start, when a worker is lost, and when it is back.

Pure: schedules in, schedules out; the caller publishes those whose version grew. Shards are spread
evenly *per task*: an executor's share is in proportion to its tasks, found as seats are
allotted by highest averages (D'Hondt), so equal tasks mean counts within one of each other. What is not
decided here: load (StreamSwitch moves shards by it later) and homes, which only a move changes; a shard
that lost its worker keeps its home and is served from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from penstock.dataflow.plan import Plan, Processor, Stage
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace


def executor_name(operator: str, worker: str) -> str:
    """The name of an operator's first executor in a worker."""
    return f"{operator}-{worker}"


def free_name(operator: str, worker: str, taken: Collection[str]) -> str:
    """A name for one more executor of `operator` in `worker`: "count-w0-1", "count-w0-2", ..."""
    number = 1
    while (name := f"{executor_name(operator, worker)}-{number}") in taken:
        number += 1
    return name


def initial_schedules(
    plan: Plan,
    shards: Mapping[str, Sequence[str]],
    workers: Sequence[WorkerPlace],
    home: Mapping[str, str],
    *,
    version: int = 1,
    term: int = 0,
) -> dict[str, OperatorSchedule]:
    """The first schedule of every operator.

    `shards` is operator -> shard names, `home` node -> id of its store. `tasks.initial` tasks, but no
    more than there are shards, go one by one to the workers that have the fewest so far; a worker
    without a task gets no executor. All `workers` are named in every schedule, so that one that
    has no executor yet may enrol. ValueError without workers, or when two executors would share a name.
    """
    if not workers:
        raise ValueError(f"topology {plan.topology} has no worker to be placed on")
    given = {worker.name: 0 for worker in workers}
    schedules = {
        stage.operator: _first(stage, shards[stage.operator], workers, home, given, version, term)
        for stage in plan.stages
    }
    names = [executor.name for schedule in schedules.values() for executor in schedule.executors]
    if len(set(names)) < len(names):
        raise ValueError(f"topology {plan.topology}: two executors would have one name among {sorted(names)}")
    return schedules


def _first(
    stage: Stage,
    shards: Sequence[str],
    workers: Sequence[WorkerPlace],
    home: Mapping[str, str],
    given: dict[str, int],
    version: int,
    term: int,
) -> OperatorSchedule:
    """One operator's share; `given` counts the tasks of each worker so far, and is carried on."""
    tasks = {worker.name: 0 for worker in workers}
    for _ in range(min(stage.tasks.initial, len(shards))):
        # First an operator's own spread, then the worker's: its executors are as many as can be.
        worker = min(tasks, key=lambda name: (tasks[name], given[name]))
        tasks[worker] += 1
        given[worker] += 1
    executors = tuple(
        ExecutorPlace(executor_name(stage.operator, worker), worker, count)
        for worker, count in tasks.items()
        if count
    )
    node_of = {worker.name: worker.node for worker in workers}
    home_of = {executor.name: home[node_of[executor.worker]] for executor in executors}
    runs = _give(shards, {executor.name: [] for executor in executors}, _tasks_of(executors))
    return OperatorSchedule(
        operator=stage.operator,
        version=version,
        term=term,
        workers=tuple(workers),
        executors=executors,
        shards={shard: ShardPlace(runs[shard], home_of[runs[shard]]) for shard in shards},
        is_source=not isinstance(stage.head, Processor),
    )


def renew_worker(
    schedules: Mapping[str, OperatorSchedule], worker: WorkerPlace
) -> dict[str, OperatorSchedule]:
    """Name a worker's new start (or a new worker) in every schedule; it runs what its last one ran.

    To be published before the worker enrols.
    """
    return {operator: _next(old, _renewed(old, worker)) for operator, old in schedules.items()}


def forget_worker(schedules: Mapping[str, OperatorSchedule], worker: str) -> dict[str, OperatorSchedule]:
    """`schedules` without a worker that has left and holds no executor."""
    return {
        operator: _next(old, replace(old, workers=tuple(w for w in old.workers if w.name != worker)))
        for operator, old in schedules.items()
    }


def reassign_worker_lost(
    schedules: Mapping[str, OperatorSchedule], lost: Collection[str], spare_tasks: Mapping[str, int]
) -> dict[str, OperatorSchedule]:
    """Take everything off workers that are dead.

    `lost` names all workers that are dead now; `spare_tasks` is living worker -> tasks that it can run
    beyond those scheduled. Shards of a lost executor go to the operator's living executors, and
    only they move; its tasks go along as far as there are spare ones. Where no executor lives, workers
    with spare tasks take the operator on; where none has any, shards stay and wait.
    """
    spare = {worker: count for worker, count in spare_tasks.items() if worker not in lost and count > 0}
    return {operator: _next(old, _without(old, lost, spare)) for operator, old in schedules.items()}


def spread_to_returned_worker(
    schedules: Mapping[str, OperatorSchedule],
    worker: WorkerPlace,
    tasks: Mapping[str, int],
    lost: Collection[str] = (),
) -> dict[str, OperatorSchedule]:
    """Give a worker that is back (or new) its share, with as few shard moves as that needs.

    `tasks` is operator -> tasks wanted over all workers: what is missing goes to the returned worker;
    if nothing is, tasks move to it from executors that have two more than it. `lost` names the workers that
    are still dead: what waits on them is taken over. A worker whose executor still holds
    its shards simply keeps them.
    """
    dead = set(lost) - {worker.name}
    return {
        operator: _next(old, _with_share(_renewed(old, worker), worker.name, tasks.get(operator, 0), dead))
        for operator, old in schedules.items()
    }


def announce_executors(
    schedules: Mapping[str, OperatorSchedule], planned: Mapping[str, OperatorSchedule], worker: str
) -> dict[str, OperatorSchedule]:
    """`schedules` and the executors that `worker` has in `planned` only, still without a shard.

    Published before `planned` itself, so that the executors' tasks are up when shards come: no record is late
    for a task's start (promise 10).
    """
    return {operator: _announced(old, planned[operator], worker) for operator, old in schedules.items()}


def without_announced(schedules: Mapping[str, OperatorSchedule], worker: str) -> dict[str, OperatorSchedule]:
    """`schedules` without the executors of `worker` that have no shard; versions stay."""
    return {
        operator: replace(
            old,
            executors=tuple(e for e in old.executors if e.worker != worker or old.shards_of(e.name)),
        )
        for operator, old in schedules.items()
    }


# --- one operator -------------------------------------------------------------------------------


def _next(old: OperatorSchedule, new: OperatorSchedule) -> OperatorSchedule:
    """`new` as the version after `old`; `old` itself when nothing differs."""
    return old if new == old else replace(new, version=old.version + 1)


def _announced(old: OperatorSchedule, planned: OperatorSchedule, worker: str) -> OperatorSchedule:
    known = {executor.name for executor in old.executors}
    new = tuple(e for e in planned.executors if e.worker == worker and e.name not in known)
    return _next(old, replace(old, workers=planned.workers, executors=(*old.executors, *new))) if new else old


def _renewed(old: OperatorSchedule, worker: WorkerPlace) -> OperatorSchedule:
    if any(place.name == worker.name for place in old.workers):
        workers = tuple(worker if place.name == worker.name else place for place in old.workers)
    else:
        workers = (*old.workers, worker)
    return replace(old, workers=workers)


def _without(old: OperatorSchedule, lost: Collection[str], spare: dict[str, int]) -> OperatorSchedule:
    """`old` off the lost workers; `spare` is what is left of it, and is carried on."""
    to_place = sum(executor.tasks for executor in old.executors if executor.worker in lost)
    living = {executor.name: executor for executor in old.executors if executor.worker not in lost}
    if len(living) == len(old.executors):
        return old
    if not living:
        able = [place.name for place in old.workers if spare.get(place.name, 0) > 0]
        hosts = sorted(able, key=lambda name: (-spare[name], name))
        for host in hosts[: min(to_place, len(old.shards))]:
            name = executor_name(old.operator, host)
            living[name] = ExecutorPlace(name, host, 0)
    if not living:
        return old
    for _ in range(to_place):
        takers = [executor for executor in living.values() if spare.get(executor.worker, 0) > 0]
        if not takers:
            break
        taker = min(takers, key=lambda e: (e.tasks, -spare[e.worker], e.name))
        living[taker.name] = replace(taker, tasks=taker.tasks + 1)
        spare[taker.worker] -= 1
    executors = tuple(living.values())
    held = {executor.name: old.shards_of(executor.name) for executor in executors}
    return _placed(old, executors, _give(_not_in(old.shards, held), held, _tasks_of(executors)))


def _with_share(
    old: OperatorSchedule, worker: str, tasks_wanted: int, dead: Collection[str]
) -> OperatorSchedule:
    """`old` with an executor in `worker`, unless that would leave it without tasks or without shards."""
    if any(executor.worker == worker for executor in old.executors):
        return _without(old, dead, {worker: old.tasks})
    living = [executor for executor in old.executors if executor.worker not in dead]
    if len(living) >= len(old.shards):
        return old
    name = executor_name(old.operator, worker)
    tasks = _tasks_of(living)
    tasks[name] = max(0, max(tasks_wanted, old.tasks) - sum(tasks.values()))
    while tasks[most := max(tasks, key=lambda executor: tasks[executor])] >= tasks[name] + 2:
        tasks[most] -= 1
        tasks[name] += 1
    if tasks[name] == 0:
        return old
    executors = tuple(replace(executor, tasks=tasks[executor.name]) for executor in living)
    executors += (ExecutorPlace(name, worker, tasks[name]),)
    held = {executor.name: old.shards_of(executor.name) for executor in executors}
    quota = shares(len(old.shards), {n: len(shards) for n, shards in held.items()}, tasks)
    held = {n: shards[: quota[n]] for n, shards in held.items()}
    free = iter(_not_in(old.shards, held))
    held = {n: (*shards, *islice(free, quota[n] - len(shards))) for n, shards in held.items()}
    return _placed(old, executors, _runs(held))


def _placed(
    old: OperatorSchedule, executors: tuple[ExecutorPlace, ...], runs: Mapping[str, str]
) -> OperatorSchedule:
    """`old` with other executors, and shards on them as `runs` says; homes stay."""
    shards = {shard: replace(place, executor=runs[shard]) for shard, place in old.shards.items()}
    return replace(old, executors=executors, shards=shards)


# --- shares -------------------------------------------------------------------------------------


def _tasks_of(executors: Iterable[ExecutorPlace]) -> dict[str, int]:
    return {executor.name: executor.tasks for executor in executors}


def _runs(held: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {shard: executor for executor, shards in held.items() for shard in shards}


def _not_in(shards: Iterable[str], held: Mapping[str, Sequence[str]]) -> list[str]:
    kept = _runs(held)
    return [shard for shard in shards if shard not in kept]


def _weights(tasks: Mapping[str, int]) -> dict[str, int]:
    """Tasks as weights; where no executor has any, all weigh the same."""
    able = {name: count for name, count in tasks.items() if count > 0}
    return able or dict.fromkeys(tasks, 1)


def _give(
    shards: Iterable[str], held: Mapping[str, Sequence[str]], tasks: Mapping[str, int]
) -> dict[str, str]:
    """Each of `shards` to the executor that has the fewest a task after it; shard -> executor of all."""
    runs = _runs(held)
    heap = [
        ((len(held[name]) + 1) / weight, order, len(held[name]), weight, name)
        for order, (name, weight) in enumerate(_weights(tasks).items())
    ]
    heapq.heapify(heap)
    for shard in shards:
        _, order, count, weight, name = heap[0]
        runs[shard] = name
        heapq.heapreplace(heap, ((count + 2) / weight, order, count + 1, weight, name))
    return runs


def shares(total: int, current: Mapping[str, int], tasks: Mapping[str, int]) -> dict[str, int]:
    """How many of `total` shards each executor should have; of equally even answers the one nearest
    to `current`: where averages tie, who has the shard already keeps it."""
    quota = dict.fromkeys(current, 0)
    weights = _weights(tasks)
    heap = [
        (1 / weight, current[name] < 1, order, name) for order, (name, weight) in enumerate(weights.items())
    ]
    heapq.heapify(heap)
    for _ in range(total):
        _, _, order, name = heap[0]
        quota[name] += 1
        after = quota[name] + 1
        heapq.heapreplace(heap, (after / weights[name], current[name] < after, order, name))
    return quota
