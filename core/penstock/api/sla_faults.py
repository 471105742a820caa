"""What is wrong between LatencySLAs and the Topologies that they speak of: all of it at once, in words.

A LatencySLA by itself is checked by its model (`latency_sla`): L above 0, T at least delta. Here stands what
needs both: who is in scope, and bounds that no number of tasks can meet. Neighbours: `load` reads the files,
`compile` turns a Topology into a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.api.latency_sla import LatencySLA, LatencySLASpec, shorter_window
from penstock.api.specs.operator_spec import SHARDS_DEFAULT, OperatorSpec
from penstock.api.specs.sizes_spec import TasksSpec
from penstock.api.topology import Topology
from penstock.manifest.document import cpu_millis, duration_us
from penstock.manifest.faults import Fault, listed, nearest


def operators_in_scope(topology: Topology, sla: LatencySLA) -> tuple[OperatorSpec, ...]:
    """The keyed operators that `sla` is about: the one that it names, or all of an end-to-end one."""
    keyed = (operator for operator in topology.spec.operators if operator.is_keyed)
    return tuple(operator for operator in keyed if sla.spec.operator in (None, operator.name))


def task_bounds(operator: OperatorSpec, sla: LatencySLA) -> tuple[int, int]:
    """(least, most) tasks that both the Topology and `sla` allow; they may contradict each other. No more
    tasks than shards, and at least one: a latency of nothing is not kept."""
    tasks = operator.tasks or TasksSpec()
    bounds = sla.spec.bounds.tasks
    shards = operator.shards if operator.shards is not None else SHARDS_DEFAULT
    least = max(1, tasks.min, (bounds.min or 0) if bounds else 0)
    most = min(tasks.upper, shards, (bounds.max or tasks.upper) if bounds else tasks.upper)
    return least, most


def sla_faults(
    topologies: Sequence[Topology], slas: Sequence[LatencySLA], *, is_whole: bool = False
) -> list[Fault]:
    """Faults of `slas`, in their order. With `is_whole` there are no other Topologies than these; otherwise
    an SLA without a Topology is let be when there are none at all: it may be in the cluster."""
    by_name = {topology.metadata.name: topology for topology in topologies}
    faults: list[Fault] = []
    for sla in slas:
        where = f"LatencySLA {sla.metadata.name}"
        topology = by_name.get(sla.spec.topology)
        if topology is not None:
            faults += (Fault(f"{where}: {path}", message) for path, message in _against(topology, sla))
        elif is_whole or by_name:
            message = f"there is no Topology {sla.spec.topology!r}{nearest(sla.spec.topology, list(by_name))}"
            faults.append(Fault(f"{where}: spec.topology", f"{message}; there is {listed(by_name)}"))
    return [*faults, *_twice(by_name, slas)]


def window_faults(spec: object) -> list[Fault]:
    """Whether the window of a spec that its model has refused would hold an interval.

    The model compares the two only when everything else is right.
    """
    if not isinstance(spec, dict):
        return []
    lengths: dict[str, str] = {}
    for name in ("window", "interval"):
        text = spec.get(name, LatencySLASpec.model_fields[name].default)
        try:
            duration_us(text)
        except (TypeError, ValueError):
            return []
        lengths[name] = text
    message = shorter_window(lengths["window"], lengths["interval"])
    return [Fault("spec", message)] if message else []


def _against(topology: Topology, sla: LatencySLA) -> Iterable[tuple[str, str]]:
    """(path, message) of what does not fit `topology`."""
    name, wanted = topology.metadata.name, sla.spec.operator
    operators = {operator.name: operator for operator in topology.spec.operators}
    keyed = [operator.name for operator in topology.spec.operators if operator.is_keyed]
    if wanted is not None and wanted not in operators:
        yield (
            "spec.operator",
            f"Topology {name} has no operator {wanted!r}{nearest(wanted, list(operators))}; "
            f"there are {listed(operators)}",
        )
        return
    if not keyed:
        yield "spec.topology", f"Topology {name} has no keyed operator, and so nothing that could be scaled"
        return
    if wanted is not None and wanted not in keyed:
        yield (
            "spec.operator",
            f"operator {wanted} is not keyed: it has no inbox of its own to wait in; give one of "
            f"{listed(keyed)}, or leave it out for the latency from end to end",
        )
        return
    sources = [operator.source.given for operator in topology.spec.operators if operator.source is not None]
    if sla.spec.source_lag is not None and not any(source.planned.tells_lag for source in sources):
        kinds = listed(sorted({source.planned.kind for source in sources}))
        yield (
            "spec.sourceLag",
            f"Topology {name} has no source that tells how far behind it is ({kinds} does not, kafka does); "
            "leave it out",
        )
    yield from _bounds(topology, sla)


def _bounds(topology: Topology, sla: LatencySLA) -> Iterable[tuple[str, str]]:
    """Bounds of tasks, workers and cores that leave nothing to choose from."""
    least_millis = 0
    for operator in operators_in_scope(topology, sla):
        tasks = operator.tasks or TasksSpec()
        bounds = sla.spec.bounds.tasks
        least, most = task_bounds(operator, sla)
        least_millis += least * cpu_millis(topology.spec.task_cpu)
        if least <= most:
            continue
        shards = operator.shards if operator.shards is not None else SHARDS_DEFAULT
        allowed = f"Topology {topology.metadata.name} allows operator {operator.name} {tasks.min} to "
        allowed += f"{tasks.upper} tasks over {shards} shards"
        if bounds is not None and bounds.min is not None and bounds.min > min(tasks.upper, shards):
            yield "spec.bounds.tasks.min", f"{bounds.min} cannot be met: {allowed}"
        elif bounds is not None and bounds.max is not None and bounds.max < tasks.min:
            yield "spec.bounds.tasks.max", f"{bounds.max} cannot be met: {allowed}"
        else:
            yield "spec.bounds.tasks", f"cannot be met: {allowed}"
    workers, wanted = topology.spec.workers, sla.spec.bounds.workers
    if wanted is not None:
        allowed = f"Topology {topology.metadata.name} allows {workers.min} to {workers.upper} workers"
        if wanted.min is not None and wanted.min > workers.upper:
            yield "spec.bounds.workers.min", f"{wanted.min} cannot be met: {allowed}"
        if wanted.max is not None and wanted.max < workers.min:
            yield "spec.bounds.workers.max", f"{wanted.max} cannot be met: {allowed}"
    budget = sla.spec.budget
    if budget is not None and cpu_millis(budget.cores) < least_millis:
        yield (
            "spec.budget.cores",
            f"{budget.cores} cannot be met: the fewest tasks in scope ask for {least_millis / 1000:g} cores",
        )


def _twice(topologies: Mapping[str, Topology], slas: Sequence[LatencySLA]) -> Iterable[Fault]:
    """Operators that two SLAs are about, and SLAs of one name."""
    first: dict[tuple[str, str], str] = {}
    names: set[str] = set()
    for sla in slas:
        name = sla.metadata.name
        where = f"LatencySLA {name}"
        if name in names:
            yield Fault(where, "comes twice; names are unique")
        names.add(name)
        topology = topologies.get(sla.spec.topology)
        if topology is not None:
            operators = [operator.name for operator in operators_in_scope(topology, sla)]
        else:
            operators = [sla.spec.operator or ""]
        holders = {
            held: operator
            for operator in operators
            if (held := first.get((sla.spec.topology, operator), "")) and held != name
        }
        for held, operator in holders.items():
            about = f"operator {operator}" if operator else "the whole Topology"
            path = "spec.operator" if sla.spec.operator is not None else "spec.topology"
            yield Fault(
                f"{where}: {path}",
                f"{about} has LatencySLA {held} already; two of them would pull against each other: keep one",
            )
        for operator in operators:
            first.setdefault((sla.spec.topology, operator), name)
