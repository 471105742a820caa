"""Two time scales: Elasticutor's future work (Wang et al., SIGMOD 2019, appendix B), with StreamSwitch on the
slow one.

The fast parent (Elasticutor) gives executors cores at every look. It cannot help an executor that has
outgrown its node (more cores would be remote ones, and rows go there and back), nor join executors that have
become small (each holds a core in reserve). So every `every_us` (10 s and up) each operator is looked at once
more, and at most one thing is done, in this order:

1. split: an executor that needs more cores than its node has, or has most of them elsewhere, gives the shards
   of these to a new executor, on the node where it has most remote cores, else where most are free;
2. the slow parent's load balance or scale-out, where its source is congested and cores do not cure it;
3. the slow parent's scale-in, where what comes together fits its node;
4. merge: the executor with least work joins another whose node then holds both with room to spare, if that
   saves a core (M/M/k systems put together always need fewer servers).

The slow parent is shown every snapshot, so that its averages are whole, and heard at these moments alone.
Neighbours: `elasticutor.policy` is the fast parent, any other policy may be the slow one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    Decision,
    MoveShards,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.elasticutor.jackson import Floats, minimal_cores, sojourn_us
from penstock.control.elasticutor.policy import cores_of
from penstock.control.policy import Policy
from penstock.control.samples.shard_rates import ExecutorRates, OperatorLook, ServiceMemory, ShardRates
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import Scope

SLOW_US_MIN = 10_000_000
_SAMPLES = 8
"""Of the slow time scale's window."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`every_us`: the slow time scale, which is also what its rates are measured over. `fill`: the share of a
    node's cores that a merged executor may need, and that a split one is brought to; below 1, so that no
    merge is split again at once. `remote_share_max`: an executor with more of its cores elsewhere is
    split."""

    every_us: int = SLOW_US_MIN
    fill: float = 0.6
    remote_share_max: float = 0.5

    def __post_init__(self) -> None:
        if self.every_us < SLOW_US_MIN:
            raise ValueError(f"the slow time scale is {SLOW_US_MIN} us and up, not {self.every_us}")
        if not 0 < self.fill < 1 or not 0 <= self.remote_share_max <= 1:
            raise ValueError(f"settings out of range: {self}")


class Hybrid:
    """A policy made of two. Decisions of the fast one stand, except for an operator whose executors change
    now."""

    def __init__(
        self, scope: Scope, fast: Policy, slow: Policy | None = None, settings: Settings | None = None
    ) -> None:
        self._scope = scope
        self._fast = fast
        self._slow = slow
        self._settings = settings or Settings()
        self._rates: dict[str, ShardRates] = {}
        self._service: dict[str, ServiceMemory] = {}
        self._looked_us: dict[str, int] = {}
        self._sampled_us: dict[str, int] = {}
        """When the next sample is due."""

    @property
    def name(self) -> str:
        """As users name it."""
        return "hybrid"

    def decide(self, snapshot: TopologySnapshot) -> tuple[Decision, ...]:
        """The fast parent's decisions, one an operator, some replaced by a REPARTITION of the slow time
        scale."""
        fast = self._fast.decide(snapshot)
        slow = {} if self._slow is None else {each.operator: each for each in self._slow.decide(snapshot)}
        answer = []
        for decision in fast:
            operator = snapshot.operators.get(decision.operator)
            planned = None
            if operator is not None and operator.operator in self._scope.targets:
                planned = self._planned(snapshot, operator, decision, slow.get(operator.operator))
            answer.append(planned or replace(decision, policy=self.name))
        return tuple(answer)

    def _planned(
        self,
        snapshot: TopologySnapshot,
        operator: OperatorSnapshot,
        fast: Decision,
        slow: Decision | None,
    ) -> Decision | None:
        rates = self._rates.setdefault(operator.operator, ShardRates(self._settings.every_us))
        looked_us = self._looked_us.setdefault(operator.operator, snapshot.at_us)
        is_due = not operator.treatment and snapshot.at_us - looked_us >= self._settings.every_us
        if not is_due and snapshot.at_us < self._sampled_us.get(operator.operator, snapshot.at_us):
            return None
        self._sampled_us[operator.operator] = snapshot.at_us + self._settings.every_us // _SAMPLES
        look = rates.observe(snapshot.at_us, operator)
        by_executor = self._service.setdefault(operator.operator, ServiceMemory()).rates([look])
        if not is_due:
            return None
        self._looked_us[operator.operator] = snapshot.at_us
        scene = _Scene.of(snapshot, operator, look, by_executor, self._scope)
        if scene is None:
            return None
        limits = self._scope.limits.get(operator.operator)
        plan = (
            _split(scene, self._settings)
            or _heard(scene, fast, slow, self._settings)
            or _merge(scene, self._settings, limits.min if limits else 0)
        )
        if plan is None:
            return None
        return Decision(
            at_us=snapshot.at_us,
            policy=self.name,
            operator=operator.operator,
            treatment=Treatment.REPARTITION,
            rule=plan.rule,
            reason=plan.reason,
            health=fast.health,
            actions=plan.actions,
            seen=fast.seen,
            without=fast.without,
            expected=plan.expected,
            conditions=fast.conditions,
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    rule: str
    reason: str
    actions: tuple[Action, ...]
    expected: Prediction | None


@dataclass(frozen=True, slots=True)
class _Scene:
    """One operator on the slow time scale, all of whose rates are known. Lists are one entry an executor.

    `offered` is lambda / mu in cores, the margin kept; `room` the tasks that its whole node could run,
    math.inf where nodes are not known; `free` node -> tasks that it could run on top; `spare` the tasks on
    top that limits and budget allow.
    """

    operator: OperatorSnapshot
    executors: tuple[ExecutorSeen, ...]
    arrival_per_s: Floats
    service_per_s: Floats
    offered: Floats
    target_us: float
    cores: tuple[Mapping[str, int], ...]
    room: tuple[float, ...]
    free: Mapping[str, int]
    spare: float
    shards: tuple[tuple[tuple[str, float], ...], ...]
    """Of each executor: (shard, its share of the executor's arrivals), heaviest first."""

    @classmethod
    def of(
        cls,
        snapshot: TopologySnapshot,
        operator: OperatorSnapshot,
        look: OperatorLook,
        rates: ExecutorRates,
        scope: Scope,
    ) -> _Scene | None:
        """None while any rate is missing."""
        target = scope.targets[operator.operator]
        arrival = rates.arrival_per_s
        service = rates.service_per_s * (1 - target.safety_margin)
        known = (arrival == 0) | ((arrival > 0) & (service > 0))
        if not operator.executors or not known.all():
            return None
        # An executor that never worked is as fast as the others are.
        usual = float(np.nanmean(service)) if np.isfinite(service).any() else 1.0
        service = np.where(np.isnan(service), usual, service)
        size = scope.cores_of(operator.operator)
        free = {node: math.floor(cores / size) for node, cores in _free(snapshot, scope).items()}
        nodes = snapshot.nodes
        return cls(
            operator=operator,
            executors=operator.executors,
            arrival_per_s=arrival,
            service_per_s=service,
            offered=arrival / service,
            target_us=target.latency_us,
            cores=tuple(cores_of(executor) for executor in operator.executors),
            room=tuple(
                math.floor(nodes[executor.node] / size) if executor.node in nodes else math.inf
                for executor in operator.executors
            ),
            free=free,
            spare=_spare(snapshot, operator, scope),
            shards=_shares(look, arrival),
        )

    def needed(self, offered: float) -> int:
        """ceil(a) + 1."""
        return int(minimal_cores(np.array([offered]), np.ones(1))[0])

    def total(self, j: int) -> int:
        """X_j."""
        return sum(self.cores[j].values())

    def remote(self, j: int) -> int:
        """Cores on other nodes than its own."""
        return self.total(j) - self.cores[j].get(self.executors[j].node, 0)

    def expected_us(self, j: int, offered: float, cores: int) -> float:
        """E[T_j] if it had this load on so many cores."""
        service = self.service_per_s[j : j + 1]
        if offered <= 0:
            return 0.0
        return float(sojourn_us(offered * service, service, np.array([cores]))[0])

    def position(self, name: str) -> int | None:
        """Of the executor of this name; None for one that is new."""
        return next((j for j, executor in enumerate(self.executors) if executor.name == name), None)

    def predicted(
        self, changed: Mapping[int, tuple[float, int]], new: Sequence[tuple[int, float, int]]
    ) -> Prediction:
        """The worst E[T] and the tasks, with `changed` executors (offered, cores) and `new` ones (whose speed
        is that of an executor, offered, cores)."""
        now = {j: (float(self.offered[j]), self.total(j)) for j in range(len(self.executors))}
        after = {**now, **changed}
        times = [self.expected_us(j, offered, cores) for j, (offered, cores) in after.items() if cores]
        times += [self.expected_us(j, offered, cores) for j, offered, cores in new]
        tasks = sum(cores for _, cores in after.values()) + sum(cores for _, _, cores in new)
        return Prediction(max(times, default=0.0), tasks)


def _split(scene: _Scene, settings: Settings) -> _Plan | None:
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
    return _Plan("executor-split", reason, tuple(actions), expected)


def _beyond(scene: _Scene, j: int, settings: Settings) -> float:
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


def _heard(scene: _Scene, fast: Decision, slow: Decision | None, settings: Settings) -> _Plan | None:
    """What the slow parent wants, where appendix B would want it too."""
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
    elif slow.treatment is Treatment.SCALE_IN and destination is not None:
        together = scene.needed(float(scene.offered[source] + scene.offered[destination]))
        wanted = together <= settings.fill * scene.room[destination] and together <= scene.total(destination)
    else:
        wanted = False
    if not wanted:
        return None
    return _Plan(f"slow-{slow.treatment.value}", slow.reason, slow.actions, slow.expected)


def _merge(scene: _Scene, settings: Settings, tasks_min: int) -> _Plan | None:
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
    return _Plan("executors-merged", reason, tuple(actions), expected)


def _free(snapshot: TopologySnapshot, scope: Scope) -> dict[str, float]:
    """Node -> cores that nobody has."""
    free: dict[str, float] = dict(snapshot.nodes)
    for name, operator in snapshot.operators.items():
        for executor in operator.executors:
            for node, count in cores_of(executor).items():
                if node in free:
                    free[node] -= count * scope.cores_of(name)
    return {node: max(0.0, cores) for node, cores in free.items()}


def _spare(snapshot: TopologySnapshot, operator: OperatorSnapshot, scope: Scope) -> float:
    """Tasks that the operator may have on top of those it has."""
    limits = scope.limits.get(operator.operator)
    spare = math.inf if limits is None else limits.max - operator.tasks
    if scope.cores_max is None:
        return spare
    free = scope.cores_max - scope.cores_used(snapshot.tasks)
    return min(spare, math.floor(free / scope.cores_of(operator.operator)))


def _take(cores: dict[str, int], node: str) -> None:
    cores[node] -= 1
    if not cores[node]:
        del cores[node]


def _shares(look: OperatorLook, totals: Floats) -> tuple[tuple[tuple[str, float], ...], ...]:
    arrival = look.arrival_per_s()
    names = look.shards.names
    order = np.argsort(-np.nan_to_num(arrival), kind="stable")
    lists: list[list[tuple[str, float]]] = [[] for _ in look.executors]
    for column in order.tolist():
        j = int(look.owner[column])
        if j >= 0:
            total = float(totals[j])
            lists[j].append((names[column], float(arrival[column]) / total if total > 0 else 0.0))
    return tuple(tuple(each) for each in lists)


def _new_name(scene: _Scene) -> str:
    taken = {executor.name for executor in scene.executors}
    number = 0
    while (name := f"{scene.operator.operator}-{number}") in taken:
        number += 1
    return name
