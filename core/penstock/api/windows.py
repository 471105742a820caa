"""A window of the manifest as the plan's `WindowAggregation`, and which columns come out of it.

Works on the plain document, as `graph` does: what a field's own fault leaves unknown is passed over.
Neighbours: `graph` calls this, `window_spec` has the fields, `dataflow.window` the rules of every window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.api.columns import missing_column
from penstock.api.operators import Graph, Operator
from penstock.api.specs.window_spec import WINDOW_KINDS
from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import (
    FUNCTIONS,
    Aggregate,
    InvalidWindow,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowAggregation,
)
from penstock.manifest.document import duration_us
from penstock.manifest.faults import Fault


def aggregators_of(operator: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The aggregators of the user's own in an operator's plain document: their places, and "module:Class"."""
    given = operator.get("aggregate")
    for place, one in enumerate(given if isinstance(given, list | tuple) else ()):
        function = one.get("function") if isinstance(one, dict) else None
        if isinstance(function, str) and ":" in function:
            yield place, function


def window_output(operator: Operator, graph: Graph) -> Schema | None:
    """The columns that come out of the window `operator`; `graph.windows` has it then. None where that is not
    clear, by a fault."""
    name = str(operator.name)
    window = _window(operator, graph.faults)
    given = graph.inputs.get(name)
    if given is None:
        return None
    aggregates = _aggregates(operator, given, graph.faults)
    key, event_column = _key(operator, given), graph.event_columns.get(name)
    if not key or window is None or aggregates is None or event_column is None:
        return None
    try:
        aggregation = WindowAggregation(window, event_column, aggregates)
        output = aggregation.output(given, key)
    except InvalidWindow as error:
        graph.faults.append(Fault(f"{operator.path}.aggregate", str(error)))
        return None
    graph.windows[name] = aggregation
    return output


def _key(operator: Operator, given: Schema) -> tuple[int, ...]:
    """Places of its columns in `given`; none where not all are there."""
    key = operator.body.get("keyBy")
    if not isinstance(key, list | tuple) or any(column not in given.names for column in key):
        return ()
    return tuple(given.names.index(column) for column in key)


def _window(operator: Operator, faults: list[Fault]) -> Window | None:
    body = operator.body.get("window")
    kinds = [(kind, body[kind]) for kind in WINDOW_KINDS if body.get(kind)] if isinstance(body, dict) else []
    if len(kinds) != 1:
        return None
    ((kind, given),) = kinds
    fields = given if isinstance(given, dict) else {}
    try:
        match kind:
            case "tumbling":
                return Tumbling(_milliseconds(given))
            case "sliding":
                return Sliding(_milliseconds(fields.get("size")), _milliseconds(fields.get("every")))
            case _:
                return Session(_milliseconds(fields.get("gap")))
    except InvalidWindow as error:
        faults.append(Fault(f"{operator.path}.window.{kind}", str(error)))
    except _NotClear:
        pass
    return None


class _NotClear(Exception):
    """A field's own fault says why."""


def _milliseconds(given: object) -> int:
    try:
        found = duration_us(given) if isinstance(given, str) else 0
    except ValueError:
        found = 0
    if found <= 0 or found % 1000:
        raise _NotClear
    return found // 1000


def _aggregates(operator: Operator, given: Schema, faults: list[Fault]) -> tuple[Aggregate, ...] | None:
    """None where not all of them are clear."""
    listing = operator.body.get("aggregate")
    if not isinstance(listing, list | tuple) or not listing:
        return None
    made = [
        _aggregate(f"{operator.path}.aggregate[{place}]", one, given, faults)
        for place, one in enumerate(listing)
    ]
    known = tuple(one for one in made if one is not None)
    return known if len(known) == len(made) else None


def _aggregate(path: str, one: object, given: Schema, faults: list[Fault]) -> Aggregate | None:
    if not isinstance(one, dict):
        return None
    name, function, column = one.get("as"), one.get("function"), one.get("column")
    if not isinstance(name, str) or not name or not isinstance(function, str):
        return None
    if function not in FUNCTIONS and ":" not in function:
        return None
    if isinstance(column, str) and column and (message := missing_column(column, given)) is not None:
        faults.append(Fault(f"{path}.column", message))
        return None
    try:
        type_ = _type(one.get("type"))
    except InvalidSchema as error:
        faults.append(Fault(f"{path}.type", str(error)))
        return None
    try:
        aggregate = Aggregate(
            name, function, column if isinstance(column, str) else "", _numbers(one.get("quantiles")), type_
        )
        aggregate.result_type(given)
    except InvalidWindow as error:
        faults.append(Fault(path, str(error)))
        return None
    except _NotClear:
        return None
    return aggregate


def _type(given: object) -> str:
    """As schemas write it; "" for none."""
    if not isinstance(given, str) or not given:
        return ""
    columns = parse_schema(f"result {given}").columns
    if len(columns) != 1:
        raise InvalidSchema(f"{given!r} is more than one type; give one such as bigint")
    return columns[0].type


def _numbers(given: object) -> tuple[float, ...]:
    if given is None:
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise _NotClear
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= 1 for one in given):
        raise _NotClear
    return tuple(float(one) for one in given)
