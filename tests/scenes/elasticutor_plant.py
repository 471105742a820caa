"""A plant that the policy Elasticutor looks at: operators under loads that tests set."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.control.decision import AssignCores, PolicyDecision
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits

S = 1_000_000


class Plant:
    """Operators whose shards count at rates that a test sets; decisions are carried out at once.

    Each operator has `executors` of `shards` shards. Every row takes `service_us`, however many wait.
    """

    def __init__(
        self,
        nodes: Mapping[str, int],
        homes: Mapping[str, list[str]],
        shards: int = 8,
        service_us: float = 10_000,
        state_bytes: int | None = 1_000,
        bytes_per_row: Mapping[str, int] | None = None,
        cores_max: float = math.inf,
    ) -> None:
        self.now_us = 0
        self.nodes = nodes
        self.cores_max = cores_max
        self.service_us = service_us
        self.state_bytes = state_bytes
        self.bytes_per_row = bytes_per_row or {}
        self.cores = {
            f"{operator}-{j}": {node: 1} for operator, at in homes.items() for j, node in enumerate(at)
        }
        self.home = {f"{operator}-{j}": node for operator, at in homes.items() for j, node in enumerate(at)}
        self.operators = tuple(homes)
        self.shards = shards
        self.rows = dict.fromkeys(self.cores, 0.0)
        self.lost: set[str] = set()
        self.treated: set[str] = set()
        self.writer: dict[str, int] = dict.fromkeys(self.cores, 1)

    def run(self, seconds: float, rate_per_s: Mapping[str, float]) -> None:
        """Let `seconds` pass with so many rows a second for each executor that is named."""
        self.now_us += int(seconds * S)
        for name, rate in rate_per_s.items():
            self.rows[name] += rate * seconds

    def snapshot(self) -> TopologySnapshot:
        """As it is now."""
        return TopologySnapshot(
            self.now_us,
            {name: self._operator(name) for name in self.operators},
            self.nodes,
            tuple(zip(self.operators, self.operators[1:], strict=False)),
            self.cores_max,
        )

    def _operator(self, operator: str) -> OperatorSnapshot:
        mine = [name for name in self.cores if name.rsplit("-", 1)[0] == operator]
        assignment, samples = {}, {}
        for name in mine:
            rows = self.rows[name] / self.shards
            for k in range(self.shards):
                shard = f"{operator}/{name}.{k}"
                assignment[shard] = name
                samples[shard] = (
                    None
                    if name in self.lost
                    else ShardSample(
                        arrived=round(rows * 1000),
                        completed=round(rows * 1000),
                        waited_us=0.0,
                        served_us=rows * 1000 * self.service_us / 1000,
                        busy_us=rows * 1000 * self.service_us / 1000,
                        writer=self.writer[name],
                        state_bytes=self.state_bytes,
                        bytes_in=round(rows * self.bytes_per_row.get(operator, 0)),
                        bytes_out=0,
                    )
                )
        executors = tuple(
            ExecutorSeen(
                name,
                sum(self.cores[name].values()),
                sum(self.cores[name].values()),
                self.home[name],
                self.cores[name] if self.nodes else {},
            )
            for name in mine
        )
        return OperatorSnapshot(operator, executors, assignment, samples, operator in self.treated)

    def carry_out(self, decisions: tuple[PolicyDecision, ...]) -> None:
        """Cores as decided."""
        for decision in decisions:
            for action in decision.actions:
                assert isinstance(action, AssignCores)
                self.cores[action.name] = dict(action.cores)

    def total(self, name: str) -> int:
        """X_j."""
        return sum(self.cores[name].values())


def scope(
    *operators: str,
    latency_us: float = 10 * S,
    margin: float = 0.0,
    limits: TaskLimits | None = None,
    cores_max: float | None = None,
    task_cpu: Mapping[str, float] | None = None,
) -> Scope:
    return Scope(
        targets={each: LatencyTarget(latency_us, window_us=S, safety_margin=margin) for each in operators},
        limits=dict.fromkeys(operators, limits) if limits else {},
        cores_max=cores_max,
        task_cpu=task_cpu or {},
    )
