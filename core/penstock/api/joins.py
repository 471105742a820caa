"""A join of the manifest as the plan's values, and which columns come out of it.

Works on the plain document, as `graph` does: what a field's own fault leaves unknown is passed over.
Neighbours: `graph` calls this, `join_spec` has the fields, `dataflow.interval_join` the rules of every join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.columns import key_fault, missing_column
from penstock.api.operators import Graph, Operator, PlannedJoin
from penstock.dataflow.interval_join import (
    INNER,
    LEFT,
    LEFT_OUTER,
    RIGHT,
    IntervalJoin,
    JoinSide,
    joined_schema,
)
from penstock.dataflow.plan import Projection
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import InvalidWindow
from penstock.manifest.document import duration_us
from penstock.manifest.faults import Fault

SIDES = (LEFT, RIGHT)
KINDS = {"Inner": INNER, "LeftOuter": LEFT_OUTER}


@dataclass(frozen=True, slots=True)
class _Side:
    """One input, as far as it is clear: places of its key, and what comes out."""

    given: Schema
    key: tuple[int, ...]
    columns: tuple[tuple[str, str], ...]

    @property
    def key_types(self) -> list[str]:
        return [self.given.columns[place].type for place in self.key]


def check_join(operator: Operator, faults: list[Fault]) -> None:
    """What is wrong with the join `operator` by itself."""
    if operator.inputs and len(operator.inputs) != len(SIDES):
        message = f"a join has two, left and right; it has {len(operator.inputs)}"
        faults.append(Fault(f"{operator.path}.inputs", message))


def join_output(operator: Operator, event_columns: Sequence[str], graph: Graph) -> Schema | None:
    """The columns that come out of the join `operator`; `graph` has what the plan needs of it then.

    `event_columns` are those of its inputs, in their order. None where that is not clear, by a fault.
    """
    name, body = str(operator.name), operator.body.get("join")
    if not isinstance(body, dict) or len(operator.inputs) != len(SIDES):
        return None
    sides = [
        _side(f"{operator.path}.join.{which}", body.get(which), graph.outputs.get(source), graph.faults)
        for which, source in zip(SIDES, operator.inputs, strict=True)
    ]
    left, right = sides
    if left is None or right is None or not _keys_fit(operator, left, right, graph.faults):
        return None
    if len(event_columns) != len(SIDES):
        return None
    try:
        join = IntervalJoin(
            JoinSide(event_columns[0], left.columns),
            JoinSide(event_columns[1], right.columns),
            -_milliseconds(body.get("before")),
            _milliseconds(body.get("after")),
            KINDS.get(str(body.get("kind", "Inner")), INNER),
        )
        given = joined_schema(join, left.given, left.key, right.given)
        output = join.output(given)
    except InvalidWindow as error:
        graph.faults.append(Fault(f"{operator.path}.join", str(error)))
        return None
    graph.inputs[name] = given
    graph.event_columns[name] = given.names[len(left.key)]
    graph.joins[name] = PlannedJoin(
        join,
        tuple(
            Projection(side.key, side.given.names.index(time), number)
            for number, (side, time) in enumerate(zip((left, right), event_columns, strict=True))
        ),
    )
    return output


def _side(path: str, body: object, given: Schema | None, faults: list[Fault]) -> _Side | None:
    if not isinstance(body, dict) or given is None:
        return None
    key = _places(f"{path}.key", body.get("key"), given, faults)
    columns = _columns(f"{path}.columns", body.get("columns"), given, faults)
    return _Side(given, key, columns) if key and columns else None


def _places(path: str, names: object, given: Schema, faults: list[Fault]) -> tuple[int, ...]:
    """Of the key's columns; none where not all are clear."""
    found: list[int] = []
    listing = names if isinstance(names, list | tuple) else ()
    for index, name in enumerate(listing):
        if not isinstance(name, str):
            continue
        if (message := key_fault(name, given)) is not None:
            faults.append(Fault(f"{path}[{index}]", message))
        else:
            found.append(given.names.index(name))
    return tuple(found) if len(found) == len(listing) else ()


def _columns(path: str, listing: object, given: Schema, faults: list[Fault]) -> tuple[tuple[str, str], ...]:
    """(name, name that comes out) of each; none where not all are clear."""
    if listing is None:
        return tuple((name, name) for name in given.names)
    found: list[tuple[str, str]] = []
    listing = listing if isinstance(listing, list | tuple) else ()
    for index, one in enumerate(listing):
        name = one.get("column") if isinstance(one, dict) else None
        if not isinstance(one, Mapping) or not isinstance(name, str):
            continue
        if (message := missing_column(name, given)) is not None:
            faults.append(Fault(f"{path}[{index}].column", message))
        else:
            named: Any = one.get("as")
            found.append((name, named if isinstance(named, str) and named else name))
    return tuple(found) if len(found) == len(listing) else ()


def _keys_fit(operator: Operator, left: _Side, right: _Side, faults: list[Fault]) -> bool:
    path = f"{operator.path}.join.right.key"
    if len(left.key) != len(right.key):
        message = f"has {len(right.key)} columns, left.key has {len(left.key)}; they are compared one by one"
        faults.append(Fault(path, message))
        return False
    for index, (one, other) in enumerate(zip(left.key_types, right.key_types, strict=True)):
        if one != other:
            name, of_left = right.given.names[right.key[index]], left.given.names[left.key[index]]
            message = (
                f"{name!r} is {other}, {of_left!r} of the left is {one}; keys are compared as they are: give "
                "both one type, by a map in front"
            )
            faults.append(Fault(f"{path}[{index}]", message))
            return False
    return True


def _milliseconds(given: object) -> int:
    """0 for none, and for what a field's own fault is about."""
    try:
        return duration_us(given) // 1000 if isinstance(given, str) else 0
    except ValueError:
        return 0
