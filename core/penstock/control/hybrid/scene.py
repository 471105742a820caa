"""One operator on the hybrid's slow time scale: loads of its executors in cores, and the room on nodes.
Neighbour: `plans` says what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.control.decision import Prediction
from penstock.control.elasticutor.jackson import Floats, minimal_cores, sojourn_us
from penstock.control.elasticutor.load import cores_of
from penstock.control.samples.shard_rates import ExecutorRates, OperatorLook
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import Scope


@dataclass(frozen=True, slots=True)
class Scene:
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
    ) -> Scene | None:
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

    def with_loads(self, arrival_per_s: Floats) -> Scene:
        """The same under other loads."""
        return replace(self, arrival_per_s=arrival_per_s, offered=arrival_per_s / self.service_per_s)

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
    free = scope.cores_allowed(snapshot.cores_max) - scope.cores_used(snapshot.tasks)
    return spare if free == math.inf else min(spare, math.floor(free / scope.cores_of(operator.operator)))


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
