"""What must hold of a Topology's sinks: those that are operators, of late rows, and of dead letters.

Works on the plain document, as `graph` does, which calls `check_sinks` when schemas are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.api.operators import Graph, Operator
from penstock.api.specs.operator_spec import LATE
from penstock.connectors.registry import SINKS
from penstock.dataflow.letter_columns import DEAD_LETTERS, LETTER_SCHEMA
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import Fault, one_of_faults

LETTERS_PATH = "spec.deadLetters"


class _Sink(NamedTuple):
    """One kind with what is said of it (`body`), at `path`; `schemas` are those of its rows, as far as they
    are known."""

    name: str
    path: str
    kind: str
    body: Any
    schemas: Sequence[Schema | None]


def stage_sink(given: object) -> str | None:
    """The kind of a sink that is a stage of its own; None for another one, and for what is none."""
    for kind in given if isinstance(given, dict) else ():
        if kind in SINKS and SINKS[kind].planned.is_stage:
            return str(kind)
    return None


def check_sinks(spec: Mapping[str, Any], operators: Iterable[Operator], graph: Graph) -> None:
    """What is wrong with each. Two that write into one place would write into one another's rows."""
    letters = spec.get("deadLetters")
    if letters is not None:
        _check_letters(spec, letters, graph)
    places: dict[tuple[str, str], tuple[str, str]] = {}
    for sink in (*_of_operators(operators, graph), *_of_letters(letters)):
        if sink.kind not in SINKS or not isinstance(sink.body, dict):
            continue
        fields = SINKS[sink.kind]
        said = {
            fault: None
            for schema in sink.schemas or [None]
            for fault in fields.faults_of(f"{sink.path}.{sink.kind}", sink.body, schema)
        }
        graph.faults += said
        place = fields.place_of(sink.body)
        if place is None:
            continue
        first_path, first = places.setdefault((sink.kind, place.name), (sink.path, sink.name))
        if first_path != sink.path:
            message = f"{first} writes into this {place.what} already; give each sink one of its own"
            graph.faults.append(Fault(f"{sink.path}.{sink.kind}.{place.field}", message))


def _check_letters(spec: Mapping[str, Any], given: object, graph: Graph) -> None:
    if isinstance(given, dict):
        graph.faults += one_of_faults(LETTERS_PATH, given, tuple(SINKS))
    if (other := graph.operators.get(DEAD_LETTERS)) is not None:
        message = (
            f"the sink of spec.deadLetters is called {DEAD_LETTERS!r}, and so is this operator; rename it. "
            "Dead letters have columns of their own, so no operator's rows go there too"
        )
        graph.faults.append(Fault(f"{other.path}.name", message))
    kind = stage_sink(given)
    if kind is not None and spec.get("remoteTasks") == "Allowed":
        message = (
            f"Allowed does not go together with spec.deadLetters: the function of {kind} is called in the "
            "main process of the worker that its task is at; give Never"
        )
        graph.faults.append(Fault("spec.remoteTasks", message))


def _of_operators(operators: Iterable[Operator], graph: Graph) -> Iterator[_Sink]:
    for operator in operators:
        late = f"{operator.name}{LATE}"
        rows = [graph.outputs.get(name) for name in operator.inputs]
        late_rows = [graph.inputs.get(operator.name or "")]
        for field, name, schemas in (("sink", str(operator.name), rows), ("lateTo", late, late_rows)):
            given = operator.body.get(field)
            for kind, body in given.items() if isinstance(given, dict) else ():
                yield _Sink(name, f"{operator.path}.{field}", kind, body, schemas)


def _of_letters(given: object) -> Iterator[_Sink]:
    for kind, body in given.items() if isinstance(given, dict) else ():
        yield _Sink(DEAD_LETTERS, LETTERS_PATH, kind, body, [LETTER_SCHEMA])
