"""Topology -> `Plan`: graph checked, schemas handed down, stateless operators fused into their stages.

A map or a sink is fused behind every operator that it reads, so one with two inputs stands in both; only
a keyed processor is reached by an edge. Neighbours: `graph` checks, `dataflow.plan` is the result,
which worker, fleet and simulation read.
"""

from __future__ import annotations

from penstock.api.graph import Graph, Runtime, check
from penstock.api.topology import (
    DURABILITY_IN_CLUSTER,
    SHARDS_DEFAULT,
    OperatorSpec,
    TasksSpec,
    Topology,
)
from penstock.dataflow.plan import (
    NO_TIME,
    Fanout,
    KeyedEdge,
    Plan,
    Processor,
    Stage,
    Step,
    Tasks,
    WorkerRange,
)
from penstock.dataflow.schema import Schema
from penstock.manifest.document import cpu_millis, memory_bytes
from penstock.manifest.faults import InvalidManifest

_DURABILITY_DEFAULT = {"local": "Process", "cluster": DURABILITY_IN_CLUSTER}


def compile_topology(topology: Topology, runtime: Runtime = "local") -> Plan:
    """The plan of `topology`, stages in topological order. Raises InvalidManifest with all faults.

    `runtime` decides what is refused (a ConfigMap is read in a cluster only) and the default of `durability`.
    """
    spec = topology.spec
    graph = check(spec.model_dump(by_alias=True, exclude_none=True), runtime)
    if graph.faults:
        raise InvalidManifest(graph.faults)
    by_name = {operator.name: operator for operator in spec.operators}
    fuser = _Fuser(graph, by_name)
    workers = spec.workers
    return Plan(
        topology=topology.metadata.name,
        module=(spec.code.module or "") if spec.code else "",
        durability=spec.durability or _DURABILITY_DEFAULT[runtime],
        workers_initial=workers.initial if workers.initial is not None else workers.min,
        memory_bytes=memory_bytes(workers.memory),
        stages=tuple(
            fuser.stage(by_name[name])
            for name in graph.order
            if by_name[name].source is not None or by_name[name].processor is not None
        ),
        workers=WorkerRange(
            least=workers.min,
            most=workers.upper,
            warm=workers.warm,
            tasks_each=max(1, cpu_millis(workers.cores.max) // cpu_millis(spec.task_cpu)),
        ),
        remote_tasks=spec.remote_tasks == "Allowed",
    )


class _Fuser:
    """Builds stages; what is fused in several places is built once and shared."""

    def __init__(self, graph: Graph, operators: dict[str, OperatorSpec]) -> None:
        self._graph = graph
        self._operators = operators
        self._built: dict[str, Fanout] = {}

    def stage(self, operator: OperatorSpec) -> Stage:
        head = self._processor(operator) if operator.source is None else operator.source.given.plan()
        return Stage(operator.name, head, _tasks(operator.tasks or TasksSpec()), self._fanout(operator.name))

    def _fanout(self, name: str) -> Fanout:
        if name not in self._built:
            readers = [self._operators[str(reader.name)] for reader in self._graph.readers(name)]
            self._built[name] = Fanout(
                schema=self._graph.outputs[name],
                steps=tuple(Step(r.name, r.map, self._fanout(r.name)) for r in readers if r.map is not None),
                sinks=tuple(r.sink.given.plan(r.name) for r in readers if r.sink is not None),
                edges=tuple(self._edge(r) for r in readers if r.processor is not None),
            )
        return self._built[name]

    def _edge(self, operator: OperatorSpec) -> KeyedEdge:
        return KeyedEdge(operator.name, self._key_columns(operator), _shards(operator))

    def _processor(self, operator: OperatorSpec) -> Processor:
        schema = self._graph.inputs[operator.name]
        columns, shards = self._key_columns(operator), _shards(operator)
        form, time_mode = operator.form or "", operator.time_mode or NO_TIME
        return Processor(str(operator.processor), schema, columns, shards, form, time_mode)

    def _key_columns(self, operator: OperatorSpec) -> tuple[int, ...]:
        schema: Schema = self._graph.inputs[operator.name]
        return tuple(schema.names.index(column) for column in operator.key_by or ())


def _tasks(tasks: TasksSpec) -> Tasks:
    return Tasks(tasks.min, tasks.upper, tasks.first)


def _shards(operator: OperatorSpec) -> int:
    return operator.shards if operator.shards is not None else SHARDS_DEFAULT
