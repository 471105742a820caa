"""An interval join of two inputs, as a value: which rows meet, and which columns come out.

Rows of both inputs come as one schema: the key's columns, and a struct for each side, of which one is null.
The join itself is the worker's (`penstock_worker.windows`). Neighbour: `window` (the other operator that
needs no code).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.type_names import nested, struct_fields
from penstock.dataflow.window import TIME_TYPES, InvalidWindow, checked_output, column_of

LEFT = "left"
RIGHT = "right"
"""The columns of the input that hold the two sides."""
EVENT_TIME = "eventTime"
"""That of either side, beside them: late is late whichever side it is of."""
INNER = "inner"
LEFT_OUTER = "leftOuter"


@dataclass(frozen=True, slots=True)
class JoinSide:
    """`event_time` is the field that says when a row happened. `columns` are the fields that come out, each
    with the name it then has."""

    event_time: str
    columns: tuple[tuple[str, str], ...]

    def output(self, given: Schema, side: str) -> list[Column]:
        """What comes out of this side; `given` are its fields. Raises InvalidWindow."""
        time = column_of(given, self.event_time, f"eventTime of {side}")
        if time.type not in TIME_TYPES:
            raise InvalidWindow(
                f"event time {time.name!r} of {side} is {time.type}; it has to be a timestamp"
            )
        return [Column(named, column_of(given, name, side).type) for name, named in self.columns]


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Rows of one key meet where right.time is from left.time + lower to left.time + upper, both included.

    `how` is INNER or LEFT_OUTER: then a row of the left that met nobody comes out too, the right's columns
    null, once the watermark says that nobody will come.
    """

    left: JoinSide
    right: JoinSide
    lower_ms: int
    upper_ms: int
    how: str = INNER

    def __post_init__(self) -> None:
        if self.lower_ms > self.upper_ms:
            raise InvalidWindow(
                f"a join from {self.lower_ms} ms to {self.upper_ms} ms holds no time; lower is at most upper"
            )
        if self.how not in (INNER, LEFT_OUTER):
            raise InvalidWindow(f"a join is {INNER} or {LEFT_OUTER}, got {self.how!r}")

    def output(self, given: Schema) -> Schema:
        """What comes out of rows of `given`: the left's columns, then the right's. Raises InvalidWindow."""
        left = self.left.output(side_schema(given, LEFT), LEFT)
        return checked_output([*left, *self.right.output(side_schema(given, RIGHT), RIGHT)])

    def identity_text(self) -> str:
        """What its state depends on and never changes, in words; the fields are in the input's schema."""
        times = f"{self.left.event_time} and {self.right.event_time}"
        return f"{self.how} join of {times}, {self.lower_ms} to {self.upper_ms} ms"


def side_schema(given: Schema, side: str) -> Schema:
    """The fields of the struct that holds one side. Raises InvalidWindow."""
    column = column_of(given, side, "a join")
    kind, inner = nested(column.type)
    if kind != "struct":
        raise InvalidWindow(f"a join: column {side!r} is {column.type}; it has to be a struct")
    return Schema(tuple(Column(name, type_) for name, type_ in struct_fields(inner)))


def joined_schema(join: IntervalJoin, left: Schema, left_key: Sequence[int], right: Schema) -> Schema:
    """The schema of the rows that a join is given: the key's columns as the left calls them, eventTime, and
    the rows of both sides as structs.

    Raises InvalidWindow where times are of two types, or a key's column is called as one of the others.
    """
    times = [
        column_of(schema, side.event_time, "eventTime")
        for schema, side in ((left, join.left), (right, join.right))
    ]
    if times[0].type != times[1].type:
        raise InvalidWindow(
            f"event time {times[0].name!r} of left is {times[0].type}, {times[1].name!r} of right is "
            f"{times[1].type}; give both one type"
        )
    reserved = [
        Column(EVENT_TIME, times[0].type),
        Column(LEFT, _struct(left)),
        Column(RIGHT, _struct(right)),
    ]
    keys = [left.columns[place] for place in left_key]
    taken = {column.name.lower() for column in reserved}
    for column in keys:
        if column.name.lower() in taken:
            raise InvalidWindow(
                f"a column of left.key is called {column.name!r}, as one of the join's; rename it"
            )
    return Schema((*keys, *reserved))


def _struct(schema: Schema) -> str:
    fields = ", ".join(f"`{column.name.replace('`', '``')}`: {column.type}" for column in schema.columns)
    return parse_schema(f"side struct<{fields}>").columns[0].type
