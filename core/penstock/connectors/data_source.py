"""The kind `dataSource`: a Python data source of PySpark's, as a source or a sink.

The class is the user's, a `pyspark.sql.datasource.DataSource`, and stays as it is. The worker's
`sources.data_source` reads and `sinks.data_source` writes through it; decision 0040 says what it promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, StringConstraints

from penstock.connectors.named_code import DATA_SOURCE, NamedCode
from penstock.connectors.sink import SinkFields
from penstock.connectors.source import SourceFields
from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.dataflow.source import Source
from penstock.manifest.document import Ddl, PositiveDuration, Target, cel, duration_us
from penstock.manifest.faults import Fault

OPTIONS_MAX = 64
POLL_INTERVAL_DEFAULT = "1s"

_OptionName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_OptionValue = Annotated[str, StringConstraints(max_length=4096)]
Options = Annotated[dict[_OptionName, _OptionValue], Field(max_length=OPTIONS_MAX)]


@dataclass(frozen=True, slots=True)
class DataSourceSource(Source):
    """One shard: it plans the ranges of offsets and reads their partitions one after the other."""

    kind: ClassVar[str] = "dataSource"

    target: str
    """ "module:Class"."""
    options: tuple[tuple[str, str], ...]
    schema: Schema
    bounded: bool
    """Read by `reader` to its end, also where the class has a stream reader."""
    poll_us: int
    """The longest pause between two looks for something new."""

    @property
    def fixed_parts(self) -> tuple[str, ...]:
        return ("0",)

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        return self.fixed_parts

    def identity_text(self) -> str:
        return f"{self.target}{', bounded' if self.bounded else ''}"


class DataSourceSourceSpec(SourceFields):
    """A Python data source of PySpark's (pyspark.sql.datasource.DataSource), unchanged: its stream reader,
    its simple stream reader or, where it has neither, its reader, which is read once to its end."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.class == oldSelf.class && self.bounded == oldSelf.bounded",
                "a data source's class is fixed for life: its offsets are kept",
            ),
            (
                "self.schema == oldSelf.schema",
                "a source's schema is fixed for life: rows of it wait in inboxes",
            ),
        )
    )

    planned: ClassVar[type[Source]] = DataSourceSource

    class_: Annotated[Target, Field(alias="class")]
    """The class, such as my_sources:Orders."""
    columns: Annotated[Ddl, Field(alias="schema")]
    """The columns of its rows, in Spark's DDL, as the class's schema() says them."""
    options: Options = Field(default_factory=dict)
    """What the class is made with; as in Spark, case does not matter in a name."""
    bounded: bool = False
    """Read it by its reader(), once to its end, though it may have a stream reader too."""
    poll_interval: PositiveDuration = POLL_INTERVAL_DEFAULT
    """While nothing comes it is asked after 10 ms, and then ever more seldom, up to this."""

    @classmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        ddl = body.get("schema")
        try:
            return parse_schema(ddl) if isinstance(ddl, str) and ddl else None
        except InvalidSchema:
            return None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        ddl = body.get("schema")
        try:
            if isinstance(ddl, str) and ddl:
                parse_schema(ddl)
        except InvalidSchema as error:
            return [Fault(f"{path}.schema", str(error))]
        return []

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        named = _named(body)
        if named is None:
            return None
        ddl = body.get("schema")
        return NamedCode(
            named.field,
            named.target,
            named.role,
            named.options,
            schema=ddl if isinstance(ddl, str) else "",
            bounded=body.get("bounded") is True,
        )

    def plan(self) -> DataSourceSource:
        return DataSourceSource(
            self.class_,
            _planned(self.options),
            parse_schema(self.columns),
            self.bounded,
            duration_us(self.poll_interval),
        )


@dataclass(frozen=True, slots=True)
class DataSourceSink(Sink):
    """What is committed is written by the class's stream writer, a batch for each entry."""

    kind: ClassVar[str] = "dataSource"

    name: str
    target: str
    options: tuple[tuple[str, str], ...]
    feeders: tuple[str, ...] = ()
    """The stages whose shards write it, by name: their places are in the numbers of batches, for life."""

    def identity_text(self) -> str:
        return f"data source {self.target}"


class DataSourceSinkSpec(SinkFields):
    """A Python data source of PySpark's with a streamWriter, unchanged. A batch that was written when its
    task was killed is written again with the same rows and the same batchId."""

    model_config = ConfigDict(
        json_schema_extra=cel(("self.class == oldSelf.class", "a data source's class is fixed for life"))
    )

    planned: ClassVar[type[Sink]] = DataSourceSink

    class_: Annotated[Target, Field(alias="class")]
    """The class, such as my_sinks:Orders."""
    options: Options = Field(default_factory=dict)
    """What the class is made with; as in Spark, case does not matter in a name."""

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        named = _named(body)
        return named and NamedCode(named.field, named.target, named.role, named.options, writes=True)

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> DataSourceSink:
        return DataSourceSink(name, self.class_, _planned(self.options), feeders)


def _named(body: Mapping[str, Any]) -> NamedCode | None:
    target, options = body.get("class"), body.get("options")
    if not isinstance(target, str):
        return None
    given = options.items() if isinstance(options, dict) else ()
    return NamedCode("class", target, DATA_SOURCE, {str(k): v for k, v in given if isinstance(v, str)})


def _planned(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.items()))
