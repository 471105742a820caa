"""What a user writes of a sink, of whatever kind: the interface that graph and compile know.

A kind is one module beside this: its fields (below `SinkFields`), and what a plan holds of it (below
`penstock.dataflow.sink.Sink`). Neighbour: `registry` lists the kinds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.connectors.named_code import NamedCode
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.manifest.document import Document
from penstock.manifest.faults import Fault


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink writes, which no two sinks may share: `field` says it, `what` is its word ("folder")."""

    field: str
    what: str
    name: str


class SinkFields(Document):
    """The fields of one kind."""

    planned: ClassVar[type[Sink]]
    """What `plan` makes."""

    @classmethod
    def place_of(cls, body: Mapping[str, Any]) -> Place | None:
        """Of the plain document, whose fields may be wrong; None where sinks of this kind may share all."""
        return None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any], schema: Schema | None) -> list[Fault]:
        """What is wrong between its fields, and with the columns that they name. `path` is where it stands in
        the document, `schema` that of its rows, None where that is not clear."""
        return []

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The Secrets that it is written with; they are mounted where it is written."""
        return ()

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        """As of a source."""
        return None

    @abstractmethod
    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> Sink:
        """What a plan holds of it, as the operator `name`, whose rows come from the stages `feeders`,
        sorted by name. For fields without a fault."""
