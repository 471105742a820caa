"""Back into bounds: what brings an operator that has too few or too many tasks to the nearest number allowed.

That happens when somebody edits `tasks.min` or `tasks.max`, or starts with another number. Policies keep
within bounds, and from outside most of them see no reason to come back: latency is good, or they may not take
one step that is still outside. Neighbours: `guard` asks, `resizing` has the moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.control.decision import Action, AssignCores
from penstock.control.executor_names import NameExecutor
from penstock.control.resizing import resize
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot
from penstock.control.target import TaskLimits


def wanted_tasks(seen: OperatorSnapshot, limits: TaskLimits, spare: float = math.inf) -> int:
    """The nearest number of tasks within `limits` that is to be had with at most `spare` more."""
    if seen.tasks < limits.min:
        return min(limits.min, seen.tasks + max(0, math.floor(min(spare, limits.min))))
    return min(seen.tasks, limits.max)


def back_into_bounds(seen: OperatorSnapshot, wanted: int, name_executor: NameExecutor) -> tuple[Action, ...]:
    """What brings `seen` to `wanted` tasks, or as near as one decision can. Nothing where it has them.

    Where executors have one task each, executors come or go, with few moves. Where they have more, those with
    most tasks give some up, and those with fewest get some, on their own nodes; if even one each is too many,
    the next decision is about executors.
    """
    if wanted == seen.tasks or not seen.executors:
        return ()
    if all(executor.tasks == 1 for executor in seen.executors):
        return resize(seen, wanted, name_executor)
    return _recored(seen.executors, max(wanted, len(seen.executors)))


def _recored(executors: Sequence[ExecutorSeen], wanted: int) -> tuple[Action, ...]:
    cores = [dict(executor.cores) or {executor.node: executor.tasks} for executor in executors]
    totals = [sum(of.values()) for of in cores]
    while sum(totals) > wanted:
        at = max(range(len(totals)), key=totals.__getitem__)
        mine, home = cores[at], executors[at].node
        # Remote ones first: they cost transfer for as long as they stay.
        node = max(mine, key=lambda name: (name != home, mine[name]))
        mine[node] -= 1
        totals[at] -= 1
    while sum(totals) < wanted:
        at = min(range(len(totals)), key=totals.__getitem__)
        cores[at][executors[at].node] = cores[at].get(executors[at].node, 0) + 1
        totals[at] += 1
    return tuple(
        AssignCores(executor.name, {node: count for node, count in of.items() if count})
        for executor, of, total in zip(executors, cores, totals, strict=True)
        if total != executor.tasks
    )
