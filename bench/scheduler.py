"""`make bench-scheduler`: how long Elasticutor's scheduler takes for one decision, from snapshot to decision.

The paper's setting (section 5.4, table 3) on 8, 32 and 256 nodes of 8 cores: 12 operators, each of 32
executors and 8 192 shards. Loads drift from decision to decision, and every tenth decision an operator's
loads are dealt out anew over its executors; what is decided is carried out before the next one. One process,
one thread.

Two times of each decision: all of `decide`, which sums counters of 98 304 shards first, and the step after
that, which is what the paper's scheduler does ("to calculate a new CPU-to-executor assignment"). Counters
come in arrays (`SampleTable`); what the same decision costs from plain mappings of samples stands beside it.

384 executors need two tasks each at least (ceil(lambda / mu) + 1), more than 32 nodes have cores. The paper
does not say how its executors shared them. Here tasks ask for slices of a core (`taskCpu`), so that a cluster
has about four for each executor; with whole cores, measured too, the budget runs out and executors go
without.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import machine
from bench.screen import Screen, show
from numpy.typing import NDArray
from rich.table import Table

from penstock.control.decision import AssignCores, PolicyDecision
from penstock.control.elasticutor.policy import Elasticutor
from penstock.control.samples.sample_table import (
    ARRIVED,
    BUSY_US,
    BYTES_IN,
    BYTES_OUT,
    COMPLETED,
    ROWS,
    SERVED_US,
    STATE_BYTES,
    WAITED_US,
    AssignmentTable,
    SampleTable,
    Shards,
)
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope

Floats = NDArray[np.float64]

SEED = 20190630
NODES = (8, 32, 256)
CORES = 8
OPERATORS = 12
EXECUTORS = 32
SHARDS = 8192
TASK_CPU = {8: 0.04, 32: 0.16, 256: 1.0}
DECISIONS = {8: 400, 32: 400, 256: 300}
WHOLE_CORES = {8: 200, 32: 200}
FROM_MAPPINGS = {32: 20}
WARM_UP = 5
INTERVAL_US = 1_000_000
LATENCY_MS = 10.0
LOAD = 0.5
"""Of all tasks that the cluster has room for."""
DRIFT = 0.1
"""Standard deviation of a load's logarithm from decision to decision."""
SHUFFLE_EVERY = 10
PAPER_MS = {8: 4.1, 32: 5.7}
TO_REACH_MS = {32: 5.0, 256: 50.0}

# Figure 17's topology: a transactor, 6 operators of statistics, 5 of events. Share of the work, useful time
# of a row, bytes of a row in and out, state: section 5.4's sizes of rows and states; the rest is assumed.
TRANSACTOR = (0.3, 250.0, 96.0, 160.0, 300e6)
STATISTICS = (0.07, 200.0, 160.0, 32.0, 300e6)
EVENTS = (0.056, 400.0, 160.0, 8.0, 10e6)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of each decision, `step` without summing over shards, `cpu` of the thread; and what was
    decided, on average."""

    decide_ms: list[float]
    cpu_ms: list[float]
    step_ms: list[float]
    tasks: float
    changes: float


class Cluster:
    """Operators that count in virtual time, and hold what was decided."""

    def __init__(self, nodes: int, task_cpu: float, rng: np.random.Generator) -> None:
        self._rng = rng
        self._at_us = 0
        self._nodes = {f"node-{i}": CORES for i in range(nodes)}
        self._names = list(self._nodes)
        kinds = [TRANSACTOR, *[STATISTICS] * 6, *[EVENTS] * 5]
        self.operators = [f"op{number}" for number in range(OPERATORS)]
        self.task_cpu = task_cpu
        work = nodes * CORES / task_cpu * LOAD
        self._kinds = kinds
        self._executors = [[f"{op}-{j}" for j in range(EXECUTORS)] for op in self.operators]
        self._shards = [Shards([f"{op}/{k}" for k in range(SHARDS)]) for op in self.operators]
        self._owner = np.arange(SHARDS, dtype=np.int64) // (SHARDS // EXECUTORS)
        self._writers = np.ones(SHARDS, dtype=np.int64)
        self._spread = [rng.dirichlet(np.full(SHARDS // EXECUTORS, 2.0), EXECUTORS) for _ in kinds]
        self._mean = [kind[0] * work / EXECUTORS for kind in kinds]
        self._deviation = [rng.normal(0, 0.5, EXECUTORS) for _ in kinds]
        self._values = [np.zeros((ROWS, SHARDS)) for _ in kinds]
        for values, kind in zip(self._values, kinds, strict=True):
            values[STATE_BYTES] = kind[4] / SHARDS
        # Executors live on the nodes in turn (section 5), with one task each to begin with, as far as there
        # is room.
        room = nodes * int(CORES / task_cpu + 1e-9)
        self._home = {}
        self._cores: dict[str, dict[str, int]] = {}
        for number, name in enumerate(name for executors in self._executors for name in executors):
            home = self._names[number % nodes]
            self._home[name] = home
            self._cores[name] = {home: 1} if number < room else {}
        self._step = 0

    def advance(self) -> None:
        """An interval passes; loads drift, and now and then they are dealt out anew."""
        self._step += 1
        self._at_us += INTERVAL_US
        if self._step % SHUFFLE_EVERY == 0:
            self._rng.shuffle(self._deviation[self._step // SHUFFLE_EVERY % OPERATORS])
        for number, (kind, values) in enumerate(zip(self._kinds, self._values, strict=True)):
            noise = self._rng.normal(0, DRIFT, EXECUTORS)
            # Drawn back to the mean, so that the spread stays as it is.
            self._deviation[number] = self._deviation[number] * 0.98 + noise
            work = self._mean[number] * np.exp(self._deviation[number] - 0.125)
            busy_us = (self._spread[number] * work[:, np.newaxis]).ravel() * INTERVAL_US
            rows = np.rint(busy_us / kind[1])
            # A new table each time: policies keep the old ones.
            grown = values.copy()
            grown[ARRIVED] += rows
            grown[COMPLETED] += rows
            grown[BUSY_US] += rows * kind[1]
            grown[SERVED_US] += rows * kind[1]
            grown[WAITED_US] += rows * kind[1] * 0.1
            grown[BYTES_IN] += rows * kind[2]
            grown[BYTES_OUT] += rows * kind[3]
            self._values[number] = grown

    def snapshot(self, as_mappings: bool = False) -> TopologySnapshot:
        """As it is now; with plain dictionaries for tables if asked."""
        operators = {}
        for number, operator in enumerate(self.operators):
            # Read anew at each look, as from the stores: no array is the one of the last snapshot.
            table = SampleTable(self._shards[number], self._values[number], self._writers.copy())
            owners = AssignmentTable(self._shards[number], tuple(self._executors[number]), self._owner.copy())
            executors = tuple(
                ExecutorSeen(name, tasks, tasks, self._home[name], self._cores[name])
                for name in self._executors[number]
                for tasks in (sum(self._cores[name].values()),)
            )
            operators[operator] = OperatorSnapshot(
                operator,
                executors,
                dict(owners) if as_mappings else owners,
                dict(table) if as_mappings else table,
            )
        edges = tuple((self.operators[0], operator) for operator in self.operators[1:])
        return TopologySnapshot(self._at_us, operators, self._nodes, edges)

    def carry_out(self, decisions: tuple[PolicyDecision, ...]) -> int:
        """Cores as decided; answers how many executors changed. Checks that no node has more than it has."""
        changes = 0
        for decision in decisions:
            for action in decision.actions:
                assert isinstance(action, AssignCores)
                self._cores[action.name] = dict(action.cores)
                changes += 1
        used = dict.fromkeys(self._nodes, 0)
        for cores in self._cores.values():
            for node, count in cores.items():
                used[node] += count
        assert all(count * self.task_cpu <= CORES + 1e-9 for count in used.values())
        return changes

    @property
    def tasks(self) -> int:
        """Over all executors."""
        return sum(sum(cores.values()) for cores in self._cores.values())


def measure(nodes: int, task_cpu: float, decisions: int, as_mappings: bool = False) -> Timing:
    """Time so many decisions after the warm-up."""
    cluster = Cluster(nodes, task_cpu, np.random.default_rng(SEED))
    target = LatencyTarget(LATENCY_MS * 1000, window_us=INTERVAL_US, safety_margin=0.0)
    scope = Scope(
        targets=dict.fromkeys(cluster.operators, target),
        limits={},
        task_cpu=dict.fromkeys(cluster.operators, task_cpu),
    )
    policy = Elasticutor(scope)
    decide_ms, cpu_ms, step_ms, tasks, changes = [], [], [], [], []
    for number in range(WARM_UP + decisions):
        cluster.advance()
        snapshot = cluster.snapshot(as_mappings)
        began, cpu_began = time.perf_counter(), time.thread_time()
        load = policy.observe(snapshot)
        observed = time.perf_counter()
        made = policy.schedule(load)
        ended, cpu_ended = time.perf_counter(), time.thread_time()
        changed = cluster.carry_out(made)
        if number >= WARM_UP:
            decide_ms.append((ended - began) * 1000)
            cpu_ms.append((cpu_ended - cpu_began) * 1000)
            step_ms.append((ended - observed) * 1000)
            tasks.append(cluster.tasks)
            changes.append(changed)
    return Timing(decide_ms, cpu_ms, step_ms, float(np.mean(tasks)), float(np.mean(changes)))


def figures(timing: Timing, task_cpu: float) -> dict[str, Any]:
    """What goes into the result."""
    return {
        "p50_ms": _percentile(timing.decide_ms, 50),
        "p99_ms": _percentile(timing.decide_ms, 99),
        "cpu_p50_ms": _percentile(timing.cpu_ms, 50),
        "step_p50_ms": _percentile(timing.step_ms, 50),
        "step_p99_ms": _percentile(timing.step_ms, 99),
        "decisions": len(timing.decide_ms),
        "task_cpu": task_cpu,
        "mean_tasks": round(timing.tasks, 1),
        "mean_executors_changed": round(timing.changes, 1),
    }


def _percentile(values: list[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)


def runs() -> Iterator[tuple[str, int, float, int, bool]]:
    """(group, nodes, taskCpu, decisions, from mappings) of each row."""
    for nodes in NODES:
        yield "nodes", nodes, TASK_CPU[nodes], DECISIONS[nodes], False
    for nodes, decisions in WHOLE_CORES.items():
        yield "whole_cores", nodes, 1.0, decisions, False
    for nodes, decisions in FROM_MAPPINGS.items():
        yield "from_mappings", nodes, TASK_CPU[nodes], decisions, True


def main() -> None:
    """Measure, print the table and the line."""
    planned = list(runs())
    screen = Screen(len(planned))
    about = machine.description()
    table = Table(title=f"One decision: {OPERATORS} operators of {EXECUTORS} executors and {SHARDS} shards")
    for column in ("nodes", "task\nCPU", "samples", "tasks", "changed", "decide\np50 ms", "\np99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("\nCPU ms", "step\np50 ms", "\np99 ms", "paper\nms", "reach\nms"):
        table.add_column(column, justify="right", no_wrap=True)
    result: dict[str, Any] = {"bench": "scheduler", "nodes": {}, "whole_cores": {}, "from_mappings": {}}
    for group, nodes, task_cpu, decisions, as_mappings in planned:
        with screen.step(f"{nodes} nodes, taskCpu {task_cpu:g}{', mappings' if as_mappings else ''}"):
            found = figures(measure(nodes, task_cpu, decisions, as_mappings), task_cpu)
        result[group][str(nodes)] = found
        times = (found[name] for name in ("p50_ms", "p99_ms", "cpu_p50_ms", "step_p50_ms", "step_p99_ms"))
        plain = group == "nodes"
        table.add_row(
            str(nodes),
            f"{task_cpu:g}",
            "mappings" if as_mappings else "arrays",
            f"{found['mean_tasks']:.0f}",
            f"{found['mean_executors_changed']:.0f}",
            *(f"{value:.2f}" for value in times),
            f"{PAPER_MS[nodes]:g}" if plain and nodes in PAPER_MS else "",
            f"{TO_REACH_MS[nodes]:g}" if plain and nodes in TO_REACH_MS else "",
        )
    result["paper_ms"] = {str(nodes): value for nodes, value in PAPER_MS.items()}
    result["to_reach_ms"] = {str(nodes): value for nodes, value in TO_REACH_MS.items()}
    result["machine"] = about
    show(table, result)


if __name__ == "__main__":
    main()
