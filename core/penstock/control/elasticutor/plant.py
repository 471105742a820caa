"""Nodes and the cores that executors have on them, as numbers: what Algorithm 1 is asked about. Neighbours:
`load` has the rates, `core_assignment` is the algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.control.elasticutor.core_assignment import Problem
from penstock.control.elasticutor.jackson import Allocation, Integers
from penstock.control.elasticutor.load import Load, cores_of
from penstock.control.target import Scope

MILLI = 1000

_NO_NODE = ""
"""The only node of a snapshot that knows of none: then only the number of cores is decided."""

UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Plant:
    """Nodes as numbers. `assigned` is X~ on nodes that exist; `capacity_milli` without what others use;
    `totals` is X~_j; `lost` says who has cores on nodes that do not exist; `core_milli` is the size of a core
    of each operator."""

    nodes: tuple[str, ...]
    capacity_milli: tuple[int, ...]
    assigned: tuple[Mapping[int, int], ...]
    totals: tuple[int, ...]
    lost: tuple[bool, ...]
    home: tuple[int, ...]
    budget_milli: float
    core_milli: tuple[int, ...]


def plant_of(load: Load, scope: Scope) -> Plant:
    snapshot = load.snapshot
    sizes = tuple(_core_milli(scope, each.operator) for each in load.operators)
    budget = scope.cores_allowed(snapshot.cores_max) * MILLI
    if not snapshot.nodes:
        count = len(load.executors)
        return Plant(
            nodes=(_NO_NODE,),
            capacity_milli=(UNLIMITED,),
            assigned=tuple({0: each.tasks} if each.tasks else {} for each in load.executors),
            totals=tuple(each.tasks for each in load.executors),
            lost=(False,) * count,
            home=(0,) * count,
            budget_milli=budget,
            core_milli=sizes,
        )
    index = {name: number for number, name in enumerate(snapshot.nodes)}
    capacity = [cores * MILLI for cores in snapshot.nodes.values()]
    mine = {each.operator for each in load.operators}
    for name, other in snapshot.operators.items():
        if name not in mine:
            for executor in other.executors:
                for node, count in cores_of(executor).items():
                    if node in index:
                        capacity[index[node]] -= count * _core_milli(scope, name)
    assigned: list[dict[int, int]] = []
    totals: list[int] = []
    lost: list[bool] = []
    for each in load.executors:
        known: dict[int, int] = {}
        total, seen = 0, 0
        for node, count in cores_of(each).items():
            seen += count
            if count > 0 and (number := index.get(node, -1)) >= 0:
                known[number] = count
                total += count
        assigned.append(known)
        totals.append(total)
        lost.append(total != seen)
    home = tuple(index.get(each.node, -1) for each in load.executors)
    capacity = [max(0, each) for each in capacity]
    # What is left of a node beside whole cores serves nobody.
    usable = sum(each - each % min(sizes) for each in capacity)
    return Plant(
        nodes=tuple(snapshot.nodes),
        capacity_milli=tuple(capacity),
        assigned=tuple(assigned),
        totals=tuple(totals),
        lost=tuple(lost),
        home=home,
        budget_milli=min(budget, usable),
        core_milli=sizes,
    )


def problem_of(load: Load, plant: Plant, allocation: Allocation, fixed: Integers) -> Problem:
    # State that nobody measured counts alike everywhere, so that at least its shares are moved sparingly;
    # data rates that nobody measured make no executor data-intensive.
    state = np.where(np.isnan(load.state_bytes), 1.0, load.state_bytes)
    intensity = np.nan_to_num(load.bytes_per_s, nan=0.0) / np.maximum(1, allocation.cores)
    milli = np.array(plant.core_milli)[load.operator]
    return Problem(
        capacity_milli=plant.capacity_milli,
        allocation=allocation.cores.tolist(),
        assigned=plant.assigned,
        home=plant.home,
        state_bytes=state.tolist(),
        intensity_bytes_per_s=intensity.tolist(),
        core_milli=milli.tolist(),
        pinned=(fixed >= 0).tolist(),
    )


def _core_milli(scope: Scope, operator: str) -> int:
    return max(1, round(scope.cores_of(operator) * MILLI))
