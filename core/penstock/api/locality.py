"""Which operators may have their keys placed by tables: what has to hold for `locality: Auto`.

Neighbours: `graph` checks a document by it, `compile` puts it into the plan, decision 0053 says why some
stages can have no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.api.operators import Graph, Operator
from penstock.dataflow.plan import EVENT_TIME
from penstock.manifest.faults import Fault, listed

AUTO = "Auto"
_NO_TEXT_OF_ONE_VALUE = ("float", "double")
"""0.0 and -0.0 are one key, and NaN is none that can be looked up."""


def check_locality(graph: Graph) -> None:
    """What is wrong with operators whose keys are to go by tables. After schemas have been handed down."""
    asked = {name: one for name, one in graph.operators.items() if _is_asked(one)}
    for name, operator in asked.items():
        graph.faults += _own_faults(operator, graph)
        if not _neighbours(name, asked, graph):
            graph.faults.append(Fault(f"{operator.path}.locality", _alone(operator, asked, graph)))


def _is_asked(operator: Operator) -> bool:
    return operator.role == "processor" and operator.body.get("locality") == AUTO


def _own_faults(operator: Operator, graph: Graph) -> Iterator[Fault]:
    path = f"{operator.path}.locality"
    if operator.time_mode == EVENT_TIME:
        message = (
            "Auto does not go together with timeMode: EventTime: a shard tells its watermark for the keys "
            "that it has; give Off"
        )
        yield Fault(path, message)
    if operator.body.get("initialState") is not None:
        message = (
            "Auto does not go together with initialState: a shard begins with the rows of its keys; give Off"
        )
        yield Fault(path, message)
    for name in _transforms_before(operator, graph):
        message = (
            f"Auto does not go together with rows of transform {name!r}: what a Spark job puts out does not "
            "go by tables; give Off"
        )
        yield Fault(path, message)
    schema = graph.inputs.get(str(operator.name))
    key_by = operator.body.get("keyBy")
    if schema is None or not isinstance(key_by, list | tuple):
        return
    types = {column.name: column.type for column in schema.columns}
    for column in key_by:
        type_ = types.get(column) if isinstance(column, str) else None
        if type_ is not None and (type_ in _NO_TEXT_OF_ONE_VALUE or type_.startswith("struct<")):
            message = (
                f"Auto needs keys that a table can name: column {column!r} is {type_}; key by columns that "
                "are no structs and no floating-point numbers, or give Off"
            )
            yield Fault(path, message)


def _transforms_before(operator: Operator, graph: Graph) -> list[str]:
    """The transforms whose rows come to it, through steps or without."""
    found: dict[str, None] = {}
    waiting, seen = list(operator.inputs), set[str]()
    while waiting:
        name = waiting.pop()
        before = graph.operators.get(name)
        if before is None or name in seen:
            continue
        seen.add(name)
        if before.role == "transform":
            found[name] = None
        elif before.is_step:
            waiting += before.inputs
    return list(found)


def _neighbours(name: str, asked: Iterable[str], graph: Graph) -> bool:
    """Whether rows go from it to another one that is asked, or the other way round, steps between them or
    not."""
    reached = set(_reached(name, graph))
    return any(other in reached or name in _reached(other, graph) for other in asked if other != name)


def _reached(name: str, graph: Graph) -> Iterator[str]:
    """The operators with keys that rows of `name` come to next."""
    waiting, seen = [name], {name}
    while waiting:
        for reader in graph.readers(waiting.pop()):
            if reader.name is None or reader.name in seen:
                continue
            seen.add(reader.name)
            if reader.is_step:
                waiting.append(reader.name)
            elif reader.is_keyed:
                yield reader.name


def _alone(operator: Operator, asked: Iterable[str], graph: Graph) -> str:
    near = [
        name
        for name, other in graph.operators.items()
        if other.role == "processor"
        and name not in asked
        and (name in _reached(str(operator.name), graph) or str(operator.name) in _reached(name, graph))
    ]
    what = f"give {listed(near)} locality: Auto too" if near else "no processor stands before or behind it"
    return f"Auto needs two processors that rows go between, both with Auto; {what}, or give Off"
