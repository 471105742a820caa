"""Which column says when a Topology's rows happened: begun at sources and maps, handed on, needed by timers.

Event time goes down the graph as schemas do. A watermark begins at a source, or at a map before the first
processors; a map keeps the column where its own rows have it, a processor says which of its columns goes on.
That of a window's rows is windowEnd. Neighbour: `graph` calls `EventTimes` for each operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.api.operators import Graph, Operator
from penstock.dataflow.plan import EVENT_TIME
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.window import TIME_TYPES, WINDOW_END
from penstock.manifest.faults import Fault, listed, nearest

_TYPES = TIME_TYPES
_TYPES_IN_WORDS = " or ".join(_TYPES)
_OF_THE_BEGINNING = ("allowedDelay", "idleAfter")


@dataclass(frozen=True, slots=True)
class _Rows:
    """What rows have of event time: a `column`, or one sentence in `lacks` for each operator that keeps them
    from it. Neither, where that is not clear by a fault of its own.

    `begun` are the operators where their watermark begins, `handed` the processors that hand it on last.
    """

    column: str = ""
    lacks: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()


class EventTimes:
    """Hands event time down: faults, and `event_columns` of `graph`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rows: dict[str, _Rows] = {}

    def hand_on(self, operator: Operator) -> None:
        """Called once for each operator in topological order, when its schemas are known: of a window that of
        its input does, since the column that is found here is one that its own depends on."""
        rows, graph = self._rows, self._graph
        name = str(operator.name)
        match operator.role:
            case "source":
                rows[name] = _source(operator, graph)
            case _ if operator.is_step:
                rows[name] = _map(operator, _input(operator, rows, graph.faults), graph)
            case "transform":
                lack = f"there is none behind transform {name!r}: no watermark goes through a Spark job"
                rows[name] = _Rows(lacks=(lack,), handed=(name,))
            case "processor":
                rows[name] = _processor(operator, rows, graph)
            case "window":
                begun = _reaching(operator, "window", "a window", rows, graph).begun
                rows[name] = _Rows(WINDOW_END, begun=begun, handed=(name,))
            case "join":
                lack = f"there is none behind join {name!r}, whose rows have two times"
                rows[name] = _Rows(lacks=(lack,), handed=(name,))
            case _:
                pass

    def of_inputs(self, join: Operator) -> tuple[str, ...]:
        """The event times of a join's inputs, in their order; none where not all have one, with faults."""
        found = [self._rows.get(source, _Rows()) for source in join.inputs]
        self._graph.faults += [
            Fault(f"{join.path}.inputs[{index}]", f"a join needs an event time on every path here: {lack}")
            for index, given in enumerate(found)
            for lack in given.lacks
        ]
        return tuple(given.column for given in found) if all(given.column for given in found) else ()


def _source(operator: Operator, graph: Graph) -> _Rows:
    name = str(operator.name)
    if _declares(operator):
        return _Rows(_declared(operator, graph), begun=(name,))
    if nearest("eventTime", operator.unknown_fields):
        return _Rows()
    columns = [column.name for column in _columns_of(graph.outputs.get(name)) if column.type in _TYPES]
    example = columns[0] if columns else "NAME"
    who = "it" if columns else "a map behind it, whose rows have such a column,"
    return _Rows(lacks=(f"source {name!r} has none; give {who} eventTime: {{column: {example}}}",))


def _map(operator: Operator, given: _Rows, graph: Graph) -> _Rows:
    name, path = str(operator.name), f"{operator.path}.eventTime"
    if _declares(operator):
        column = _declared(operator, graph)
        if given.handed:
            message = (
                f"a {operator.role} behind {listed(given.handed)} has none: a processor hands its watermark "
                "on; leave it out, and keep the column's name"
            )
            graph.faults.append(Fault(path, message))
        elif given.begun:
            message = f"a watermark begins at {listed(given.begun)} already; keep one eventTime on each path"
            graph.faults.append(Fault(path, message))
        return _Rows(column, begun=(name,))
    schema = graph.outputs.get(name)
    if nearest("eventTime", operator.unknown_fields) or schema is None:
        return _Rows()
    if given.lacks or not given.column:
        return given
    if any(column.name == given.column and column.type in _TYPES for column in schema.columns):
        return given
    elsewhere = "" if given.handed else f", or give eventTime to {name} instead of {listed(given.begun)}"
    message = (
        f"map {name!r} has no column {given.column!r} of type {_TYPES_IN_WORDS}; add that to its "
        f"outputSchema{elsewhere}"
    )
    return replace(given, column="", lacks=(message,))


def _processor(operator: Operator, rows: dict[str, _Rows], graph: Graph) -> _Rows:
    name, mode = str(operator.name), operator.time_mode
    given = _Rows()
    if mode == EVENT_TIME:
        given = _reaching(operator, "timeMode", "EventTime", rows, graph)
    if _declares(operator):
        column = _declared(operator, graph)
        if mode not in (None, EVENT_TIME):
            message = "a processor has one with timeMode: EventTime only; give that, or leave it out"
            graph.faults.append(Fault(f"{operator.path}.eventTime", message))
        _refuse_bounds(operator, given.begun, graph.faults)
        return _Rows(column, begun=given.begun, handed=(name,))
    if mode is None or nearest("eventTime", operator.unknown_fields):
        return _Rows(handed=(name,))
    if mode == EVENT_TIME:
        lack = f"processor {name!r} names no column of its rows; give it eventTime: {{column: NAME}}"
    else:
        lack = (
            f"there is none behind processor {name!r}, whose timeMode is {mode}; give it timeMode: EventTime "
            "and eventTime: {column: NAME}"
        )
    return _Rows(lacks=(lack,), handed=(name,))


def _reaching(operator: Operator, field: str, who: str, rows: dict[str, _Rows], graph: Graph) -> _Rows:
    """What reaches an operator that goes by event time; `field` of it, in words `who`, says that it does."""
    given = _input(operator, rows, graph.faults)
    graph.faults += [
        Fault(f"{operator.path}.{field}", f"{who} needs an event time on every path here: {lack}")
        for lack in given.lacks
    ]
    if given.column:
        graph.event_columns[str(operator.name)] = given.column
    return given


def _input(operator: Operator, rows: dict[str, _Rows], faults: list[Fault]) -> _Rows:
    """What all inputs together have. One that is not clear is passed over."""
    first: str | None = None
    found = [(index, source, rows[source]) for index, source in enumerate(operator.inputs) if source in rows]
    for index, source, given in found:
        if not given.column:
            continue
        if first is None:
            first = source
        elif given.column != rows[first].column:
            message = (
                f"the event time of {source!r} is its column {given.column!r}, that of {first!r} is "
                f"{rows[first].column!r}; all inputs of an operator need the same"
            )
            faults.append(Fault(f"{operator.path}.inputs[{index}]", message))
    return _Rows(
        rows[first].column if first is not None else "",
        _once(lack for _, _, given in found for lack in given.lacks),
        _once(name for _, _, given in found for name in given.begun),
        _once(name for _, _, given in found for name in given.handed),
    )


def _declares(operator: Operator) -> bool:
    return operator.body.get("eventTime") is not None


def _declared(operator: Operator, graph: Graph) -> str:
    """The column that the operator names; "" where it is not one of its rows, or not of a time."""
    given, schema = operator.body["eventTime"], graph.outputs.get(str(operator.name))
    name = given.get("column") if isinstance(given, dict) else None
    if not isinstance(name, str) or not name or schema is None:
        return ""
    path = f"{operator.path}.eventTime.column"
    types = {column.name: column.type for column in schema.columns}
    columns = listed(f"{column.name} {column.type}" for column in schema.columns)
    times = [column for column, type_ in types.items() if type_ in _TYPES]
    if name not in types:
        hint = nearest(name, times or schema.names)
        graph.faults.append(Fault(path, f"its rows have no column {name!r}{hint}; columns are {columns}"))
        return ""
    if types[name] not in _TYPES:
        message = f"column {name!r} is {types[name]}; event time is of type {_TYPES_IN_WORDS}"
        graph.faults.append(Fault(path, message))
        return ""
    return name


def _refuse_bounds(operator: Operator, begun: Iterable[str], faults: list[Fault]) -> None:
    given = operator.body["eventTime"]
    where = listed(begun)
    there = f"with {where}" if where != "none" else "where the watermark begins"
    for field in _OF_THE_BEGINNING:
        if isinstance(given, dict) and given.get(field) is not None:
            message = f"a processor hands its input's watermark on as it is; give it {there}, or leave it out"
            faults.append(Fault(f"{operator.path}.eventTime.{field}", message))


def _columns_of(schema: Schema | None) -> tuple[Column, ...]:
    return schema.columns if schema is not None else ()


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
