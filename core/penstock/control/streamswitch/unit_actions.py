"""From unit strategies to actions that name executors and shards (StreamSwitch, 3.1). Neighbours: `diagnose`
finds strategies, `policy` and the baselines decide on them, `penstock.sla.treatment` carries actions out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.control.decision import Action, AddExecutor, MoveShards, RemoveExecutor
from penstock.control.executor_names import NameExecutor
from penstock.control.streamswitch.diagnose import Strategy
from penstock.control.streamswitch.examination import Examination


def actions_of(
    operator: str, examined: Examination, strategies: Sequence[Strategy], name_executor: NameExecutor
) -> tuple[tuple[Action, ...], int]:
    """What carries `strategies` out, in the order in which it takes effect, and the tasks afterwards. New
    executors are named by `name_executor` and have one task."""
    names = list(examined.executors)
    tasks = sum(examined.tasks)
    actions: list[Action] = []
    for strategy in strategies:
        source = names[strategy.source]
        moved = tuple(examined.shards[shard] for shard in strategy.moved.tolist())
        if strategy.destination is None:
            names.append(name_executor(operator, names))
            actions += (AddExecutor(names[-1]), MoveShards(moved, source, names[-1]))
            tasks += 1
            continue
        if moved:
            actions.append(MoveShards(moved, source, names[strategy.destination]))
        if strategy.source_us == math.inf and len(strategy.expected_us) < len(examined.executors):
            actions.append(RemoveExecutor(source))
            tasks -= examined.tasks[strategy.source]
    return tuple(actions), tasks
