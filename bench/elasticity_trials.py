"""One run of one policy on one of Elasticutor's two applications, in virtual time: what `bench.elasticity`
puts together.

Under every policy the cluster, what is offered, the bound on queues and the network are the same; how
executors are made of tasks and who pauses when shards change hands is the policy's paradigm (SIGMOD 2019,
section 2.2).
Neighbours: `bench.workloads.shuffled_keys` and `market_clearing` have loads and parameters,
`penstock.simulation.queueing` is the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from bench.transients import transients_s
from bench.workloads import market_clearing, shuffled_keys
from bench.workloads.market_clearing import Stage
from bench.workloads.shuffled_keys import (
    INTERVAL_MS,
    LATENCY_MS,
    NETWORK_BYTES_PER_S,
    NODE_CORES,
    QUEUE_MS,
    RELATIVE_DEVIATION,
    REPARTITION_MS,
    REPARTITION_UPSTREAM,
    SLOT_MS,
    START_UP_MS,
    SYNCHRONISE_MS,
    TASK_START_UP_MS,
    WARM_UP_S,
    Setting,
)
from numpy.typing import NDArray

from penstock.control.baselines.resource_centric import ResourceCentric
from penstock.control.elasticutor.policy import Elasticutor, naive_ec
from penstock.control.policy import Policy
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    InitialExecutor,
    OperatorRun,
    Pauses,
    Run,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run

SLOT_US = SLOT_MS * 1000
CALCULATOR = "calculator"
STATIC, RESOURCE_CENTRIC, NAIVE, ELASTICUTOR = "static", "resource_centric", "naive_ec", "elasticutor"
POLICIES: Mapping[str, Callable[[Scope], Policy] | None] = {
    STATIC: None,
    RESOURCE_CENTRIC: ResourceCentric,
    NAIVE: naive_ec,
    ELASTICUTOR: Elasticutor,
}
ELASTIC = (NAIVE, ELASTICUTOR)
"""Executor-centric: executors of many tasks; the others have one task an executor."""
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures after the warm-up. `throughput_per_s` is rows completed (of the stock exchange: by the
    transactor). Latencies are from when a row is taken from the generator until it is complete; of the stock
    exchange the transactor's and that of the slowest operator behind it, added up. `switching_ms` is the mean
    of a change of hands; rates are bytes over the network."""

    throughput_per_s: float
    mean_latency_ms: float
    p99_latency_ms: float
    switches: int
    switching_ms: float
    migrated_mb_per_s: float
    remote_mb_per_s: float
    mean_tasks: float
    per_second: tuple[float, ...]
    """Throughput of each second, the warm-up included."""
    transients_s: tuple[float, ...]
    """How long throughput was short after each shuffle: see `transients`."""


def micro_trial(policy: str, setting: Setting, seconds: float, seed: int) -> Outcome:
    """The micro-benchmark for `seconds` after the warm-up."""
    rows = shuffled_keys.draw(setting, WARM_UP_S + seconds, seed)
    names = [f"node-{n}" for n in range(setting.nodes)]
    if policy in ELASTIC:
        executors = tuple(
            InitialExecutor(f"{CALCULATOR}-{n}", NODE_CORES, node) for n, node in enumerate(names)
        )
    else:
        executors = tuple(
            InitialExecutor(f"{CALCULATOR}-{n}", 1, names[n % setting.nodes]) for n in range(setting.cores)
        )
    cost_us = setting.cost_ms * 1e3
    operator = SimulatedOperator(
        name=CALCULATOR,
        shards=setting.shards,
        service_us=cost_us,
        executors=executors,
        service=Service.NORMAL,
        service_sd_us=cost_us * RELATIVE_DEVIATION,
        start_delay_us=round(START_UP_MS * 1e3),
        task_start_delay_us=round(TASK_START_UP_MS * 1e3),
        switching=switching_of(policy, setting.repartition_ms),
        state_bytes=setting.shard_bytes,
        bytes_in=setting.tuple_bytes,
        queue_rows_max=_queue_rows(executors, cost_us),
    )
    topology = SimulatedTopology(
        (operator,), nodes=dict.fromkeys(names, NODE_CORES), bandwidth_bytes_per_s=NETWORK_BYTES_PER_S
    )
    result = _run(topology, {CALCULATOR: rows}, policy, seed)
    shuffled = shuffled_keys.shuffles(setting, WARM_UP_S + seconds)
    return _outcome(result, [result.operators[CALCULATOR]], [], shuffled)


def stock_exchange_trial(policy: str, nodes: int, seconds: float, seed: int) -> Outcome:
    """The transactor and the eleven operators behind it for `seconds` after the warm-up."""
    rows = market_clearing.draw(nodes, WARM_UP_S + seconds, seed)
    stages = market_clearing.stages()
    names = [f"node-{n}" for n in range(nodes)]
    counts = executors_of(policy, stages, nodes)
    operators, turn = [], 0
    for stage, (count, tasks) in zip(stages, counts, strict=True):
        executors = tuple(
            InitialExecutor(f"{stage.name}-{n}", tasks, names[(turn + n) % nodes]) for n in range(count)
        )
        turn += count
        operators.append(_stage(stage, policy, rows.shape[1], executors))
    edges = tuple(Edge(stages[0].name, stage.name) for stage in stages[1:])
    topology = SimulatedTopology(
        tuple(operators), edges, dict.fromkeys(names, NODE_CORES), NETWORK_BYTES_PER_S
    )
    result = _run(topology, {stages[0].name: rows}, policy, seed)
    first, *behind = (result.operators[stage.name] for stage in stages)
    return _outcome(result, [first], behind, [])


def executors_of(policy: str, stages: Sequence[Stage], nodes: int) -> list[tuple[int, int]]:
    """(executors, tasks of each) at the start. Static and resource-centric: one task each, all cores of the
    cluster shared out by the stages' work. Elastic ones: what `market_clearing` says, two tasks each."""
    if policy in ELASTIC:
        behind = max(1, round(nodes * market_clearing.ANALYTIC_EXECUTORS))
        return [(nodes if at == 0 else behind, 2) for at in range(len(stages))]
    exact = np.array([stage.share for stage in stages]) * nodes * NODE_CORES
    counts = np.maximum(np.floor(exact), 1)
    rest = nodes * NODE_CORES - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return [(int(count), 1) for count in counts]


def switching_of(policy: str, repartition_ms: float) -> Switching:
    """Resource-centric: the whole operator stands still, once what is queued is worked off, for the
    synchronisation with everyone upstream and the state that goes over the network. Executor-centric: each
    shard for itself."""
    us_per_byte = 1e6 / NETWORK_BYTES_PER_S
    if policy == RESOURCE_CENTRIC:
        return Switching(
            fixed_us=repartition_ms * 1e3,
            us_per_byte=us_per_byte,
            pauses=Pauses.OPERATOR,
            copies_within_node=False,
            drains=True,
        )
    return Switching(
        us_per_byte=us_per_byte, copies_within_node=False, task_us_per_shard=SYNCHRONISE_MS * 1e3
    )


def _stage(
    stage: Stage, policy: str, shards: int, executors: tuple[InitialExecutor, ...]
) -> SimulatedOperator:
    fewest, most = REPARTITION_UPSTREAM
    least_ms, most_ms = REPARTITION_MS
    # Upstream of the transactor are the exchange's feeds, which are not simulated: as one executor.
    repartition_ms = least_ms
    if stage.name != market_clearing.stages()[0].name:
        repartition_ms += (most_ms - least_ms) * (len(executors) - fewest) / (most - fewest)
    return SimulatedOperator(
        name=stage.name,
        shards=shards,
        service_us=stage.row_us,
        executors=executors,
        service=Service.NORMAL,
        service_sd_us=stage.row_us * RELATIVE_DEVIATION,
        start_delay_us=round(START_UP_MS * 1e3),
        task_start_delay_us=round(TASK_START_UP_MS * 1e3),
        switching=switching_of(policy, repartition_ms),
        state_bytes=stage.state_bytes / shards,
        bytes_in=stage.bytes_in,
        bytes_out=stage.bytes_out,
        queue_rows_max=_queue_rows(executors, stage.row_us),
    )


def _queue_rows(executors: Sequence[InitialExecutor], row_us: float) -> float:
    """Rows that an executor may hold: as much work for every core, under every policy."""
    cores = sum(executor.tasks for executor in executors) / len(executors)
    return cores * QUEUE_MS * 1e3 / row_us


def _run(topology: SimulatedTopology, rows: Mapping[str, NDArray[np.int64]], policy: str, seed: int) -> Run:
    target = LatencyTarget(
        latency_us=LATENCY_MS * 1e3,
        alert_us=LATENCY_MS * 1e3,
        safety_margin=0.0,
        interval_us=INTERVAL_MS * 1000,
    )
    cores = sum(topology.nodes.values())
    make = POLICIES[policy]
    scope = Scope(
        {operator.name: target for operator in topology.operators},
        {operator.name: TaskLimits(1, cores) for operator in topology.operators},
        cores_max=cores,
    )
    return run(
        topology,
        Arrivals(SLOT_US, rows),
        None if make is None else make(scope),
        None,
        np.random.default_rng((5, seed)),
        interval_us=INTERVAL_MS * 1000,
        counts_from_us=round(WARM_UP_S * 1e6),
    )


def _outcome(
    result: Run, first: Sequence[OperatorRun], behind: Sequence[OperatorRun], shuffled: Sequence[int]
) -> Outcome:
    begin = round(WARM_UP_S * 1e6 / result.slot_us)
    seconds = result.duration_us / 1e6 - WARM_UP_S
    done = sum(of.completed for of in first)
    assert isinstance(done, np.ndarray)
    slots = 1_000_000 // result.slot_us
    every = [*first, *behind]
    switches = [
        switch
        for of in every
        for switch in of.switches
        if switch.shards and switch.asked_us >= WARM_UP_S * 1e6
    ]
    return Outcome(
        throughput_per_s=float(done[begin:].sum()) / seconds,
        mean_latency_ms=(
            sum(_mean_us(of, begin) for of in first)
            + max((_mean_us(of, begin) for of in behind), default=0.0)
        )
        / 1e3,
        p99_latency_ms=(
            sum(of.latency_quantile_us(0.99) for of in first)
            + max((of.latency_quantile_us(0.99) for of in behind), default=0.0)
        )
        / 1e3,
        switches=len(switches),
        switching_ms=float(np.mean([switch.switching_us for switch in switches])) / 1e3 if switches else 0.0,
        migrated_mb_per_s=sum(switch.bytes for switch in switches) / seconds / _MB,
        remote_mb_per_s=sum(of.remote_bytes for of in every) / (result.duration_us / 1e6) / _MB,
        mean_tasks=sum(float(of.tasks[begin:].mean()) for of in every),
        per_second=tuple((done[: len(done) // slots * slots].reshape(-1, slots).sum(axis=1)).tolist()),
        transients_s=transients_s(done, result.slot_us / 1e6, shuffled),
    )


def _mean_us(of: OperatorRun, begin: int) -> float:
    completed, mean_us = of.completed[begin:], of.latency_mean_us[begin:]
    some = completed > 0
    return float(np.average(mean_us[some], weights=completed[some])) if some.any() else float("inf")
