"""What must hold between the operators of a Topology: one role each, known inputs that stand above, no cycle,
schemas that flow, keys that can be routed. `event_time` adds what holds for event time.

Works on the plain document, not on the model, so that these faults are listed together with the
fields' own; what a field's own fault leaves unknown is passed over here, so that one mistake is named
once. Neighbours: `load` and `compile` call `check`, `topology` has the same rules in CEL where CEL can
say them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from penstock.api.column_steps import column_step_output
from penstock.api.columns import in_words, key_fault
from penstock.api.derived_names import taken, too_long
from penstock.api.event_time import EventTimes
from penstock.api.initial_state import check_initial
from penstock.api.joins import check_join, join_output
from penstock.api.locality import check_locality
from penstock.api.operators import Graph, Operator
from penstock.api.sinks import check_sinks, stage_sink
from penstock.api.specs.calls_spec import calls_faults
from penstock.api.specs.on_error_spec import on_error_faults
from penstock.api.specs.operator_spec import COLUMN_STEPS, LATE, STEPS
from penstock.api.specs.window_spec import WINDOW_KINDS
from penstock.api.windows import aggregators_of, window_output
from penstock.connectors.registry import SINKS, SOURCES
from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.on_error import RETRY
from penstock.dataflow.plan import EVENT_TIME
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import Fault, joined, listed, nearest, one_of_faults

Runtime = Literal["local", "cluster"]

FUSED_COPIES_MAX = 256
"""How often one stateless operator may be fused: once for each path from a stage to it."""

_ROLES = ("source", *STEPS, *COLUMN_STEPS, "transform", "processor", "window", "join", "sink")
_ROLES_IN_WORDS = ("source", *STEPS, "filter with select", "transform", "processor", "window", "join", "sink")
_KINDS = {"source": tuple(SOURCES), "window": WINDOW_KINDS, "sink": tuple(SINKS)}
# Per role: the fields that it needs, and those that it may have.
_NEEDS = {
    "source": (),
    **dict.fromkeys(STEPS, ("inputs", "outputSchema")),
    **dict.fromkeys(COLUMN_STEPS, ("inputs",)),
    "transform": ("inputs", "outputSchema"),
    "processor": ("inputs", "keyBy", "processor", "outputSchema"),
    "window": ("inputs", "keyBy", "window", "aggregate"),
    "join": ("inputs",),
    "sink": ("inputs",),
}
_MAY_HAVE = {
    "source": frozenset({"eventTime", "onError", "tasks"}),
    **dict.fromkeys(STEPS, frozenset({"inputs", "args", "eventTime", "onError", "outputSchema"})),
    "map": frozenset({"inputs", "args", "calls", "eventTime", "onError", "outputSchema"}),
    **dict.fromkeys(COLUMN_STEPS, frozenset({"inputs", "eventTime", "onError"})),
    "transform": frozenset({"inputs", "args", "every", "maxRows", "onError", "outputSchema"}),
    "processor": frozenset(
        {"inputs", "keyBy", "processor", "args", "calls", "form", "outputSchema", "shards", "tasks"}
        | {"timeMode", "eventTime", "lateTo", "initialState", "locality", "onError", "processorTimeout"}
    ),
    "window": frozenset(
        {"inputs", "keyBy", "window", "aggregate", "lateTo", "onError", "processorTimeout", "shards", "tasks"}
    ),
    "join": frozenset({"inputs", "lateTo", "shards", "tasks"}),
    "sink": frozenset({"inputs"}),
}
_WHY_NOT = {
    "inputs": "a source reads from outside",
    "keyBy": "only a processor and a window have a key",
    "aggregate": "only a window computes without code",
    "args": "only the code of a step or a processor is called with some",
    "calls": "only a map and a processor may be async",
    "every": "only a transform works in micro-batches",
    "maxRows": "only a transform works in micro-batches",
    "form": "only a processor takes Rows or Pandas",
    "outputSchema": "its columns are given: a source's by its format, a sink's by its input",
    "timeMode": "only a processor has timers",
    "initialState": "only a processor has a handleInitialState",
    "eventTime": "nothing comes behind it that could go by it",
    "lateTo": "only a processor and a window go by event time",
    "locality": "only keys of a processor without event time go by tables",
    "onError": "it runs no code of yours on rows, and reads none",
    "processorTimeout": "only calls of a processor and a window are timed",
    "shards": "only the keys of a processor or a window are cut into shards",
    "tasks": "it runs in the tasks of its input",
}
_WHY_NO_WINDOW = {
    "outputSchema": "its columns are those of keyBy, windowStart, windowEnd and those of aggregate",
    "timeMode": "it goes by event time always",
    "eventTime": "that of its rows is windowEnd",
}
_WHY_NO_JOIN = {
    "keyBy": "left.key and right.key say what has to be equal",
    "outputSchema": "its columns are those of left and right",
    "timeMode": "it goes by event time always",
    "eventTime": "its rows have those of both sides",
}
_WHY_NO_COLUMN_STEP = {
    "outputSchema": "its columns are those of select, or of its input",
    "args": "expressions take none; --set changes them",
}
_WHY_NONE_HERE = {
    "transform": {"eventTime": "no watermark goes through a Spark job", "tasks": "it has one"},
    "window": _WHY_NO_WINDOW,
    "join": _WHY_NO_JOIN,
    **dict.fromkeys(COLUMN_STEPS, _WHY_NO_COLUMN_STEP),
}
_HINTS = {
    "inputs": "give the names of the operators that it reads, as a list",
    "keyBy": "give the columns of its input that make the key, as a list",
    "window": "give {tumbling: 1m}, {sliding: {size: 1m, every: 10s}} or {session: {gap: 30s}}",
    "aggregate": "give what is computed of each window, as a list such as [{as: rows, function: count}]",
    "processor": "give the class that works on each key, such as word_count:Count",
    "outputSchema": "give the columns that come out, such as 'word string, total bigint'",
}


def check(spec: Mapping[str, Any], runtime: Runtime) -> Graph:
    """Check a Topology's `spec` (a plain document). Never raises for what a user can write."""
    graph = Graph()
    operators = list(_operators(spec.get("operators")))
    _check_code_and_durability(spec, operators, runtime, graph.faults)
    _check_remote_tasks(spec, operators, graph.faults)
    for operator in operators:
        _check_role(operator, graph.faults, has_letters=spec.get("deadLetters") is not None)
    _check_names(operators, graph)
    _check_inputs(operators, graph)
    _order(graph)
    _flow(graph)
    check_initial(graph)
    check_locality(graph)
    check_sinks(spec, operators, graph)
    return graph


def _operators(listing: object) -> Iterator[Operator]:
    if not isinstance(listing, list | tuple):
        return
    for index, body in enumerate(listing):
        if not isinstance(body, dict):
            continue
        name = body.get("name") if isinstance(body.get("name"), str) else None
        roles = [role for role in _ROLES if body.get(role) is not None]
        if not roles and body.get("keyBy") is not None:
            roles = ["window" if body.get("aggregate") is not None else "processor"]
        if roles == list(COLUMN_STEPS):
            roles = ["select"]
        yield Operator(
            path=f"spec.operators[{index}]" + (f" ({name})" if name is not None else ""),
            name=name,
            role=roles[0] if len(roles) == 1 else None,
            inputs=tuple(_texts(body.get("inputs"))),
            body=body,
        )


# --- one operator --------------------------------------------------------------------------------


def _check_code_and_durability(
    spec: Mapping[str, Any], operators: Sequence[Operator], runtime: Runtime, faults: list[Fault]
) -> None:
    if spec.get("durability") == "Replicated":
        message = "Replicated comes with replication, which is not there yet; give Process or Disk"
        faults.append(Fault("spec.durability", message))
    code = spec.get("code")
    users = [
        operator
        for operator in operators
        if operator.has_step_code
        or operator.role in ("transform", "processor")
        or any(aggregators_of(operator.body))
    ]
    if code is None and users:
        names = listed(str(operator.name) for operator in users)
        message = f"is missing; give {{module: NAME}}, the module that holds the code of {names}"
        faults.append(Fault("spec.code", message))
    if isinstance(code, dict):
        faults += one_of_faults("spec.code", code, ("module", "configMap"))
        if runtime == "local" and code.get("configMap") is not None:
            message = "a ConfigMap is read in a cluster only; for a local run give code: {module: NAME}"
            faults.append(Fault("spec.code.configMap", message))


def _check_remote_tasks(spec: Mapping[str, Any], operators: Sequence[Operator], faults: list[Fault]) -> None:
    has_keys = any(operator.is_keyed for operator in operators)
    if spec.get("remoteTasks") == "Allowed" and not has_keys:
        message = (
            "Allowed needs an operator with a processor or a window: sources and their steps stay at home; "
            "give Never"
        )
        faults.append(Fault("spec.remoteTasks", message))
    for operator in operators:
        if spec.get("remoteTasks") == "Allowed" and operator.role == "transform":
            message = (
                f"Allowed does not go together with transform {operator.name!r}: its function is called in "
                "the main process of the worker that its task is at; give Never"
            )
            faults.append(Fault("spec.remoteTasks", message))
    at_home = [operator for operator in operators if stage_sink(operator.body.get("sink")) is not None]
    if spec.get("remoteTasks") == "Allowed" and at_home:
        names = listed(str(operator.name) for operator in at_home)
        kind = stage_sink(at_home[0].body.get("sink"))
        message = (
            f"Allowed does not go together with sink {names}: the function of {kind} is called in the main "
            "process of the worker that its task is at; give Never"
        )
        faults.append(Fault("spec.remoteTasks", message))


def _check_role(operator: Operator, faults: list[Fault], *, has_letters: bool) -> None:
    role, body = operator.role, operator.body
    given = [name for name in _ROLES if body.get(name) is not None]
    unknown = operator.unknown_fields
    if role is None:
        if given:
            message = f"has {' and '.join(given)}; keep exactly one of {joined(_ROLES_IN_WORDS)}"
            faults.append(Fault(operator.path, message))
        elif not any(nearest(name, unknown) for name in _ROLES):
            message = f"does nothing; give exactly one of {joined(_ROLES_IN_WORDS)}"
            faults.append(Fault(operator.path, message))
        return
    missing = [name for name in _NEEDS[role] if body.get(name) is None and not nearest(name, unknown)]
    faults += [Fault(f"{operator.path}.{name}", f"is missing; {_HINTS[name]}") for name in missing]
    extra = [name for name in _WHY_NOT if body.get(name) is not None and name not in _MAY_HAVE[role]]
    reasons = _WHY_NOT | _WHY_NONE_HERE.get(role, {})
    why = {name: f"a {role} has none: {reasons[name]}; leave it out" for name in extra}
    faults += [Fault(f"{operator.path}.{name}", message) for name, message in why.items()]
    tasks = body.get("tasks")
    has_timers = operator.is_codeless or body.get("timeMode") not in (None, "None")
    if not has_timers and isinstance(tasks, dict) and tasks.get("min") == 0 and _retries(operator):
        message = "0 leaves no task that tries again; with onError Retry give 1 or more"
        faults.append(Fault(f"{operator.path}.tasks.min", message))
    if has_timers and isinstance(tasks, dict) and tasks.get("min") == 0:
        who = f"for a {role}" if operator.is_codeless else "with a timeMode"
        message = f"0 leaves no task that fires timers; {who} give 1 or more"
        faults.append(Fault(f"{operator.path}.tasks.min", message))
    if operator.is_keyed and body.get("lateTo") is not None:
        _check_late(operator, faults)
    if "onError" in _MAY_HAVE[role]:
        faults += on_error_faults(
            f"{operator.path}.onError",
            body.get("onError"),
            cannot_retry=_cannot_retry(operator),
            has_sink=has_letters,
        )
    if role == "processor":
        faults += calls_faults(operator.path, body)
    if role == "join":
        check_join(operator, faults)
    if role in _KINDS and isinstance(body.get(role), dict):
        faults += one_of_faults(f"{operator.path}.{role}", body[role], _KINDS[role])
        if role == "source":
            for kind, source in body[role].items():
                if kind in SOURCES and isinstance(source, dict):
                    faults += _refusing_faults(operator, kind)
                    faults += SOURCES[kind].faults_of(f"{operator.path}.source.{kind}", source)


def _retries(operator: Operator) -> bool:
    on_error = operator.body.get("onError")
    return operator.is_keyed and isinstance(on_error, dict) and on_error.get("policy") == RETRY


def _cannot_retry(operator: Operator) -> str:
    """Why rows that an operator fails on are not tried again; "" where they are."""
    if operator.role == "source":
        return "what a source cannot read stays so; give Fail or DeadLetter"
    return ""


def _check_late(operator: Operator, faults: list[Fault]) -> None:
    path, given = f"{operator.path}.lateTo", operator.body["lateTo"]
    if operator.time_mode not in (None, EVENT_TIME):
        message = "rows are late by event time only; give timeMode: EventTime, or leave it out"
        faults.append(Fault(path, message))
    if isinstance(given, dict):
        faults += one_of_faults(path, given, _KINDS["sink"])
    if (kind := stage_sink(given)) is not None:
        message = (
            "is no place for late rows: it is a stage, and they do not leave theirs; give foreach or files"
        )
        faults.append(Fault(f"{path}.{kind}", message))
    faults += too_long(operator, "lateTo", "sink", LATE)


def _refusing_faults(operator: Operator, kind: str) -> list[Fault]:
    if operator.body.get("onError") is None or SOURCES[kind].planned.refuses_input:
        return []
    kinds = [name for name, fields in SOURCES.items() if fields.planned.refuses_input]
    message = (
        f"a source of kind {kind} reads whatever there is; only {listed(kinds)} have input that is no row"
    )
    return [Fault(f"{operator.path}.onError", message)]


# --- names and edges -----------------------------------------------------------------------------


def _check_names(operators: Sequence[Operator], graph: Graph) -> None:
    for operator in operators:
        if operator.name is None:
            continue
        first = graph.operators.setdefault(operator.name, operator)
        if first is not operator:
            message = f"{operator.name!r} is the name of {first.path} already; names are unique"
            graph.faults.append(Fault(f"{operator.path}.name", message))
    for operator in graph.operators.values():
        if operator.body.get("lateTo") is not None:
            graph.faults += taken(operator, "lateTo", "sink", LATE, graph)
    if operators and not any(operator.body.get("source") is not None for operator in operators):
        graph.faults.append(Fault("spec.operators", "none is a source; records have to come from somewhere"))


def _check_inputs(operators: Sequence[Operator], graph: Graph) -> None:
    known = [name for name, operator in graph.operators.items() if operator.role != "sink"]
    for operator in operators:
        for index, name in enumerate(operator.inputs):
            path = f"{operator.path}.inputs[{index}]"
            if name in operator.inputs[:index]:
                graph.faults.append(Fault(path, f"{name!r} is given twice; keep one"))
            elif name not in graph.operators:
                message = f"no operator is called {name!r}{nearest(name, known)}; there are {listed(known)}"
                graph.faults.append(Fault(path, message))
            elif graph.operators[name].role == "sink":
                message = f"{name!r} is a sink and hands no rows on; there are {listed(known)}"
                graph.faults.append(Fault(path, message))
    if any(operator.role is None or _unclear_inputs(operator, graph) for operator in operators):
        return
    for name, operator in graph.operators.items():
        if operator.role != "sink" and not any(graph.readers(name)):
            message = f"no operator reads it; add a sink with inputs: [{name}], or take it out"
            graph.faults.append(Fault(operator.path, message))


def _unclear_inputs(operator: Operator, graph: Graph) -> bool:
    """Whether what it reads is not known, by a fault of its own."""
    unknown = any(name not in graph.operators for name in operator.inputs)
    return unknown or (operator.role != "source" and not operator.inputs)


def _order(graph: Graph) -> None:
    """Fill `order`. Each cycle is named, cut where it was found, and the search goes on behind it.

    An input that stands below its reader without a cycle is named too: the API server cannot search for
    cycles, so it holds everybody to the order, and so does this.
    """
    known = {name for name, operator in graph.operators.items() if operator.role != "sink"}
    sources = {
        name: [source for source in operator.inputs if source in known]
        for name, operator in graph.operators.items()
    }
    while True:
        try:
            graph.order = list(TopologicalSorter(sources).static_order())
        except CycleError as error:
            ring: list[str] = error.args[1][:-1]
            start = min(range(len(ring)), key=lambda at: list(sources).index(ring[at]))
            ring = ring[start:] + ring[:start]
            reader, source = ring[0], ring[-1]
            sources[reader] = [name for name in sources[reader] if name != source]
            path = f"{graph.operators[reader].path}.inputs[{graph.operators[reader].inputs.index(source)}]"
            message = f"a cycle: {' -> '.join((*ring, reader))}; rows cannot come back to where they were"
            graph.faults.append(Fault(path, message))
        else:
            break
    places = {name: place for place, name in enumerate(graph.operators)}
    for reader, inputs in sources.items():
        operator = graph.operators[reader]
        for name in inputs:
            if places[name] > places[reader]:
                path = f"{operator.path}.inputs[{operator.inputs.index(name)}]"
                message = (
                    f"{name!r} is listed below; inputs come first: list {reader!r} below all that it reads"
                )
                graph.faults.append(Fault(path, message))


# --- schemas -------------------------------------------------------------------------------------


def _flow(graph: Graph) -> None:
    """Hand schemas and event time down in topological order."""
    copies: dict[str, int] = {}
    event_times = EventTimes(graph)
    for name in graph.order:
        operator = graph.operators[name]
        _check_fused_copies(operator, copies, graph.faults)
        if operator.role != "join":
            _take_input(operator, graph)
        if operator.is_keyed and name in graph.inputs:
            _check_key(operator, graph.inputs[name], graph.faults)
        if operator.role == "window":
            event_times.hand_on(operator)
            schema = window_output(operator, graph)
        elif operator.role == "join":
            event_times.hand_on(operator)
            schema = join_output(operator, event_times.of_inputs(operator), graph)
        elif operator.is_column_step:
            schema = column_step_output(operator, graph)
        else:
            schema = _output(operator, graph.faults)
        if schema is not None:
            graph.outputs[name] = schema
        if not operator.is_codeless:
            event_times.hand_on(operator)


def _take_input(operator: Operator, graph: Graph) -> None:
    first: str | None = None
    for index, source in enumerate(operator.inputs):
        schema = graph.outputs.get(source)
        if schema is None:
            continue
        if first is None:
            first = source
            graph.inputs[str(operator.name)] = schema
        elif schema != graph.outputs[first]:
            before = in_words(graph.outputs[first])
            message = (
                f"{source!r} gives ({in_words(schema)}), but {first!r} gives ({before}); "
                "all inputs of an operator need the same columns in the same order"
            )
            graph.faults.append(Fault(f"{operator.path}.inputs[{index}]", message))


def _output(operator: Operator, faults: list[Fault]) -> Schema | None:
    if operator.role == "source":
        source = operator.body["source"]
        given = [
            (fields, source[kind])
            for kind, fields in SOURCES.items()
            if isinstance(source, dict) and source.get(kind) is not None
        ]
        if len(given) != 1:
            return None
        fields, body = given[0]
        return fields.schema_of(body if isinstance(body, dict) else {})
    ddl = operator.body.get("outputSchema")
    if (
        not (operator.has_step_code or operator.role in ("transform", "processor"))
        or not isinstance(ddl, str)
        or not ddl
    ):
        return None
    try:
        return parse_schema(ddl)
    except InvalidSchema as error:
        faults.append(Fault(f"{operator.path}.outputSchema", str(error)))
        return None


def _check_key(operator: Operator, schema: Schema, faults: list[Fault]) -> None:
    key_by = operator.body.get("keyBy")
    taken: set[str] = set()
    for index, name in enumerate(key_by if isinstance(key_by, list | tuple) else ()):
        if not isinstance(name, str):
            continue
        path = f"{operator.path}.keyBy[{index}]"
        if name in taken:
            faults.append(Fault(path, f"{name!r} is given twice; keep one"))
        elif (message := key_fault(name, schema)) is not None:
            faults.append(Fault(path, message))
        taken.add(name)


def _check_fused_copies(operator: Operator, copies: dict[str, int], faults: list[Fault]) -> None:
    count = sum(copies.get(source, 0) for source in operator.inputs)
    is_stage = operator.role in ("source", "transform") or operator.is_keyed
    copies[str(operator.name)] = 1 if is_stage else count
    if (operator.is_step or operator.role == "sink") and count > FUSED_COPIES_MAX:
        message = f"rows reach it on {count} paths without a key; at most {FUSED_COPIES_MAX} can be fused"
        faults.append(Fault(f"{operator.path}.inputs", message))
        copies[str(operator.name)] = 1


def _texts(value: object) -> Iterator[str]:
    return (item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else iter(())
