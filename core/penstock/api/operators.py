"""A Topology's operators as its plain document has them, and what is found out about them one after another.

`graph` and `event_time` fill a `Graph` with what they find; `compile` builds on it where it has no faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.api.specs.operator_spec import COLUMN_STEPS, STEPS, OperatorSpec
from penstock.dataflow.expression_tree import ColumnStep
from penstock.dataflow.interval_join import IntervalJoin
from penstock.dataflow.plan import EVENT_TIME, NO_TIME, PROCESSING_TIME, Projection
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import WindowAggregation
from penstock.manifest.faults import Fault, nearest
from penstock.manifest.structural import structural_schema

_FIELDS = frozenset(structural_schema(OperatorSpec)["properties"])


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as far as the document is clear about it."""

    path: str
    name: str | None
    role: str | None
    """One of source, those of `STEPS`, filter, select (also with a filter), processor, window, join, sink (a
    window or a processor also when it lacks no more than that); None when it has not exactly one."""
    inputs: tuple[str, ...]
    body: Mapping[str, Any]

    @property
    def unknown_fields(self) -> list[str]:
        return [name for name in self.body if name not in _FIELDS]

    @property
    def is_step(self) -> bool:
        return self.has_step_code or self.is_column_step

    @property
    def has_step_code(self) -> bool:
        return self.role in STEPS

    @property
    def is_column_step(self) -> bool:
        """Whether it is a step that expressions say."""
        return self.role in COLUMN_STEPS

    @property
    def is_keyed(self) -> bool:
        return self.role == "processor" or self.is_codeless

    @property
    def is_codeless(self) -> bool:
        """Whether it has keys and goes by event time without code of the user's."""
        return self.role in ("window", "join")

    @property
    def time_mode(self) -> str | None:
        """Of one with keys; None where that is not clear, by a fault of its own."""
        if self.is_codeless:
            return EVENT_TIME
        given = self.body.get("timeMode")
        if given is None:
            return None if nearest("timeMode", self.unknown_fields) else NO_TIME
        return given if given in (NO_TIME, PROCESSING_TIME, EVENT_TIME) else None


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """A join, and how the rows of its inputs become its own."""

    join: IntervalJoin
    projections: tuple[Projection, ...]


@dataclass(slots=True)
class Graph:
    """The outcome of `check`. Without faults `order` holds every operator, inputs first."""

    faults: list[Fault] = field(default_factory=list)
    operators: dict[str, Operator] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    inputs: dict[str, Schema] = field(default_factory=dict)
    """Operator -> schema of its input rows."""
    outputs: dict[str, Schema] = field(default_factory=dict)
    """Operator -> schema of the rows that come out. Sinks have none."""
    event_columns: dict[str, str] = field(default_factory=dict)
    """Processor or window that goes by event time -> the column of its input that says it."""
    windows: dict[str, WindowAggregation] = field(default_factory=dict)
    joins: dict[str, PlannedJoin] = field(default_factory=dict)
    column_steps: dict[str, ColumnStep] = field(default_factory=dict)
    initial: dict[str, Schema] = field(default_factory=dict)
    """Processor -> schema of the rows of its initial state."""

    def readers(self, name: str) -> Iterator[Operator]:
        """The operators that read `name`, in the document's order."""
        return (operator for operator in self.operators.values() if name in operator.inputs)
