"""`penstock simulate`: what would this SLA cost, and would it be kept? Answered in virtual time, before
anything runs.

The operators in the SLA's scope, and those upstream of them, become queues; rows arrive as a rate trace says;
the SLA's own policy decides, with the code that would decide live. What a manifest does not tell has to be
said (how long a row takes) or is assumed, as below. Neighbours: `penstock.simulation.queueing` simulates,
`simulating.answer` shows what came out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from penstock.connectors.zipf import ZipfSource
from penstock.control.policy import Policy
from penstock.dataflow.plan import Plan, Processor, Stage
from penstock.dataflow.rate_trace import RateTrace
from penstock.errors import PermanentError
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    FloatArray,
    InitialExecutor,
    Run,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)
from penstock.simulation.queueing.replay import run
from penstock.sla.policies import has_single_tasks, policy_of
from penstock.sla.promise import Promise, keyed_edges

NODE = "here"
KEYS = 10_000
"""Keys whose frequencies follow the skew, where the source does not say how many there are."""

EXECUTOR_START_US = 700_000
TASK_START_US = 700_000
MOVE_US = 50_000
CLAIM_US = 5_000
"""Assumed: a task starts in well under a second, a schedule reaches it in tens of milliseconds, a claim takes
some."""

SLOTS_MAX = 10_000_000
_LAST_RATE_US = 60_000_000


class CannotSimulateError(PermanentError):
    """Something is missing that only the user knows, or it does not fit the topology."""


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """`service_us` is operator -> mean work of a row, `rows_per_row` operator -> rows that reach it for each
    one upstream (1 where not given), `skew` the exponent of the keys' zipf distribution; None takes the
    source's. `length_us` None is as long as the trace, its last rate held for a minute."""

    plan: Plan
    promise: Promise
    trace: RateTrace
    service_us: Mapping[str, float]
    rows_per_row: Mapping[str, float]
    skew: float | None = None
    length_us: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run it. `success` is end to end where the SLA is, else over shards; `changes` counts
    decisions that were carried out."""

    name: str
    run: Run
    success: float
    worst_shard: float

    @property
    def changes(self) -> int:
        return sum(1 for decision in self.run.decisions if decision.actions)

    @property
    def tasks_max(self) -> int:
        return int(np.sum([of.tasks for of in self.run.operators.values()], axis=0).max())


@dataclass(frozen=True, slots=True)
class Answer:
    """`candidates` begin with the SLA's policy. `work_tasks` is what the rows' work alone needs on
    average."""

    request: SimulationRequest
    candidates: tuple[Candidate, ...]
    work_tasks: float
    infeasible: str
    """What no number of tasks within the bounds can change, in words; "" if nothing."""


def simulate(request: SimulationRequest) -> Answer:
    """The SLA's policy, and fixed numbers of tasks beside it: as many as it had on average, and as its
    highest.

    Raises CannotSimulateError.
    """
    stages = _stages(request)
    arrivals = _arrivals(request, stages)
    edges = _edges(request, stages)
    promise = request.promise
    at_start = {stage.operator: stage.tasks.initial for stage in stages}
    policy = policy_of(promise, keyed_edges(request.plan))
    chosen = _candidate(request, stages, edges, arrivals, at_start, promise.policy, policy)
    mean = {name: math.ceil(of.mean_tasks - 0.05) for name, of in chosen.run.operators.items()}
    most = {name: int(of.tasks.max()) for name, of in chosen.run.operators.items()}
    fixed = [("fixed at its mean", mean)]
    if most != mean:
        fixed.append(("fixed at its most", most))
    others = [_candidate(request, stages, edges, arrivals, tasks, name, None) for name, tasks in fixed]
    work_us = sum(
        float(of.completed.sum()) * request.service_us[name] for name, of in chosen.run.operators.items()
    )
    infeasible = next(
        (
            decision.conditions["Infeasible"]
            for decision in chosen.run.decisions
            if "Infeasible" in decision.conditions
        ),
        "",
    )
    return Answer(request, (chosen, *others), work_us / chosen.run.duration_us, infeasible)


def _stages(request: SimulationRequest) -> tuple[Stage, ...]:
    """Keyed stages in scope and upstream of it, in topological order. Raises CannotSimulateError."""
    plan = request.plan
    wanted = set(request.promise.scope.targets)
    for upstream, downstream in reversed(keyed_edges(plan)):
        if downstream in wanted:
            wanted.add(upstream)
    stages = tuple(s for s in plan.stages if s.operator in wanted and isinstance(s.head, Processor))
    names = [stage.operator for stage in stages]
    for option, values in (("--service", request.service_us), ("--rows", request.rows_per_row)):
        for name in values:
            if name not in names:
                raise CannotSimulateError(
                    f"{option} names {name}; operators that are simulated are {', '.join(names)}"
                )
    missing = [name for name in names if name not in request.service_us]
    if missing:
        options = " ".join(f"--service {name}=2ms" for name in missing)
        raise CannotSimulateError(f"how long a row takes is in no manifest: give it, such as {options}")
    return stages


def zipf_services_us(plan: Plan) -> dict[str, float]:
    """Operator -> work of a row, for those that read a source whose rows carry it."""
    heads = {stage.operator: stage.head for stage in plan.stages}
    services: dict[str, float] = {}
    for upstream, downstream in keyed_edges(plan):
        head = heads[upstream]
        if isinstance(head, ZipfSource) and head.service_time_us > 0:
            services[downstream] = float(head.service_time_us)
    return services


def _weights(request: SimulationRequest, shards: int) -> FloatArray:
    """[shards], the share of rows of each: keys by their rank, spread over shards at random."""
    source = next((s.head for s in request.plan.stages if isinstance(s.head, ZipfSource)), None)
    keys = source.keys if source is not None else KEYS
    skew = request.skew if request.skew is not None else source.exponent if source is not None else 0.0
    shares = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    of = np.random.default_rng((request.seed, shards)).integers(shards, size=keys)
    weights = np.zeros(shards)
    np.add.at(weights, of, shares / shares.sum())
    return weights


def _arrivals(request: SimulationRequest, stages: tuple[Stage, ...]) -> Arrivals:
    """Rows of operators that read sources, drawn as Poisson counts: every source keeps to the trace."""
    slot_us = request.promise.interval_us
    trace = request.trace
    length_us = request.length_us
    if length_us is None:
        length_us = int(trace.starts_us[-1]) + (_LAST_RATE_US if trace.rates_per_s[-1] > 0 else 0)
    slots = max(length_us // slot_us, math.ceil(request.promise.window_us / slot_us))
    if slots > SLOTS_MAX:
        raise CannotSimulateError(
            f"{slots} intervals are more than {SLOTS_MAX}: give a shorter time with --for"
        )
    due = np.array([trace.rows_before(float(slot * slot_us)) for slot in range(slots + 1)])
    per_slot = np.diff(due)
    keyed = {stage.operator for stage in stages}
    sources: dict[str, int] = {}
    for upstream, downstream in keyed_edges(request.plan):
        if downstream in keyed and upstream not in {
            s.operator for s in request.plan.stages if isinstance(s.head, Processor)
        }:
            sources[downstream] = sources.get(downstream, 0) + 1
    rng = np.random.default_rng((request.seed, 1))
    rows: dict[str, npt.NDArray[np.int64]] = {}
    for stage in stages:
        if stage.operator in sources:
            factor = sources[stage.operator] * request.rows_per_row.get(stage.operator, 1.0)
            expected = per_slot[:, None] * (factor * _weights(request, _shards(stage)))
            rows[stage.operator] = rng.poisson(expected)
    return Arrivals(slot_us, rows)


def _edges(request: SimulationRequest, stages: tuple[Stage, ...]) -> tuple[Edge, ...]:
    by_name = {stage.operator: stage for stage in stages}
    return tuple(
        Edge(
            upstream,
            downstream,
            request.rows_per_row.get(downstream, 1.0),
            np.tile(_weights(request, _shards(by_name[downstream])), (_shards(by_name[upstream]), 1)),
        )
        for upstream, downstream in keyed_edges(request.plan)
        if upstream in by_name and downstream in by_name
    )


def _shards(stage: Stage) -> int:
    assert isinstance(stage.head, Processor)  # noqa: S101 - chosen by that
    return stage.head.shards


def _candidate(
    request: SimulationRequest,
    stages: tuple[Stage, ...],
    edges: tuple[Edge, ...],
    arrivals: Arrivals,
    tasks: Mapping[str, int],
    name: str,
    policy: Policy | None,
) -> Candidate:
    promise = request.promise
    single = policy is None or has_single_tasks(promise.policy)
    operators = tuple(
        SimulatedOperator(
            name=stage.operator,
            shards=_shards(stage),
            service_us=request.service_us[stage.operator],
            executors=_executors(stage.operator, tasks[stage.operator], request.plan.workers_initial, single),
            service=Service.EXPONENTIAL,
            start_delay_us=EXECUTOR_START_US,
            task_start_delay_us=TASK_START_US,
            switching=Switching(fixed_us=MOVE_US, us_per_shard=CLAIM_US, copies_within_node=False),
        )
        for stage in stages
    )
    room = sum(max(stage.tasks.max, tasks[stage.operator]) for stage in stages)
    targets = promise.scope.targets
    chain = tuple((a.name, b.name) for a, b in pairwise(operators))
    is_path = tuple((edge.upstream, edge.downstream) for edge in edges) == chain
    end_to_end = not promise.operator and len(operators) > 1 and is_path
    result = run(
        SimulatedTopology(operators, edges, {} if single else {NODE: room}),
        arrivals,
        policy,
        targets,
        np.random.default_rng((request.seed, 2)),
        path_latency_us=float(promise.latency_us) if end_to_end else None,
    )
    success = np.concatenate([result.operators[operator].success for operator in targets])
    kept = result.path_success if result.path_success is not None else float(success.mean())
    return Candidate(name, result, kept, float(success.min()))


def _executors(operator: str, tasks: int, workers: int, single: bool) -> tuple[InitialExecutor, ...]:
    """One a worker with its share of the tasks, or one a task."""
    count = tasks if single else min(tasks, workers)
    node = "" if single else NODE
    return tuple(
        InitialExecutor(f"{operator}-{n}", tasks * (n + 1) // count - tasks * n // count, node)
        for n in range(count)
    )
