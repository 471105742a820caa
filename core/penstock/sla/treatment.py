"""Treat: from the actions of a decision to schedules, step by step (StreamSwitch, section 5).

A *course* of treatment has three steps, each one schedule: new executors and tasks are announced, so that
they are up when shards come (promise 10); then shards move, by claim; then what is left without shards goes.
Each step is worked out from the schedule as it is by then, since a lost worker changes it meanwhile. A course
that gets stuck has a deadline. In StreamSwitch an executor has one task, and a worker may hold several of one
operator: `single_tasks` makes it so.

What comes out has the version of the schedule that it was worked out from: `penstock.schedule.book` gives it
the next one, if that one still stands. Pure. Neighbours: `penstock.control.decision` holds the actions,
`follow` takes step after step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
)
from penstock.control.wording import counted
from penstock.schedule.executor_names import free_name
from penstock.schedule.record import ExecutorPlace, OperatorSchedule

STEP_US_MAX = 10_000_000
"""A step that takes longer is stuck: the start of a task takes well under a second, a claim some
milliseconds."""


class ActionRefused(ValueError):
    """An action does not fit the schedule as it is now; the decision was made on another one."""


class NoRoom(ActionRefused):
    """No worker has room for the tasks that are to come; another worker would."""


class Step(StrEnum):
    ANNOUNCED = "announced"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class Course:
    """A treatment under way. `actions` name executors as the schedule does; `grown` are those that are given
    more tasks."""

    decision: PolicyDecision
    actions: tuple[Action, ...]
    step: Step
    begun_us: int
    step_since_us: int
    grown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CourseSeen:
    """What there is to see of a course. `tasks_up` is executor -> tasks that have spoken since the course
    began; `owners` is shard -> executor whose claim of it was granted, and has been heard of since."""

    tasks_up: Mapping[str, int]
    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Advance:
    """`course` is None once it has ended; `stuck` then says what did not come in time, "" when all is done.
    `schedule` is the very object that was given where nothing is to be published."""

    course: Course | None
    schedule: OperatorSchedule
    stuck: str = ""


def single_tasks(old: OperatorSchedule, taken: Collection[str]) -> OperatorSchedule:
    """`old` with every executor of several tasks split into executors of one task in the same worker.

    Shards are dealt out in turn. `taken` are the names of all executors of the topology.
    An executor keeps its name with its first task; one of more tasks than shards loses the surplus.
    """
    names = {*taken, *(executor.name for executor in old.executors)}
    executors: list[ExecutorPlace] = []
    shards = dict(old.shards)
    for executor in old.executors:
        held = old.shards_of(executor.name)
        parts = [replace(executor, tasks=min(executor.tasks, 1))]
        for _ in range(min(executor.tasks, len(held)) - 1):
            name = free_name(old.operator, executor.worker, names)
            names.add(name)
            parts.append(ExecutorPlace(name, executor.worker, 1))
        executors.extend(parts)
        if len(parts) > 1:
            for number, shard in enumerate(held):
                shards[shard] = replace(shards[shard], executor=parts[number % len(parts)].name)
    return _unless_same(old, replace(old, executors=tuple(executors), shards=shards))


def begin_single_tasks(
    decision: PolicyDecision, schedule: OperatorSchedule, taken: Collection[str], now_us: int
) -> Advance | None:
    """The first step to executors of one task each, as `single_tasks` has them; None where they are so
    already. `decision` says why; its actions are worked out here."""
    split = single_tasks(schedule, taken)
    if split is schedule:
        return None
    node_of = {worker.name: worker.node for worker in schedule.workers}
    before = {executor.name: executor for executor in schedule.executors}
    added = tuple(executor for executor in split.executors if executor.name not in before)
    moved: dict[tuple[str, str], list[str]] = {}
    for shard, place in split.shards.items():
        source = schedule.shards[shard].executor
        if source != place.executor:
            moved.setdefault((source, place.executor), []).append(shard)
    actions: list[Action] = [AddExecutor(e.name, e.tasks, node_of[e.worker]) for e in added]
    actions += [MoveShards(tuple(shards), *between) for between, shards in moved.items()]
    actions += [
        AssignCores(executor.name, {node_of[executor.worker]: executor.tasks})
        for executor in split.executors
        if executor.name in before and executor.tasks != before[executor.name].tasks
    ]
    announced = replace(schedule, executors=(*schedule.executors, *added))
    course = Course(replace(decision, actions=tuple(actions)), tuple(actions), Step.ANNOUNCED, now_us, now_us)
    return Advance(course, _unless_same(schedule, announced))


def begin(
    decision: PolicyDecision,
    schedule: OperatorSchedule,
    room: Mapping[str, int],
    taken: Collection[str],
    now_us: int,
    *,
    warm: Collection[str] = (),
) -> Advance:
    """The first step of a decision.

    `room` is worker -> tasks that it may still be given (workers that are able to run any, of `schedule`);
    those of `warm` are given some only when no other has room. `taken` are the names of all executors of the
    topology. Raises ActionRefused when an action does not fit `schedule`, in words; nothing is done then.
    """
    actions = _named(decision.actions, schedule, taken)
    _check(actions, schedule)
    announced = _announced(schedule, actions, dict(room), warm)
    before = {executor.name: executor.tasks for executor in schedule.executors}
    grown = tuple(e.name for e in announced.executors if e.tasks > before.get(e.name, e.tasks))
    course = Course(decision, actions, Step.ANNOUNCED, now_us, now_us, grown)
    if announced == schedule:
        return _move(course, schedule, now_us)
    return Advance(course, _unless_same(schedule, announced))


def advance(
    course: Course,
    schedule: OperatorSchedule,
    seen: CourseSeen,
    now_us: int,
    *,
    move_us_max: int = STEP_US_MAX,
) -> Advance:
    """The next step, if this one is done or stuck. `move_us_max`: shards that change their home take as long
    as their state is long."""
    step_us_max = move_us_max if course.step is Step.MOVING else STEP_US_MAX
    is_late = now_us - course.step_since_us >= step_us_max
    if course.step is Step.ANNOUNCED:
        waiting = _not_up(course, schedule, seen)
        if not waiting:
            return _move(course, schedule, now_us)
        if is_late:
            told = f"{', '.join(waiting)} did not come up within {step_us_max / 1e6:.0f} s"
            return Advance(None, _unless_same(schedule, _withdrawn(schedule, course.actions)), told)
        return Advance(course, schedule)
    unclaimed = [
        shard
        for action in course.actions
        if isinstance(action, MoveShards)
        for shard in action.shards
        if shard in schedule.shards and seen.owners.get(shard) != schedule.shards[shard].executor
    ]
    if unclaimed and not is_late:
        return Advance(course, schedule)
    stuck = f"{len(unclaimed)} shards were not claimed within {step_us_max / 1e6:.0f} s" if unclaimed else ""
    return Advance(None, _unless_same(schedule, _retired(schedule, course.actions)), stuck)


def tasks_after(schedule: OperatorSchedule, actions: Collection[Action]) -> int:
    """Tasks of the operator once all is done: what it costs then."""
    tasks = {executor.name: executor.tasks for executor in schedule.executors}
    for action in actions:
        match action:
            case AddExecutor(name, count):
                tasks[name] = count
            case RemoveExecutor(name):
                tasks.pop(name, None)
            case AssignCores(name, cores):
                tasks[name] = sum(cores.values())
            case MoveShards():
                pass
    return sum(tasks.values())


# --- steps ----------------------------------------------------------------------------------------


def _named(
    actions: Collection[Action], schedule: OperatorSchedule, taken: Collection[str]
) -> tuple[Action, ...]:
    """`actions` with names for new executors that no other executor of the topology has."""
    known = {executor.name for executor in schedule.executors}
    names = {*taken, *known}
    renamed: dict[str, str] = {}
    named: list[Action] = []
    for action in actions:
        match action:
            case AddExecutor(name):
                fresh = _unique(name, names)
                names.add(fresh)
                renamed[name] = fresh
                named.append(replace(action, name=fresh))
            case MoveShards(_, source, destination):
                source, destination = renamed.get(source, source), renamed.get(destination, destination)
                named.append(replace(action, source=source, destination=destination))
            case RemoveExecutor(name) | AssignCores(name):
                named.append(replace(action, name=renamed.get(name, name)))
    return tuple(named)


def _unique(name: str, taken: Collection[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    return unique


def _check(actions: Collection[Action], schedule: OperatorSchedule) -> None:
    """Play the actions through."""
    executors = {executor.name for executor in schedule.executors}
    runs = {shard: place.executor for shard, place in schedule.shards.items()}
    for action in actions:
        match action:
            case AddExecutor(name, tasks):
                if tasks < 1:
                    raise ActionRefused(f"executor {name} is to have {tasks} tasks")
                executors.add(name)
            case MoveShards(shards, source, destination):
                if destination not in executors:
                    raise ActionRefused(f"shards are to go to executor {destination}, which is not there")
                for shard in shards:
                    if runs.get(shard) != source:
                        raise ActionRefused(f"shard {shard} is not on executor {source}")
                    runs[shard] = destination
            case RemoveExecutor(name):
                if name not in executors:
                    raise ActionRefused(f"executor {name} is to go, and is not there")
                if name in runs.values():
                    raise ActionRefused(f"executor {name} is to go, and still has shards")
                executors.discard(name)
            case AssignCores(name, cores):
                if name not in executors:
                    raise ActionRefused(f"executor {name} is to have other cores, and is not there")
                if sum(cores.values()) < 1:
                    raise ActionRefused(f"executor {name} is to have no core")


def _announced(
    schedule: OperatorSchedule, actions: Collection[Action], room: dict[str, int], warm: Collection[str]
) -> OperatorSchedule:
    """`schedule` with the new executors, still without shards, and with the tasks that come on top."""
    executors = list(schedule.executors)
    for action in actions:
        match action:
            case AddExecutor(name, tasks, node):
                worker = _host(schedule, executors, tasks, node, room, warm)
                room[worker] -= tasks
                executors.append(ExecutorPlace(name, worker, tasks))
            case AssignCores(name, cores):
                executors = [
                    replace(e, tasks=max(e.tasks, sum(cores.values()))) if e.name == name else e
                    for e in executors
                ]
            case MoveShards() | RemoveExecutor():
                pass
    return replace(schedule, executors=tuple(executors))


def _host(
    schedule: OperatorSchedule,
    executors: Collection[ExecutorPlace],
    tasks: int,
    node: str | None,
    room: Mapping[str, int],
    warm: Collection[str],
) -> str:
    """Of the workers that stand, else of the warm ones, the one with the fewest tasks of the operator, of
    those the one with most room."""
    able = [
        place.name
        for place in schedule.workers
        if room.get(place.name, 0) >= tasks and (node is None or place.node == node)
    ]
    if not able:
        where = f" on node {node}" if node is not None else ""
        raise NoRoom(f"no worker{where} has room for {counted(tasks, 'more task')}")
    here = dict.fromkeys(able, 0)
    for executor in executors:
        if executor.worker in here:
            here[executor.worker] += executor.tasks
    return min(able, key=lambda name: (name in warm, here[name], -room[name]))


def _not_up(course: Course, schedule: OperatorSchedule, seen: CourseSeen) -> list[str]:
    """Executors that were announced and have no task that runs yet, or not all of their new ones."""
    wanted = {action.name: 1 for action in course.actions if isinstance(action, AddExecutor)}
    for executor in schedule.executors:
        if executor.name in course.grown:
            # A worker starts no more tasks than there are shards for.
            wanted[executor.name] = min(executor.tasks, len(schedule.shards_of(executor.name)))
    known = {executor.name for executor in schedule.executors}
    return sorted(name for name in wanted if name in known and seen.tasks_up.get(name, 0) < wanted[name])


def _move(course: Course, schedule: OperatorSchedule, now_us: int) -> Advance:
    """Shards go; those whose executor is not there any more stay where they are."""
    executors = {executor.name for executor in schedule.executors}
    shards = dict(schedule.shards)
    for action in course.actions:
        if isinstance(action, MoveShards) and action.destination in executors:
            for shard in action.shards:
                if shards[shard].executor == action.source:
                    shards[shard] = replace(shards[shard], executor=action.destination)
    moving = replace(course, step=Step.MOVING, step_since_us=now_us)
    moved = _unless_same(schedule, replace(schedule, shards=shards))
    if moved is schedule:
        return Advance(None, _unless_same(schedule, _retired(schedule, course.actions)))
    return Advance(moving, moved)


def _retired(schedule: OperatorSchedule, actions: Collection[Action]) -> OperatorSchedule:
    """`schedule` without the executors that were to go and hold nothing, and with no task too many."""
    holders = {place.executor for place in schedule.shards.values()}
    gone = {action.name for action in actions if isinstance(action, RemoveExecutor)} - holders
    cores = {action.name: sum(action.cores.values()) for action in actions if isinstance(action, AssignCores)}
    executors = tuple(
        replace(executor, tasks=cores.get(executor.name, executor.tasks))
        for executor in schedule.executors
        if executor.name not in gone
    )
    return replace(schedule, executors=executors)


def _withdrawn(schedule: OperatorSchedule, actions: Collection[Action]) -> OperatorSchedule:
    """`schedule` without what was announced: executors that came for these actions and hold nothing."""
    holders = {place.executor for place in schedule.shards.values()}
    added = {action.name for action in actions if isinstance(action, AddExecutor)} - holders
    return replace(schedule, executors=tuple(e for e in schedule.executors if e.name not in added))


def _unless_same(old: OperatorSchedule, new: OperatorSchedule) -> OperatorSchedule:
    """`new`; `old` itself when nothing differs."""
    return old if new == old else new
