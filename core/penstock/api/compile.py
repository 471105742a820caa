"""Topology -> `Plan`: graph checked, schemas handed down, stateless operators fused into their stages.

A map or a sink is fused behind every operator that it reads, so one with two inputs stands in both; only
a keyed processor is reached by an edge. Neighbours: `graph` checks, `dataflow.plan` is the result,
which worker, fleet and simulation read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from penstock.api.graph import Runtime, check
from penstock.api.initial_state import planned_initial, waits_for
from penstock.api.locality import AUTO
from penstock.api.operators import Graph
from penstock.api.specs.calls_spec import planned_calls
from penstock.api.specs.on_error_spec import planned_on_error
from penstock.api.specs.operator_spec import (
    ALLOWED_DELAY_DEFAULT,
    IDLE_AFTER_DEFAULT,
    LATE,
    SHARDS_DEFAULT,
    STEPS,
    OperatorSpec,
)
from penstock.api.specs.sizes_spec import TasksSpec
from penstock.api.topology import DURABILITY_IN_CLUSTER, Topology
from penstock.connectors.registry import InitialStateSpec, SinkSpec, SourceSpec
from penstock.dataflow.letter_columns import DEAD_LETTERS, LETTER_SCHEMA
from penstock.dataflow.on_error import OnError
from penstock.dataflow.plan import (
    EVENT_TIME,
    NO_TIME,
    ROWS,
    EventTime,
    Fanout,
    InitialState,
    KeyedEdge,
    Plan,
    Processor,
    Stage,
    Step,
    Tasks,
    Transform,
    WorkerRange,
)
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.dataflow.source import Source
from penstock.manifest.document import cpu_millis, duration_us, memory_bytes
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
    fuser = _Fuser(topology.metadata.name, graph, by_name, spec.dead_letters)
    workers = spec.workers
    return Plan(
        topology=topology.metadata.name,
        module=(spec.code.module or "") if spec.code else "",
        durability=spec.durability or _DURABILITY_DEFAULT[runtime],
        workers_initial=workers.initial if workers.initial is not None else workers.min,
        memory_bytes=memory_bytes(workers.memory),
        stages=(
            *(
                stage
                for name in graph.order
                if by_name[name].has_shards
                for stage in fuser.stages(by_name[name])
            ),
            *fuser.letters_stage(),
        ),
        workers=WorkerRange(
            least=workers.min,
            most=workers.upper,
            warm=workers.warm,
            tasks_each=max(1, cpu_millis(workers.cores.max) // cpu_millis(spec.task_cpu)),
        ),
        remote_tasks=spec.remote_tasks == "Allowed",
        locality_dry_run=spec.locality.dry_run,
    )


class _Fuser:
    """Builds stages; what is fused in several places is built once and shared."""

    def __init__(
        self,
        topology: str,
        graph: Graph,
        operators: dict[str, OperatorSpec],
        dead_letters: SinkSpec | None,
    ) -> None:
        self._topology = topology
        self._graph = graph
        self._operators = operators
        self._built: dict[str, Fanout] = {}
        self._producers = {
            name: self._producers_of(operators[name]) for name in graph.order if operators[name].by_event_time
        }
        # All that may have letters write there for life: a batch's number has its writer's place among them.
        writers = sorted(name for name, one in operators.items() if one.has_shards and one.sink is None)
        self._dead_letters = (
            dead_letters.given.plan(DEAD_LETTERS, tuple(writers)) if dead_letters is not None else None
        )

    def stages(self, operator: OperatorSpec) -> Iterator[Stage]:
        """The operator's, behind the one that reads its initial state."""
        name = operator.name
        if operator.sink is not None:
            yield self._sink(operator, operator.sink)
            return
        if operator.transform is not None:
            yield self._transform(operator, operator.transform)
            return
        initial = self._initial_state(operator)
        if operator.initial_state is not None and initial is not None:
            yield self._initial(operator, operator.initial_state, initial)
        head = (
            self._processor(operator) if operator.source is None else self._source(operator, operator.source)
        )
        tells = any(name in producers for producers in self._producers.values())
        yield Stage(
            name,
            head,
            _tasks(operator.tasks or TasksSpec()),
            self._fanout(name),
            tells,
            on_error=self._on_error(operator),
            processor_timeout_us=duration_us(operator.processor_timeout) if operator.processor_timeout else 0,
            waits_for=waits_for(name, self._graph) if operator.source is not None else (),
            dead_letters=self._dead_letters,
        )

    def letters_stage(self) -> Iterator[Stage]:
        """The sink of dead letters, where it is a stage of its own."""
        if self._dead_letters is not None and self._dead_letters.is_stage:
            yield _sink_stage(self._dead_letters, LETTER_SCHEMA)

    def _on_error(self, operator: OperatorSpec) -> OnError:
        return planned_on_error(operator.on_error, has_sink=self._dead_letters is not None)

    def _source(self, operator: OperatorSpec, spec: SourceSpec) -> Source:
        return spec.given.plan().of_topology(self._topology, operator.name)

    def _sink(self, operator: OperatorSpec, given: SinkSpec) -> Stage:
        """One that is a stage of its own."""
        return _sink_stage(given.given.plan(operator.name), self._graph.inputs[operator.name])

    def _transform(self, operator: OperatorSpec, target: str) -> Stage:
        else_ = Transform(target)
        transform = Transform(
            target,
            _arguments(operator),
            operator.max_rows if operator.max_rows is not None else else_.rows_max,
            _milliseconds(operator.every) if operator.every is not None else else_.every_ms,
        )
        head = Processor("", self._graph.inputs[operator.name], (), 1, transform=transform)
        return Stage(
            operator.name,
            head,
            Tasks(1, 1, 1),
            self._fanout(operator.name),
            on_error=self._on_error(operator),
            dead_letters=self._dead_letters,
        )

    def _initial(self, operator: OperatorSpec, given: InitialStateSpec, initial: InitialState) -> Stage:
        edge = KeyedEdge(operator.name, initial.key_columns, _shards(operator))
        return Stage(
            initial.source,
            given.given.plan(),
            _tasks(TasksSpec()),
            Fanout(initial.schema, (), (), (edge,)),
            initial_of=operator.name,
            waits_for=waits_for(operator.name, self._graph),
        )

    def _initial_state(self, operator: OperatorSpec) -> InitialState | None:
        return planned_initial(operator.name, operator.key_by or (), self._graph)

    def _fanout(self, name: str) -> Fanout:
        if name not in self._built:
            readers = [self._operators[str(reader.name)] for reader in self._graph.readers(name)]
            self._built[name] = Fanout(
                schema=self._graph.outputs[name],
                steps=tuple(self._step(r) for r in readers if r.is_step),
                sinks=tuple(
                    r.sink.given.plan(r.name, tuple(sorted(self._producers_of(r))))
                    for r in readers
                    if r.sink is not None and not r.has_shards
                ),
                edges=tuple(self._edge(r, name) for r in readers if r.has_shards),
                event_time=self._event_time(self._operators[name]),
            )
        return self._built[name]

    def _step(self, operator: OperatorSpec) -> Step:
        out, on_error = self._fanout(operator.name), self._on_error(operator)
        if operator.step is None:
            columns = self._graph.column_steps[operator.name]
            return Step(operator.name, "", out, columns=columns, on_error=on_error)
        field, target = operator.step
        return Step(
            operator.name,
            target,
            out,
            _arguments(operator),
            STEPS[field],
            calls=planned_calls(operator.calls),
            on_error=on_error,
        )

    def _edge(self, operator: OperatorSpec, source: str) -> KeyedEdge:
        if operator.sink is not None or operator.transform is not None:
            return KeyedEdge(operator.name, (), 1)
        planned = self._graph.joins.get(operator.name)
        if planned is not None:
            projection = planned.projections[self._graph.operators[operator.name].inputs.index(source)]
            return KeyedEdge(operator.name, projection.key_columns, _shards(operator), projection)
        return KeyedEdge(
            operator.name,
            self._key_columns(operator),
            _shards(operator),
            locality=operator.locality == AUTO,
        )

    def _processor(self, operator: OperatorSpec) -> Processor:
        schema = self._graph.inputs[operator.name]
        columns, shards = self._key_columns(operator), _shards(operator)
        window = self._graph.windows.get(operator.name)
        join = self._graph.joins.get(operator.name)
        needs_code = window is None and join is None
        form = operator.form or "" if needs_code else ROWS
        time_mode = operator.time_mode or NO_TIME if needs_code else EVENT_TIME
        event_column = self._graph.event_columns.get(operator.name)
        producers = self._producers.get(operator.name, ())
        return Processor(
            operator.processor or "",
            schema,
            columns,
            shards,
            form,
            time_mode,
            schema.names.index(event_column) if event_column is not None else None,
            producers,
            tuple(name for name in producers if self._operators[name].is_keyed),
            (operator.late_to.given.plan(operator.name + LATE, (operator.name,)),)
            if operator.late_to is not None
            else (),
            window,
            join.join if join is not None else None,
            self._initial_state(operator),
            arguments=_arguments(operator),
            locality=operator.locality == AUTO,
            calls=planned_calls(operator.calls),
        )

    def _event_time(self, operator: OperatorSpec) -> EventTime | None:
        """The watermark that begins there. One that a processor hands on does not begin with it."""
        given = operator.event_time
        if given is None or operator.is_keyed or operator.transform is not None:
            return None
        return EventTime(
            self._graph.outputs[operator.name].names.index(given.column),
            _milliseconds(given.allowed_delay or ALLOWED_DELAY_DEFAULT),
            _milliseconds(given.idle_after or IDLE_AFTER_DEFAULT),
        )

    def _producers_of(self, reader: OperatorSpec) -> tuple[str, ...]:
        """The operators of the stages whose rows reach it, in their order: maps are fused into them."""
        found: set[str] = set()
        waiting = list(reader.inputs or ())
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                operator = self._operators[name]
                waiting += (operator.inputs or ()) if operator.is_step else ()
        stages = {name for name in found if not self._operators[name].is_step}
        return tuple(name for name in self._graph.order if name in stages)

    def _key_columns(self, operator: OperatorSpec) -> tuple[int, ...]:
        schema: Schema = self._graph.inputs[operator.name]
        planned = self._graph.joins.get(operator.name)
        if planned is not None:
            return tuple(range(len(planned.projections[0].key_columns)))
        return tuple(schema.names.index(column) for column in operator.key_by or ())


def _sink_stage(sink: Sink, schema: Schema) -> Stage:
    head = Processor("", schema, (), 1, batches_to=sink)
    return Stage(sink.name, head, Tasks(1, 1, 1), Fanout(schema, (), (), ()))


def _arguments(operator: OperatorSpec) -> str:
    return json.dumps(operator.args) if operator.args else ""


def _tasks(tasks: TasksSpec) -> Tasks:
    return Tasks(tasks.min, tasks.upper, tasks.first)


def _milliseconds(duration: str) -> int:
    """Parts of one count as a whole."""
    return -(-duration_us(duration) // 1000)


def _shards(operator: OperatorSpec) -> int:
    return operator.shards if operator.shards is not None else SHARDS_DEFAULT
