"""The sink of the kind `kafka`: rows become messages of a topic, exactly once or at least once.

Neighbours: `connection` says which cluster, the worker's `sinks.kafka` writes. Record 0038.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from penstock.connectors.kafka.connection import (
    KafkaClusterFields,
    KafkaConnection,
    TopicName,
    security_faults,
)
from penstock.connectors.sink import SinkFields
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.manifest.document import ColumnName, PositiveDuration, cel, duration_us
from penstock.manifest.faults import Fault, nearest

Deliver = Literal["ExactlyOnce", "AtLeastOnce"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_TEXTS = ("string", "binary")
_HEADERS = (
    "map<string,string>",
    "map<string,binary>",
    "array<struct<key:string,value:string>>",
    "array<struct<key:string,value:binary>>",
)
_KEYS = ("string", "binary", "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class KafkaSink(Sink):
    """Columns are named; None for those that nothing is taken from."""

    kind: ClassVar[str] = "kafka"

    name: str
    connection: KafkaConnection
    topic: str
    topic_column: str | None
    key_column: str | None
    value_column: str | None
    headers_column: str | None
    exactly_once: bool
    gather_us: int
    """A transaction has what so long a time brings."""
    compression: str

    def identity_text(self) -> str:
        """The topic keeps the numbers of its transactions."""
        return f"topic {self.topic}"


class KafkaSinkSpec(KafkaClusterFields, SinkFields):
    """Messages of a topic, one for each row."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.topic == oldSelf.topic", "a sink's topic is fixed for life"),
            (
                "!has(self.transactionInterval) || !has(self.deliver) || self.deliver == 'ExactlyOnce'",
                "only ExactlyOnce has transactions",
            ),
        )
    )

    planned: ClassVar[type[Sink]] = KafkaSink

    topic: TopicName
    """The topic, which has to be there. With topicColumn, that of the rows which name none."""
    topic_column: ColumnName | None = None
    """A string column: the topic of each row."""
    key_column: ColumnName | None = None
    """A string, binary or integer column: the message's key, from which Kafka's own partitioner, that of
    Java's clients, chooses the partition. Integers are written as text. Without it messages have no key."""
    value_column: ColumnName | None = None
    """A string or binary column: the message's value as it is; null is a tombstone. Without it the value is
    the row as a JSON object, without the columns of topic and headers."""
    headers_column: ColumnName | None = None
    """The message's headers: a map<string,string> or map<string,binary>, or an array<struct<key: string,
    value: binary>> as the source of this kind has them."""
    deliver: Deliver = "ExactlyOnce"
    """ExactlyOnce: in transactions, for readers of committed messages. AtLeastOnce: sooner, by an idempotent
    producer; after a fault a row may come twice."""
    transaction_interval: PositiveDuration | None = None
    """How long a transaction gathers, 100ms by default: about as long a row takes more, at the most."""
    compression: Compression = "none"
    """Of what is sent."""

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any], schema: Schema | None) -> list[Fault]:
        faults = security_faults(path, body)
        if body.get("deliver") == "AtLeastOnce" and body.get("transactionInterval") is not None:
            message = "AtLeastOnce has no transactions; leave it out, or give deliver: ExactlyOnce"
            faults.append(Fault(f"{path}.transactionInterval", message))
        if schema is None:
            return faults
        wanted = {
            "topicColumn": ("string",),
            "keyColumn": _KEYS,
            "valueColumn": _TEXTS,
            "headersColumn": _HEADERS,
        }
        for field, types in wanted.items():
            name = body.get(field)
            if not isinstance(name, str):
                continue
            if name not in schema.names:
                message = f"its input has no column {name!r}{nearest(name, schema.names)}"
                faults.append(Fault(f"{path}.{field}", message))
            elif (type_ := schema.columns[schema.names.index(name)].type) not in types:
                message = f"column {name!r} is {type_}; it has to be {' or '.join(types)}"
                faults.append(Fault(f"{path}.{field}", message))
        return faults

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> KafkaSink:
        exactly_once = self.deliver == "ExactlyOnce"
        interval_us = duration_us(self.transaction_interval or "100ms")
        return KafkaSink(
            name,
            self.connection(),
            self.topic,
            self.topic_column,
            self.key_column,
            self.value_column,
            self.headers_column,
            exactly_once,
            interval_us if exactly_once else 0,
            self.compression,
        )
