"""From rows as they travel to keys as they are routed: a decimal is text on the wire, and a number there.

Neighbours: `routing` routes; tasks take the keys of their rows by this, and who makes tables those of packed
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any

from penstock.dataflow.routing import Key, Router
from penstock.dataflow.type_names import nested, struct_fields

WireRow = Sequence[Any]


def wire_router(types: Sequence[str], shards: int) -> Callable[[Key], int]:
    """Key of wire values -> its shard by hash, of key columns of these types."""
    keys_of = routing_keys(range(len(types)), types)
    route = Router(types, shards).route

    def routed(key: Key) -> int:
        (routing,) = keys_of([key])
        return route(routing)

    return routed


def routing_keys(
    columns: Sequence[int], types: Sequence[str]
) -> Callable[[Sequence[WireRow]], Iterable[tuple[Any, ...]]]:
    """Rows -> their keys, as the router takes them."""
    if any("decimal" in type_ for type_ in types):
        made = [_with_decimals(type_) for type_ in types]

        def with_decimals(row: WireRow) -> tuple[Any, ...]:
            return tuple(
                make(row[column]) if make is not None and row[column] is not None else row[column]
                for column, make in zip(columns, made, strict=True)
            )

        return lambda rows: map(with_decimals, rows)
    if not columns:
        return lambda rows: [()] * len(rows)
    if len(columns) == 1:
        column = columns[0]
        return lambda rows: [(row[column],) for row in rows]
    return lambda rows: map(itemgetter(*columns), rows)


def _with_decimals(type_: str) -> Callable[[Any], Any] | None:
    """What to make of a wire value that is a decimal or has some; None for other types."""
    if type_.startswith("decimal"):
        return Decimal
    kind, inner = nested(type_)
    if kind != "struct" or "decimal" not in inner:
        return None
    made = [_with_decimals(field) for _, field in struct_fields(inner)]
    return lambda values: [
        make(value) if make is not None and value is not None else value
        for make, value in zip(made, values, strict=True)
    ]
