"""Whether a decision fits the schedules that there are, and what of it is each operator's. Pure.

A policy decides from a snapshot; schedules, bounds and workers may have changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
)
from penstock.control.target import Scope, TaskLimits
from penstock.control.wording import counted
from penstock.schedule.record import OperatorSchedule
from penstock.sla.look import Places
from penstock.sla.treatment import ActionRefused, Advance, NoRoom, begin, tasks_after


def begin_what_fits(
    decision: PolicyDecision,
    schedule: OperatorSchedule,
    scope: Scope,
    places: Places,
    now_us: int,
) -> tuple[PolicyDecision, Advance, bool]:
    """The decision as far as there is room for its new executors, the first ones first, its first step, and
    whether room was lacking for some. Raises ActionRefused where it does not fit, NoRoom where there is room
    for none."""
    check_limits(decision, schedule, scope.limits.get(decision.operator))
    wanted = decision
    while True:
        try:
            begun = begin(decision, schedule, places.room, places.executors, now_us, warm=places.warm)
            check_room(schedule, begun.schedule, places.room)
        except NoRoom:
            fewer = with_one_executor_less(decision)
            if fewer is None:
                raise
            decision = fewer
        else:
            return decision, begun, decision is not wanted


def check_limits(decision: PolicyDecision, schedule: OperatorSchedule, limits: TaskLimits | None) -> None:
    """No decision leaves the bounds, whoever made it. Raises ActionRefused."""
    after = tasks_after(schedule, decision.actions)
    if limits is not None and after > max(limits.max, schedule.tasks):
        raise ActionRefused(f"{after} tasks are more than the {limits.max} that are allowed")
    if limits is not None and after < min(limits.min, schedule.tasks):
        raise ActionRefused(f"{after} tasks are fewer than the {limits.min} that are asked for")


def check_room(before: OperatorSchedule, after: OperatorSchedule, room: Mapping[str, int]) -> None:
    """No worker gets more tasks than it has room for. Raises NoRoom."""
    grown: Counter[str] = Counter()
    for executor in after.executors:
        grown[executor.worker] += executor.tasks
    for executor in before.executors:
        grown[executor.worker] -= executor.tasks
    for worker, tasks in grown.items():
        if tasks > max(0, room.get(worker, 0)):
            raise NoRoom(f"worker {worker} has no room for {counted(tasks, 'more task')}")


def with_one_executor_less(decision: PolicyDecision) -> PolicyDecision | None:
    """The decision without the last new executor it asks for and the shards that were to go there; None where
    it asks for one at most. Strategies side by side share no executor, so the rest stands."""
    new = [action.name for action in decision.actions if isinstance(action, AddExecutor)]
    if len(new) < 2:
        return None
    actions = tuple(
        action
        for action in decision.actions
        if not (isinstance(action, AddExecutor) and action.name == new[-1])
        and not (isinstance(action, MoveShards) and action.destination == new[-1])
    )
    expected = decision.expected
    if expected is not None:
        expected = replace(expected, tasks=expected.tasks - 1)
    return replace(decision, actions=actions, expected=expected)


def without_remote_cores(decision: PolicyDecision, schedule: OperatorSchedule) -> PolicyDecision:
    """The decision with each executor's cores on its own node only. Raises ActionRefused when nothing is left
    to be done."""
    node_of = {worker.name: worker.node for worker in schedule.workers}
    executors = {executor.name: executor for executor in schedule.executors}
    actions: list[Action] = []
    for action in decision.actions:
        if not isinstance(action, AssignCores) or action.name not in executors:
            actions.append(action)
            continue
        executor = executors[action.name]
        node = node_of[executor.worker]
        own = max(1, action.cores.get(node, 0))
        if own != executor.tasks or not any(at != node for at in action.cores):
            actions.append(replace(action, cores={node: own}))
    if decision.actions and not actions:
        raise ActionRefused("the cores are on other nodes, and executors have none there")
    return replace(decision, actions=tuple(actions))


def by_operator(
    decision: PolicyDecision, schedules: Mapping[str, OperatorSchedule]
) -> dict[str, tuple[Action, ...]]:
    """A decision's actions by operator: one about a whole topology names executors of several."""
    if decision.operator:
        return {decision.operator: decision.actions}
    operator_of = {
        executor.name: operator for operator, schedule in schedules.items() for executor in schedule.executors
    }
    # A new executor is of the operator that it gets shards of.
    for action in decision.actions:
        if isinstance(action, MoveShards) and action.source in operator_of:
            operator_of.setdefault(action.destination, operator_of[action.source])
    parts: dict[str, tuple[Action, ...]] = {}
    for action in decision.actions:
        operator = operator_of.get(_executor_of(action))
        if operator is not None:
            parts[operator] = (*parts.get(operator, ()), action)
    return parts


def _executor_of(action: Action) -> str:
    """The executor that an action names first."""
    match action:
        case MoveShards(_, source):
            return source
        case AddExecutor(name) | RemoveExecutor(name) | AssignCores(name):
            return name
