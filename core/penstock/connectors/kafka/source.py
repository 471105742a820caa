"""The kind of source `kafka`: records of topics, one shard for each partition.

The worker's `sources.kafka` reads them. Neighbours: `connection` is the cluster, `formats` what records hold,
`topics` finds partitions, `position` is how far one was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from penstock.connectors.kafka.connection import (
    KafkaClusterFields,
    KafkaConnection,
    TopicName,
    security_faults,
)
from penstock.connectors.kafka.formats import FormatSpec, KafkaFormat, format_faults, format_schema
from penstock.connectors.kafka.place import (
    EARLIEST,
    TOPICS_MAX,
    Instant,
    Place,
    Positions,
    planned_place,
    topic_faults,
)
from penstock.connectors.kafka.position import FIRST, KafkaPosition
from penstock.connectors.kafka.registry import KafkaRegistry, SchemaRegistrySpec, registry_faults
from penstock.connectors.kafka.rewind import Rewind, RewindSpec, rewind_faults, rewind_news
from penstock.connectors.kafka.topics import found_parts
from penstock.connectors.secrets import secrets_folder
from penstock.connectors.source import SourceFields
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.source import Source
from penstock.errors import PenstockError
from penstock.manifest.document import ColumnName, Document, atomic_list, cel, fixed
from penstock.manifest.faults import Fault, nearest, shown

METADATA: Mapping[str, str] = {
    "timestamp": "timestamp",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What a record has beside key and value, and the type of its column, as Spark's source has it."""


@dataclass(frozen=True, slots=True)
class KafkaSource(Source):
    """Records of `topics`, or of those whose name matches `pattern`."""

    kind: ClassVar[str] = "kafka"
    grows: ClassVar[bool] = True
    tells_lag: ClassVar[bool] = True
    refuses_input: ClassVar[bool] = True

    connection: KafkaConnection
    topics: tuple[str, ...]
    pattern: str | None
    value: KafkaFormat
    key: KafkaFormat | None = None
    registry: KafkaRegistry | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    """(what, name of its column), in the order of the columns."""
    start: Place = EARLIEST
    """Where partitions begin of which nothing was read."""
    rewind: Rewind | None = None
    on_lost: str = "Fail"
    isolation: str = "ReadCommitted"
    group: str | None = None
    """Where offsets are written to, for others to see; None: a name of the topology's own."""

    @property
    def schema(self) -> Schema:
        """Of its rows: columns of the value, of the key, metadata."""
        key = self.key.schema.columns if self.key is not None else ()
        more = tuple(Column(name, METADATA[what]) for what, name in self.metadata)
        return Schema((*self.value.schema.columns, *key, *more))

    def of_topology(self, topology: str, operator: str) -> KafkaSource:
        return replace(self, group=self.group or f"penstock.{topology}.{operator}")

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        """Asks the cluster. Raises RetryError while it does not answer."""
        return found_parts(self.connection, self.topics, self.pattern, secrets_folder(base_dir))

    @property
    def late_position(self) -> bytes:
        """A partition that was added is read from its first record: `Latest` is what was there at the
        start. Rewinds that were before it are no matter of it."""
        return KafkaPosition(FIRST, rewind=self.rewound).packed()

    @property
    def rewound(self) -> int:
        """The number of the rewind that partitions are to have; they begin with it."""
        return 0 if self.rewind is None else self.rewind.number

    def resume_news(self, positions: Mapping[str, bytes]) -> str:
        return "" if self.rewind is None else rewind_news(self.rewind, positions)

    def warnings(self, base_dir: Path) -> list[str]:
        try:
            self.parts(base_dir)
        except PenstockError as error:
            return [str(error)]
        return []

    def identity_text(self) -> str:
        return (
            f"topics like {self.pattern}" if self.pattern is not None else f"topics {', '.join(self.topics)}"
        )


def _as_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{shown(text)} is no regular expression: {error}") from None
    return text


class MetadataSpec(Document):
    """What a record has beside key and value; each field is the name of the column that it goes into."""

    timestamp: ColumnName | None = None
    """When the record was made, or written to its topic, as the topic says: a timestamp."""
    topic: ColumnName | None = None
    """A string."""
    partition: ColumnName | None = None
    """An int."""
    offset: ColumnName | None = None
    """A bigint."""
    headers: ColumnName | None = None
    """An array<struct<key: string, value: binary>>."""


class KafkaSourceSpec(KafkaClusterFields, SourceFields):
    """Records of Kafka's topics, each partition a shard of its own. Positions are kept with the state."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("has(self.topics) != has(self.topicPattern)", "exactly one of topics and topicPattern"),
            (f"{fixed('topics', 'topicPattern')}", "a source's topics are fixed for life"),
            (
                "!has(self.startingTimestamp) || self.startingOffsets != 'Latest'",
                "startingTimestamp and startingOffsets: Latest are both given; a source begins at one place",
            ),
            (
                "has(self.schemaRegistry) || !([self.value.format, has(self.key) ? self.key.format : '']"
                ".exists(format, format in ['avro', 'protobuf']))",
                "formats avro and protobuf need a schemaRegistry",
            ),
            (
                "has(self.rewind) || !has(oldSelf.rewind)",
                "a rewind stays in the manifest: by its number the next one is known; give another one a "
                "greater number",
            ),
            (
                f"self.value == oldSelf.value && {fixed('key', 'metadata')}",
                "a source's columns are fixed for life: rows of it wait in inboxes",
            ),
        )
    )

    planned: ClassVar[type[Source]] = KafkaSource

    topics: Annotated[tuple[TopicName, ...] | None, atomic_list(TOPICS_MAX, minimum=1)] = None
    """Which topics. Partitions that are added while it runs are found within 10 s."""
    topic_pattern: Annotated[
        str | None,
        AfterValidator(lambda text: text and _as_pattern(text)),
        Field(min_length=1, max_length=1024),
    ] = None
    """A regular expression that topics' whole names match; topics of Kafka's own are left out. Topics that
    are added while it runs are found as partitions are."""
    value: FormatSpec
    """What the records' values hold. A record without value has nulls in these columns."""
    key: FormatSpec | None = None
    """What the records' keys hold; without it they are no columns."""
    schema_registry: SchemaRegistrySpec | None = None
    """Where formats avro and protobuf have their schemas."""
    metadata: MetadataSpec | None = None
    """What else becomes columns."""
    starting_offsets: Literal["Earliest", "Latest"] = "Earliest"
    """Where a partition begins of which nothing was read yet: at its first record, or behind its last one."""
    starting_timestamp: Instant | None = None
    """Instead: at its first record of that time or later, and behind the last one where there is none."""
    starting_positions: Annotated[Positions | None, Field(max_length=TOPICS_MAX)] = None
    """Offsets at which partitions begin, by topic and number; others begin as is said above."""
    rewind: RewindSpec | None = None
    """Has partitions that were read before read on from another place, once for each number."""
    on_lost_offsets: Literal["Fail", "Earliest"] = "Fail"
    """When the next record is not there any more (retention passed by, the topic was made anew): fail, or go
    on with the first one that is there."""
    isolation: Literal["ReadCommitted", "ReadUncommitted"] = "ReadCommitted"
    """Whether records of transactions wait for the transaction, and are left out when it was aborted."""
    group: Annotated[str, Field(min_length=1, max_length=249)] | None = None
    """The consumer group that offsets are written to every few seconds, for others to see the lag; they are
    never read from there. Without it penstock.TOPOLOGY.OPERATOR."""

    @classmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        columns: list[Column] = []
        for what in ("value", "key"):
            given = body.get(what)
            if given is None and what == "key":
                continue
            schema = format_schema(given, what) if isinstance(given, Mapping) else None
            if schema is None:
                return None
            columns += schema.columns
        columns += [Column(name, METADATA[what]) for what, name in _metadata(body)]
        names = [column.name for column in columns]
        return Schema(tuple(columns)) if len(set(names)) == len(names) else None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        return [
            *security_faults(path, body),
            *registry_faults(path, body),
            *_topic_faults(path, body),
            *_start_faults(path, body),
            *rewind_faults(path, body),
            *(
                fault
                for what in ("value", "key")
                if isinstance(given := body.get(what), Mapping)
                for fault in format_faults(f"{path}.{what}", given)
            ),
            *_column_faults(path, body),
        ]

    @property
    def secret_names(self) -> tuple[str, ...]:
        registry = self.schema_registry.plan().secret if self.schema_registry is not None else None
        names = (*super().secret_names, *(() if registry is None else (registry,)))
        return tuple(dict.fromkeys(names))

    def plan(self) -> KafkaSource:
        metadata = self.metadata.model_dump(exclude_none=True) if self.metadata is not None else {}
        return KafkaSource(
            connection=self.connection(),
            topics=self.topics or (),
            pattern=self.topic_pattern,
            value=self.value.plan("value"),
            key=self.key.plan("key") if self.key is not None else None,
            registry=self.schema_registry.plan() if self.schema_registry is not None else None,
            metadata=tuple((what, metadata[what]) for what in METADATA if what in metadata),
            start=planned_place(self.starting_offsets, self.starting_timestamp, self.starting_positions),
            rewind=self.rewind.plan() if self.rewind is not None else None,
            on_lost=self.on_lost_offsets,
            isolation=self.isolation,
            group=self.group,
        )


def _metadata(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = body.get("metadata")
    if isinstance(given, Mapping):
        for what in METADATA:
            if isinstance(given.get(what), str):
                yield what, given[what]


def _topic_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    topics, pattern = body.get("topics"), body.get("topicPattern")
    if topics is not None and pattern is not None:
        return [Fault(f"{path}.topicPattern", "topics are given too; keep one of the two")]
    known = list(body)
    if (
        topics is None
        and pattern is None
        and not (nearest("topics", known) or nearest("topicPattern", known))
    ):
        return [Fault(f"{path}.topics", "is missing; give topics, such as [orders], or a topicPattern")]
    if isinstance(topics, list) and len(set(map(str, topics))) < len(topics):
        return [Fault(f"{path}.topics", "a topic is listed twice; name each once")]
    return []


def _start_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    if body.get("startingTimestamp") is not None and body.get("startingOffsets") == "Latest":
        message = "startingOffsets: Latest is given too; a source begins at one place: keep one of the two"
        return [Fault(f"{path}.startingTimestamp", message)]
    return topic_faults(f"{path}.startingPositions", body.get("startingPositions"), body.get("topics"))


def _column_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """Two columns of one name."""
    faults: list[Fault] = []
    taken: dict[str, str] = {}
    places: list[tuple[str, str]] = []
    for what in ("value", "key"):
        given = body.get(what)
        schema = format_schema(given, what) if isinstance(given, Mapping) else None
        places += [(name, what) for name in (schema.names if schema is not None else ())]
    places += [(name, f"metadata.{what}") for what, name in _metadata(body)]
    for name, place in places:
        if name in taken and taken[name] != place:
            message = f"{taken[name]} has a column {name!r} too; give another name"
            faults.append(Fault(f"{path}.{place}", message))
        taken.setdefault(name, place)
    return faults
