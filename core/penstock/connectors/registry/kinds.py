"""The kinds of sources and sinks that there are: the one place that lists them.

A new kind is a module in the folder above, a line here, and its reader or writer in the worker's registry
(`penstock_worker.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_snake

from penstock.connectors.console import ConsoleSinkSpec
from penstock.connectors.data_source import DataSourceSinkSpec, DataSourceSourceSpec
from penstock.connectors.files import FilesSinkSpec, FilesSourceSpec
from penstock.connectors.foreach import ForeachSinkSpec
from penstock.connectors.foreach_batch import ForeachBatchSinkSpec
from penstock.connectors.kafka.sink import KafkaSinkSpec
from penstock.connectors.kafka.source import KafkaSourceSpec
from penstock.connectors.named_code import NamedCode
from penstock.connectors.nexmark import NexmarkSourceSpec
from penstock.connectors.sink import SinkFields
from penstock.connectors.source import SourceFields
from penstock.connectors.zipf import ZipfSourceSpec
from penstock.manifest.document import Document, cel
from penstock.manifest.faults import joined

_Fields = TypeVar("_Fields")

SOURCES: Mapping[str, type[SourceFields]] = {
    fields.planned.kind: fields
    for fields in (FilesSourceSpec, ZipfSourceSpec, NexmarkSourceSpec, KafkaSourceSpec, DataSourceSourceSpec)
}
READ_ONCE: Mapping[str, type[SourceFields]] = {FilesSourceSpec.planned.kind: FilesSourceSpec}
"""Those that may hold initial state: they have an end."""
SINKS: Mapping[str, type[SinkFields]] = {
    fields.planned.kind: fields
    for fields in (
        FilesSinkSpec,
        ConsoleSinkSpec,
        KafkaSinkSpec,
        DataSourceSinkSpec,
        ForeachSinkSpec,
        ForeachBatchSinkSpec,
    )
}


def _exactly_one(kinds: Iterable[str]) -> tuple[str, str]:
    """The CEL rule, and what it says."""
    names = list(kinds)
    given = [f"has(self.{name})" for name in names]
    rule = f"[{', '.join(given)}].filter(given, given).size() == 1" if len(given) > 2 else " != ".join(given)
    return rule, f"exactly one of {joined(names)}"


class SourceSpec(Document):
    """Where records come from: exactly one kind."""

    model_config = ConfigDict(json_schema_extra=cel(_exactly_one(SOURCES)))

    files: FilesSourceSpec | None = None
    zipf: ZipfSourceSpec | None = None
    nexmark: NexmarkSourceSpec | None = None
    kafka: KafkaSourceSpec | None = None
    data_source: DataSourceSourceSpec | None = None

    @property
    def given(self) -> SourceFields:
        """Raises ValueError where there is none: the graph's check comes first."""
        fields: list[SourceFields | None] = [getattr(self, to_snake(kind)) for kind in SOURCES]
        return _given(fields)


class InitialStateSpec(Document):
    """Rows that `handleInitialState` is called for, before all other rows of their keys. They are read once,
    at the first start, before the sources begin; their columns have all of keyBy, with the same types."""

    files: FilesSourceSpec
    """The files that there are at the first start."""

    @property
    def given(self) -> SourceFields:
        """What reads it."""
        return self.files


class SinkSpec(Document):
    """Where rows leave the topology: exactly one kind."""

    model_config = ConfigDict(json_schema_extra=cel(_exactly_one(SINKS)))

    files: FilesSinkSpec | None = None
    console: ConsoleSinkSpec | None = None
    kafka: KafkaSinkSpec | None = None
    data_source: DataSourceSinkSpec | None = None
    foreach: ForeachSinkSpec | None = None
    foreach_batch: ForeachBatchSinkSpec | None = None

    @property
    def given(self) -> SinkFields:
        """As of a source."""
        fields: list[SinkFields | None] = [getattr(self, to_snake(kind)) for kind in SINKS]
        return _given(fields)


def named_code(there: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], NamedCode]]:
    """The user's code that the source and sinks of an operator, or of a Topology's spec, name (a plain
    document, which may have faults), each with its place in it."""
    registries: tuple[tuple[str, Mapping[str, type[SourceFields] | type[SinkFields]]], ...] = (
        ("source", SOURCES),
        ("sink", SINKS),
        ("lateTo", SINKS),
        ("deadLetters", SINKS),
    )
    for field, kinds in registries:
        given = there.get(field)
        for kind, body in given.items() if isinstance(given, dict) else ():
            if kind in kinds and isinstance(body, dict) and (code := kinds[kind].code_of(body)) is not None:
                yield (field, kind, code.field), code


def _given(fields: Iterable[_Fields | None]) -> _Fields:
    for given in fields:
        if given is not None:
            return given
    raise ValueError("a source or a sink of no kind: check comes first")
