"""What the hybrid may do on its slow time scale: split an executor, hear the slow parent, merge two. Pure.
Neighbours: `scene` is what a plan is made from, `policy` puts them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.hybrid.scene import Scene

SLOW_US_MIN = 10_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """`every_us`: the slow time scale, which is also what its rates are measured over. `fill`: the share of a
    node's cores that a merged executor may need, and that a split one is brought to; below 1, so that no
    merge is split again at once. `remote_share_max`: an executor with more of its cores elsewhere is split.
    `start_us`: until a task that comes works. Where a row may take less, executors are joined only where the
    greatest loads of the last `calm_us` fit too."""

    every_us: int = SLOW_US_MIN
    fill: float = 0.6
    remote_share_max: float = 0.5
    start_us: int = 700_000
    calm_us: int = 60_000_000

    def __post_init__(self) -> None:
        if self.every_us < SLOW_US_MIN:
            raise ValueError(f"the slow time scale is {SLOW_US_MIN} us and up, not {self.every_us}")
        if not 0 < self.fill < 1 or not 0 <= self.remote_share_max <= 1:
            raise ValueError(f"settings out of range: {self}")


@dataclass(frozen=True, slots=True)
class Plan:
    rule: str
    reason: str
    actions: tuple[Action, ...]
    expected: Prediction | None


def split(scene: Scene, settings: Settings) -> Plan | None:
    """The executor that is furthest beyond its node, if there is one and another node to go to."""
    worst: tuple[float, int] | None = None
    for j in range(len(scene.executors)):
        beyond = _beyond(scene, j, settings)
        if beyond > 0 and len(scene.shards[j]) > 1 and (worst is None or beyond > worst[0]):
            worst = beyond, j
    if worst is None:
        return None
    beyond, j = worst
    executor, cores = scene.executors[j], scene.cores[j]
    room = {
        node: scene.free[node] + cores.get(node, 0)
        for node in scene.free
        if node != executor.node and scene.free[node] + cores.get(node, 0) > 0
    }
    if not room:
        return None
    node = max(room, key=lambda name: (cores.get(name, 0), room[name]))
    offered = float(scene.offered[j])
    # At least one core of `room` stays in reserve, as in ceil(a) + 1.
    share = min(beyond, max(1, room[node] - 1)) / max(scene.needed(offered), scene.total(j), 1)
    moved, moved_share = _portion(scene.shards[j], share)
    if not moved:
        return None
    name = _new_name(scene)
    tasks = min(room[node], max(1, scene.needed(offered * moved_share), cores.get(node, 0)))
    kept = {at: count for at, count in cores.items() if at != node} or dict(cores)
    # Where limits leave no room for more tasks, the new one's are the old one's.
    over = tasks + sum(kept.values()) - scene.total(j) - scene.spare
    while over > 0 and sum(kept.values()) > 1:
        _take(kept, min(kept, key=lambda at: (at == executor.node, at)))
        over -= 1
    if over > 0:
        tasks, over = max(1, tasks - math.ceil(over)), over - (tasks - 1)
    if over > 0:
        return None
    actions: list[Action] = [AddExecutor(name, tasks, node), MoveShards(moved, executor.name, name)]
    if kept != cores:
        actions.append(AssignCores(executor.name, kept))
    left = (offered * (1 - moved_share), sum(kept.values()))
    reason = (
        f"{executor.name} needs {scene.needed(offered)} cores, its node has {scene.room[j]:g} and "
        f"{scene.remote(j)} are remote: {len(moved)} shards go to a new executor on {node}"
    )
    expected = scene.predicted({j: left}, [(j, offered * moved_share, tasks)])
    return Plan("executor-split", reason, tuple(actions), expected)


def _beyond(scene: Scene, j: int, settings: Settings) -> float:
    """Cores' worth of work that should not be where the executor is; 0 for one that is at ease."""
    if math.isinf(scene.room[j]):
        return 0.0
    needed, total, remote = scene.needed(float(scene.offered[j])), scene.total(j), scene.remote(j)
    if needed > scene.room[j]:
        return needed - settings.fill * scene.room[j]
    if remote > 1 and remote > settings.remote_share_max * total:
        return float(remote)
    return 0.0


def _portion(shards: Sequence[tuple[str, float]], share: float) -> tuple[tuple[str, ...], float]:
    """Shards that come to `share` of the work, the heaviest that fit first: few shards move. One stays."""
    moved: list[str] = []
    total = 0.0
    for name, part in shards:
        if len(moved) + 1 < len(shards) and part > 0 and total + part <= share:
            moved.append(name)
            total += part
    return tuple(moved), total


def heard(
    scene: Scene, calm: Scene | None, fast: PolicyDecision, slow: PolicyDecision | None, settings: Settings
) -> Plan | None:
    """What the slow parent wants, where appendix B would want it too. `calm` has the loads that must fit
    where executors are joined; None where it is too soon for that."""
    if slow is None or not slow.actions:
        return None
    move = next((each for each in slow.actions if isinstance(each, MoveShards)), None)
    if move is None:
        return None
    source, destination = scene.position(move.source), scene.position(move.destination)
    if source is None:
        return None
    if slow.treatment in (Treatment.LOAD_BALANCE, Treatment.SCALE_OUT):
        late_us = scene.expected_us(source, float(scene.offered[source]), scene.total(source))
        tasks = sum(each.tasks for each in slow.actions if isinstance(each, AddExecutor))
        wanted = late_us > scene.target_us and not fast.actions and tasks <= scene.spare
    elif slow.treatment is Treatment.SCALE_IN and destination is not None and calm is not None:
        together = scene.needed(float(calm.offered[source] + calm.offered[destination]))
        wanted = together <= settings.fill * scene.room[destination] and together <= scene.total(destination)
    else:
        wanted = False
    if not wanted:
        return None
    return Plan(f"slow-{slow.treatment.value}", slow.reason, slow.actions, slow.expected)


def merge(scene: Scene, settings: Settings, tasks_min: int) -> Plan | None:
    """The executor with least work joins one that keeps its node and saves a core."""
    count = len(scene.executors)
    if count < 2:
        return None
    s = min(range(count), key=lambda j: (float(scene.offered[j]), j))
    best: tuple[bool, int, int] | None = None
    for d in range(count):
        if d == s:
            continue
        node = scene.executors[d].node
        together = scene.needed(float(scene.offered[s] + scene.offered[d]))
        needs = max(together, scene.total(d) - scene.remote(d))
        here = scene.cores[d].get(node, 0) + scene.cores[s].get(node, 0) + scene.free.get(node, 0)
        saved = scene.total(s) + scene.total(d) - max(together, scene.total(d))
        if together > settings.fill * scene.room[d] or saved < 1:
            continue
        if not math.isinf(scene.room[d]) and needs > here:
            continue
        entry = (node != scene.executors[s].node, together, d)
        if best is None or entry < best:
            best = entry
    if best is None:
        return None
    _, together, d = best
    source, into = scene.executors[s], scene.executors[d]
    cores = dict(scene.cores[d])
    cores[into.node] = cores.get(into.node, 0) + max(0, together - scene.total(d))
    others = sum(scene.total(j) for j in range(count) if j not in (s, d))
    if others + sum(cores.values()) < tasks_min:
        return None
    moved = tuple(name for name, _ in scene.shards[s])
    actions: list[Action] = []
    if sum(cores.values()) > scene.total(d):
        actions.append(AssignCores(into.name, cores))
    if moved:
        actions.append(MoveShards(moved, source.name, into.name))
    actions.append(RemoveExecutor(source.name))
    reason = (
        f"{source.name} ({float(scene.offered[s]):.2f} cores' work) joins {into.name} "
        f"({float(scene.offered[d]):.2f}): {together} cores do for both, they have "
        f"{scene.total(s) + scene.total(d)}"
    )
    offered = float(scene.offered[s] + scene.offered[d])
    expected = scene.predicted({s: (0.0, 0), d: (offered, sum(cores.values()))}, [])
    return Plan("executors-merged", reason, tuple(actions), expected)


def _take(cores: dict[str, int], node: str) -> None:
    cores[node] -= 1
    if not cores[node]:
        del cores[node]


def _new_name(scene: Scene) -> str:
    taken = {executor.name for executor in scene.executors}
    number = 0
    while (name := f"{scene.operator.operator}-{number}") in taken:
        number += 1
    return name
