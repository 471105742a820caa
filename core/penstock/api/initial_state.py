"""Initial state of processors: what is wrong with it, and the source stages that read it.

A source of its own reads a processor's initial rows, called as the processor with INITIAL behind. Others wait
for it: each source whose rows can reach that processor, and those that read initial state further up
(`docs/decisions/0035-initial-state.md`). Neighbours: `graph` calls `check_initial`, `compile` the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.api.derived_names import taken, too_long
from penstock.api.operators import Graph, Operator
from penstock.api.specs.operator_spec import INITIAL
from penstock.connectors.registry import READ_ONCE
from penstock.dataflow.plan import InitialState
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import Fault, listed, nearest


def initial_source(name: str) -> str:
    """The operator that reads the initial state of the processor `name`."""
    return f"{name}{INITIAL}"


def check_initial(graph: Graph) -> None:
    """Fill `graph.initial`, and add the faults of all initial state. Inputs are known by now."""
    for operator in _with_initial(graph):
        path, name = f"{operator.path}.initialState", str(operator.name)
        graph.faults += too_long(operator, "initialState", "source", INITIAL)
        graph.faults += taken(operator, "initialState", "source", INITIAL, graph)
        for kind, body in operator.body["initialState"].items():
            if kind in READ_ONCE and isinstance(body, dict):
                graph.faults += READ_ONCE[kind].faults_of(f"{path}.{kind}", body)
                schema = READ_ONCE[kind].schema_of(body)
                if schema is not None:
                    graph.initial[name] = schema
                    _check_key(operator, schema, f"{path}.{kind}.schema", graph)


def _check_key(operator: Operator, schema: Schema, path: str, graph: Graph) -> None:
    given = graph.inputs.get(str(operator.name))
    if given is None:
        return
    types = {column.name: column.type for column in given.columns}
    there = {column.name: column.type for column in schema.columns}
    columns = listed(f"{name} {type_}" for name, type_ in there.items())
    for key in operator.body.get("keyBy") or ():
        if not isinstance(key, str) or key not in types:
            continue
        if key not in there:
            message = f"has no column {key!r} of keyBy{nearest(key, list(there))}; its columns are {columns}"
            graph.faults.append(Fault(path, message))
        elif there[key] != types[key]:
            message = (
                f"its column {key!r} is {there[key]}, that of the input is {types[key]}; columns of a key "
                "need the same types, or they would be other keys"
            )
            graph.faults.append(Fault(path, message))


def _with_initial(graph: Graph) -> Iterator[Operator]:
    for operator in graph.operators.values():
        if operator.role == "processor" and isinstance(operator.body.get("initialState"), dict):
            yield operator


def planned_initial(name: str, key_by: Sequence[str], graph: Graph) -> InitialState | None:
    """What a plan has of the initial state of the processor `name`; None where it has none."""
    schema = graph.initial.get(name)
    if schema is None:
        return None
    return InitialState(initial_source(name), schema, tuple(schema.names.index(key) for key in key_by))


def waits_for(name: str, graph: Graph) -> tuple[str, ...]:
    """The sources of initial state of operators that rows of `name` can reach, in the graph's order."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        readers = {str(reader.name) for reader in graph.readers(waiting.pop())}
        waiting += readers - found
        found |= readers
    having = {str(operator.name) for operator in _with_initial(graph)}
    return tuple(initial_source(reader) for reader in graph.order if reader in found & having)
