"""The workers of a topology as the decisions see them: pods and what Schedules say of them, judged.

A worker is *ready*, *starting* (what it runs waits for it), *dead* (what it runs goes to others) or *away*:
its node or its node's store is not there, so what it runs can go nowhere. Nothing that was seen missing is
dead before a grace is over: the picture may be old. Pure; `Memory.since_s` holds since when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.schedule.record import WorkerPlace
from penstock_operator.cluster.kubernetes_api.names import LABEL_OPERATOR, worker_index
from penstock_operator.cluster.observing.observed import (
    Observed,
    ObservedNode,
    ObservedPod,
    ObservedSchedule,
    ObservedStore,
    Resize,
)

MISSING_GRACE_S = 2.0
"""A pod that a Schedule names and that is not listed."""
UNREADY_GRACE_S = 3.0
"""A worker that ran before; a container's restart costs a Spark start, and others can take over at once."""
STARTUP_GRACE_S = 90.0
"""A pod's first start: its image may have to be pulled."""
DEFERRED_GRACE_S = 30.0
"""A node that has not the cores that a pod asks for may have them once another one has left."""
ROW_AGE_US_MAX = 5_000_000
"""A worker writes its row every second; a fresh one shows that it lives, whatever its probe says."""
_FAILED = (Resize.INFEASIBLE, Resize.ERROR)
_ENDED = ("Failed", "Succeeded")
_STARTING_REASONS = ("", "ContainerCreating", "PodInitializing", "Unschedulable")


class WorkerState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    DEAD = "dead"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: a pod, or a name in a Schedule whose pod is not there.

    `is_current`: of the template as it is now, and of a size that its node can give. `lacks_cores`: its node
    does not give it those that it asks for, and perhaps never will.
    `executors`, `shards`, `tasks` and, among these, `remote_tasks` are counts over all Schedules.
    """

    name: str
    operator: str
    node: str
    state: WorkerState
    pod: ObservedPod | None
    is_current: bool
    is_cordoned: bool
    executors: int = 0
    shards: int = 0
    tasks: int = 0
    lacks_cores: bool = False
    remote_tasks: int = 0

    @property
    def index(self) -> int:
        return worker_index(self.name)

    @property
    def uid(self) -> str:
        return self.pod.uid if self.pod is not None else ""

    @property
    def is_leaving(self) -> bool:
        """Its pod is on its way out, or has ended."""
        return self.pod is not None and (self.pod.deletion_timestamp is not None or self.pod.phase in _ENDED)

    @property
    def must_go(self) -> bool:
        """It runs, and should run elsewhere or anew."""
        return not self.is_current or self.is_cordoned or self.lacks_cores


@dataclass(slots=True)
class SinceWhen:
    """`Memory.since_s` as it is carried on: what is not asked for any more is forgotten."""

    before: Mapping[str, float]
    now_s: float
    after: dict[str, float] = field(default_factory=dict)

    def lasts_s(self, what: str) -> float:
        """For how long `what` has been so, with this look. Begins at 0."""
        since_s = self.before.get(what, self.now_s)
        self.after[what] = since_s
        return self.now_s - since_s

    def mark(self, what: str) -> None:
        """`what` happened now."""
        self.after[what] = self.now_s

    def recalls(self, what: str, for_s: float) -> bool:
        """Whether `what` was marked less than `for_s` ago."""
        at_s = self.before.get(what)
        if at_s is None or self.now_s - at_s >= for_s:
            return False
        self.after[what] = at_s
        return True


def judge_workers(
    observed: Observed,
    schedules: Sequence[ObservedSchedule],
    template_hash: str | None,
    since: SinceWhen,
) -> tuple[Worker, ...]:
    """All workers, in the order of their numbers. `template_hash` None: it is not known now, every pod is
    current."""
    pods = {pod.name: pod for pod in observed.pods}
    places = _places(schedules)
    judge = _Judge(observed, since)
    holdings = _holdings(schedules)
    cordoned = {node.name for node in observed.nodes if not node.schedulable}
    workers = []
    for name in sorted(
        pods.keys() | places.keys(), key=lambda name: (name.rpartition("-w")[0], worker_index(name))
    ):
        pod, place = pods.get(name), places.get(name)
        node = pod.node if pod is not None else place.node if place is not None else ""
        holding = holdings.get(name, _Holding())
        operator = (pod.labels if pod is not None else {}).get(LABEL_OPERATOR, "")
        workers.append(
            Worker(
                name=name,
                operator=operator if pod is not None else _operator_of(schedules, name, observed),
                node=node,
                state=judge.state(name, pod, node, holds_executors=holding.executors > 0),
                pod=pod,
                is_current=pod is None
                or (template_hash in (None, pod.template_hash) and pod.resize not in _FAILED),
                is_cordoned=node in cordoned,
                executors=holding.executors,
                shards=holding.shards,
                tasks=holding.tasks,
                lacks_cores=pod is not None and _lacks_cores(pod, since),
                remote_tasks=holding.remote_tasks,
            )
        )
    return tuple(workers)


def _lacks_cores(pod: ObservedPod, since: SinceWhen) -> bool:
    """Whether a resize has come to nothing, or has been put off for too long."""
    if pod.resize is Resize.DEFERRED:
        return since.lasts_s(f"deferred:{pod.uid}") >= DEFERRED_GRACE_S
    return pod.resize in _FAILED


def worker_place(worker: Worker, schedules: Sequence[ObservedSchedule]) -> WorkerPlace:
    """As a schedule names it: with its present uid, or the one it had while it has no pod."""
    if worker.pod is not None:
        return WorkerPlace(worker.name, worker.node, worker.node, worker.uid)
    return _places(schedules)[worker.name]


def _places(schedules: Sequence[ObservedSchedule]) -> dict[str, WorkerPlace]:
    return {place.name: place for seen in schedules for place in seen.schedule.workers}


@dataclass(slots=True)
class _Holding:
    """What a worker has over all Schedules."""

    executors: int = 0
    shards: int = 0
    tasks: int = 0
    remote_tasks: int = 0


def _holdings(schedules: Sequence[ObservedSchedule]) -> dict[str, _Holding]:
    """By worker."""
    found: dict[str, _Holding] = defaultdict(_Holding)
    for seen in schedules:
        counts = Counter(place.executor for place in seen.schedule.shards.values())
        for executor in seen.schedule.executors:
            holding = found[executor.worker]
            holding.executors += 1
            holding.tasks += executor.tasks
            holding.remote_tasks += sum(count for _, count in seen.remote.get(executor.name, ()))
            holding.shards += counts[executor.name]
    return found


def _operator_of(schedules: Sequence[ObservedSchedule], worker: str, observed: Observed) -> str:
    """Of a worker without pod: with isolation Operator, the one whose Schedule names it."""
    topology = observed.topology.topology
    if topology is None or topology.spec.workers.isolation == "Topology":
        return ""
    for seen in schedules:
        if any(place.name == worker for place in seen.schedule.workers):
            return seen.schedule.operator
    return ""


class _Judge:
    def __init__(self, observed: Observed, since: SinceWhen) -> None:
        self._observed = observed
        self._since = since
        self._nodes: dict[str, ObservedNode] = {node.name: node for node in observed.nodes}
        self._stores: dict[str, ObservedStore] = {store.node: store for store in observed.stores}

    def state(self, name: str, pod: ObservedPod | None, node: str, *, holds_executors: bool) -> WorkerState:
        seen_node, store = self._nodes.get(node), self._stores.get(node)
        is_there = seen_node is not None and seen_node.ready and store is not None and store.ready
        if not is_there:
            return WorkerState.AWAY
        if pod is None:
            is_over = self._since.lasts_s(f"missing:{name}") >= MISSING_GRACE_S
            return WorkerState.DEAD if is_over else WorkerState.STARTING
        if pod.deletion_timestamp is not None or pod.phase in _ENDED:
            return WorkerState.DEAD
        if pod.ready or (holds_executors and self._is_alive(name, pod)):
            return WorkerState.READY
        is_first_start = pod.restarts == 0 and pod.reason in _STARTING_REASONS
        grace_s = STARTUP_GRACE_S if is_first_start else UNREADY_GRACE_S
        is_over = self._since.lasts_s(f"unready:{pod.uid}") >= grace_s
        return WorkerState.DEAD if is_over else WorkerState.STARTING

    def _is_alive(self, name: str, pod: ObservedPod) -> bool:
        reading = self._observed.readings.get(pod.node)
        row = reading.workers.get(name) if reading is not None else None
        return (
            reading is not None
            and row is not None
            and row.uid == pod.uid
            and row.state == "ready"
            and reading.now_us - row.at_us <= ROW_AGE_US_MAX
        )
