"""What is said of columns that a manifest names: of those that are not there, and of those that are no key.

Neighbours: `graph`, `windows` and `joins` ask here.
"""

from __future__ import annotations

from penstock.dataflow.routing import routable
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import listed, nearest


def in_words(schema: Schema) -> str:
    """Its columns with their types."""
    return listed(f"{column.name} {column.type}" for column in schema.columns)


def missing_column(name: str, schema: Schema) -> str | None:
    """What is wrong with naming the column `name` of an input of `schema`; None where it is there."""
    if name in schema.names:
        return None
    return f"its input has no column {name!r}{nearest(name, schema.names)}; columns are {in_words(schema)}"


def key_fault(name: str, schema: Schema) -> str | None:
    """What keeps the column `name` of an input of `schema` from being part of a key; None for nothing."""
    if (message := missing_column(name, schema)) is not None:
        return message
    type_ = schema.columns[schema.names.index(name)].type
    return None if routable(type_) else f"column {name!r} is {type_}: arrays and maps cannot be part of a key"
