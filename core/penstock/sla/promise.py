"""From a `LatencySLA` and its plan to what is to be kept, as values: targets, limits, edges.

An end-to-end bound is split evenly over the keyed operators of the longest path that each is on: along no
path do the parts add up to more than the whole. Neighbours: `penstock.api.sla_faults` has checked that it can
be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.api.latency_sla import LatencySLA
from penstock.api.sla_faults import operators_in_scope, task_bounds
from penstock.api.specs.sizes_spec import WORKERS_MAX
from penstock.api.topology import Topology
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.dataflow.plan import Fanout, Plan, Processor
from penstock.manifest.document import cpu_millis, duration_us


@dataclass(frozen=True, slots=True)
class Promise:
    """A LatencySLA as the live loop keeps it. `operator` is "" from end to end; `latency_us` is the bound as
    a whole, those of the operators are in `scope`."""

    name: str
    operator: str
    policy: str
    latency_us: int
    window_us: int
    interval_us: int
    dry_run: bool
    scope: Scope
    workers_min: int = 0
    workers_max: int = WORKERS_MAX
    source_lag_us: int | None = None
    """How far behind what is there to be read `sources` may be; None where that is not asked."""
    sources: tuple[str, ...] = ()
    """Those upstream of the operators in scope, where it is asked."""


def promise_of(sla: LatencySLA, topology: Topology, plan: Plan) -> Promise:
    """`sla` as a value; it has been checked against `topology`."""
    spec, workers = sla.spec, sla.spec.bounds.workers
    scope = scope_of(sla, topology, plan)
    return Promise(
        name=sla.metadata.name,
        operator=spec.operator or "",
        policy=spec.policy,
        latency_us=duration_us(spec.latency),
        window_us=duration_us(spec.window),
        interval_us=duration_us(spec.interval),
        dry_run=spec.dry_run,
        scope=scope,
        workers_min=(workers.min or 0) if workers is not None else 0,
        workers_max=(workers.max or WORKERS_MAX) if workers is not None else WORKERS_MAX,
        source_lag_us=duration_us(spec.source_lag) if spec.source_lag is not None else None,
        sources=sources_upstream(plan, scope.targets) if spec.source_lag is not None else (),
    )


def sources_upstream(plan: Plan, operators: Iterable[str]) -> tuple[str, ...]:
    """The sources whose rows come to any of `operators`, by name."""
    edges = keyed_edges(plan)
    reached, left = set(operators), list(operators)
    while left:
        downstream = left.pop()
        found = {upstream for upstream, to in edges if to == downstream} - reached
        reached |= found
        left += found
    return tuple(
        sorted(stage.operator for stage in plan.stages if stage.is_source and stage.operator in reached)
    )


def scope_of(sla: LatencySLA, topology: Topology, plan: Plan) -> Scope:
    """What `sla` asks of the operators of `topology`, of which `plan` was compiled.

    The alert threshold is never above the bound itself: an alarm after it is broken would be none
    (StreamSwitch, section 3.3).
    """
    operators = operators_in_scope(topology, sla)
    lengths = _path_lengths(plan) if sla.spec.operator is None else {}
    latency_us = duration_us(sla.spec.latency)
    targets = {}
    for operator in operators:
        share_us = latency_us / lengths.get(operator.name, 1)
        targets[operator.name] = LatencyTarget(
            latency_us=share_us,
            window_us=duration_us(sla.spec.window),
            alert_us=min(duration_us(sla.spec.alert_threshold), share_us),
            safety_margin=sla.spec.safety_margin,
            interval_us=duration_us(sla.spec.interval),
        )
    budget = sla.spec.budget
    return Scope(
        targets=targets,
        limits={operator.name: TaskLimits(*task_bounds(operator, sla)) for operator in operators},
        cores_max=cpu_millis(budget.cores) / 1000 if budget is not None else None,
        task_cpu=dict.fromkeys(targets, cpu_millis(topology.spec.task_cpu) / 1000),
    )


def keyed_edges(plan: Plan) -> tuple[tuple[str, str], ...]:
    """(upstream, downstream) between the plan's stages, sources among them, but not those that read initial
    state: nothing flows from these when the others have begun. Sinks are no stages here: they have no second
    task."""
    return tuple(
        dict.fromkeys(
            (stage.operator, reader)
            for stage in plan.stages
            if not stage.initial_of
            for reader in _readers(stage.out)
        )
    )


def _readers(fanout: Fanout) -> Iterator[str]:
    for edge in fanout.edges:
        if edge.key_columns:
            yield edge.operator
    for step in fanout.steps:
        yield from _readers(step.out)


def _path_lengths(plan: Plan) -> dict[str, int]:
    """Keyed operator -> keyed operators on the longest path through it. `plan.stages` are in topological
    order."""
    keyed = [s.operator for s in plan.stages if isinstance(s.head, Processor) and not s.is_sink]
    edges = [edge for edge in keyed_edges(plan) if edge[0] in keyed]
    before = dict.fromkeys(keyed, 1)
    for upstream, downstream in sorted(edges, key=lambda edge: keyed.index(edge[0])):
        before[downstream] = max(before[downstream], before[upstream] + 1)
    after = dict.fromkeys(keyed, 1)
    for upstream, downstream in sorted(edges, key=lambda edge: -keyed.index(edge[0])):
        after[upstream] = max(after[upstream], after[downstream] + 1)
    return {operator: before[operator] + after[operator] - 1 for operator in keyed}
