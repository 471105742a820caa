"""What a user writes of a source, of whatever kind: the interface that graph and compile know.

A kind is one module beside this: its fields (below `SourceFields`), and what a plan holds of it (below
`penstock.dataflow.source.Source`). Neighbours: `registry` lists the kinds, `rate` has what they share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connectors.named_code import NamedCode
from penstock.dataflow.schema import Schema
from penstock.dataflow.source import Source
from penstock.manifest.document import Document
from penstock.manifest.faults import Fault


class SourceFields(Document):
    """The fields of one kind. Class methods look at the plain document, whose fields may be wrong or missing:
    what a field's own fault leaves unknown is passed over, so that one mistake is named once."""

    planned: ClassVar[type[Source]]
    """What `plan` makes."""

    @classmethod
    @abstractmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        """The schema of its rows; None where that is not clear."""

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        """What is wrong between its fields. `path` is where it stands in the document."""
        return []

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The Secrets that it is read with; they are mounted where it is read."""
        return ()

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        """The user's code that it names; None for a kind that names none, and where that is not clear."""
        return None

    @abstractmethod
    def plan(self) -> Source:
        """What a plan holds of it. For fields without a fault."""
