"""Avro and Protobuf from Kafka, written by the clients of a schema registry."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from backends.kafka_broker import KafkaBroker
from backends.kafka_security import write_secret
from backends.schema_registry import SchemaRegistry
from penstock.errors import PermanentError
from scenes.kafka_reading import kafka_source, reading

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "amount", "type": ["null", "long"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "of", "type": {"type": "map", "values": "int"}},
        {"name": "unwanted", "type": "int", "default": 0},
    ],
}
COLUMNS = (
    "user string, amount bigint, at timestamp, price decimal(8,2), tags array<string>, of map<string,int>, "
    "later string"
)
AT = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
AT_US = int(AT.timestamp() * 1_000_000)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    started = SchemaRegistry()
    started.start()
    yield started
    started.stop()


def order(**changes: Any) -> dict[str, Any]:
    price = decimal.Decimal("12.50")
    return {
        "user": "Ann", "amount": 3, "at": AT, "price": price, "tags": ["a"], "of": {"x": 1}, **changes
    }  # fmt: skip


def produce_orders(kafka: KafkaBroker, registry: SchemaRegistry, topic: str, *orders: dict[str, Any]) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    serialize = AvroSerializer(client, json.dumps(ORDER))
    context = SerializationContext(topic, MessageField.VALUE)
    kafka.produce(topic, [serialize(one, context) for one in orders])


def avro(registry: SchemaRegistry, **more: Any) -> dict[str, Any]:
    return {
        "value": {"format": "avro", "schema": COLUMNS},
        "schemaRegistry": {"url": registry.url, **more},
    }


def test_avro_goes_into_columns_by_name_and_its_schema_is_asked_for_once(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka.fresh_topic()
    produce_orders(kafka, registry, topic, order(), order(amount=None, tags=[]))
    registry.asked.clear()
    with reading(kafka_source(kafka, topic, **avro(registry)), tmp_path) as read:
        assert [tuple(row) for row in read.until_rows(2)] == [
            ("Ann", 3, AT_US, "12.50", ["a"], [("x", 1)], None),
            ("Ann", None, AT_US, "12.50", [], [("x", 1)], None),
        ]
    assert len(registry.asked) == 1


def test_a_registry_that_is_away_is_waited_for(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka.fresh_topic()
    produce_orders(kafka, registry, topic, order())
    registry.stop()
    with reading(kafka_source(kafka, topic, **avro(registry)), tmp_path) as read:
        assert read.for_s(2) == []
        registry.start()
        assert len(read.until_rows(1)) == 1


def test_a_login_at_the_registry_comes_from_a_secret(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka.fresh_topic()
    produce_orders(kafka, registry, topic, order())
    registry._login = "me:word"
    with (
        reading(kafka_source(kafka, topic, **avro(registry)), tmp_path) as read,
        pytest.raises(PermanentError, match="refuses the login"),
    ):
        read.until_rows(1)
    write_secret(tmp_path / "secrets" / "registry", {"username": "me", "password": "word"})
    source = kafka_source(kafka, topic, **avro(registry, credentials={"secret": "registry"}))
    with reading(source, tmp_path) as read:
        assert len(read.until_rows(1)) == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"plain", "has no schema's number in front"),
        (b"\0\0\0\0\x63xyz", "names schema 99, which the registry does not have"),
        (b"\0\0\0\0\x01", "does not fit schema 1 that it names"),
    ],
)
def test_a_record_that_no_registered_client_wrote_is_named(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry, value: bytes, says: str
) -> None:
    topic = kafka.fresh_topic()
    produce_orders(kafka, registry, topic, order())
    kafka.produce(topic, [value])
    with (
        reading(kafka_source(kafka, topic, **avro(registry)), tmp_path) as read,
        pytest.raises(PermanentError, match=f"topic {topic}, partition 0, offset 1: the value {says}"),
    ):
        read.until_rows(2)


def test_columns_that_do_not_fit_the_schema_are_named(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka.fresh_topic()
    produce_orders(kafka, registry, topic, order())
    fields = {**avro(registry), "value": {"format": "avro", "schema": "user bigint"}}
    with (
        reading(kafka_source(kafka, topic, **fields), tmp_path) as read,
        pytest.raises(PermanentError, match="the value does not fit the columns: user expects bigint"),
    ):
        read.until_rows(1)


def payment_class() -> Any:
    """message Outer { message Payment { user, amount (optional), at, tags, of, kind, place } } without
    protoc."""
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="payment.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="CASH", number=0)
    kind.value.add(name="CARD", number=1)
    file.message_type.add(name="Place").field.add(name="city", number=1, type=of.TYPE_STRING, label=1)
    outer = file.message_type.add(name="Outer")
    payment = outer.nested_type.add(name="Payment")
    payment.oneof_decl.add(name="_amount")
    payment.field.add(name="user", number=1, type=of.TYPE_STRING, label=1)
    payment.field.add(
        name="amount", number=2, type=of.TYPE_INT64, label=1, oneof_index=0, proto3_optional=True
    )
    payment.field.add(
        name="at", number=3, type=of.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp"
    )
    payment.field.add(name="tags", number=4, type=of.TYPE_STRING, label=3)
    payment.field.add(name="kind", number=5, type=of.TYPE_ENUM, label=1, type_name=".shop.Kind")
    payment.field.add(name="place", number=6, type=of.TYPE_MESSAGE, label=1, type_name=".shop.Place")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Payment"))


def test_protobuf_goes_into_columns_by_name(
    kafka: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka.fresh_topic()
    payment = payment_class()
    first = payment(user="Ann", amount=3, tags=["a", "b"], kind=1)
    first.at.FromDatetime(AT)
    first.place.city = "Ulm"
    client = SchemaRegistryClient({"url": registry.url})
    serialize = ProtobufSerializer(
        payment, client, {"use.deprecated.format": False, "skip.known.types": True}
    )
    context = SerializationContext(topic, MessageField.VALUE)
    kafka.produce(topic, [serialize(first, context), serialize(payment(user="Bob"), context)])
    schema = (
        "user string, amount bigint, at timestamp, tags array<string>, kind string, place struct<city:string>"
    )
    fields = {"value": {"format": "protobuf", "schema": schema}, "schemaRegistry": {"url": registry.url}}
    with reading(kafka_source(kafka, topic, **fields), tmp_path) as read:
        assert read.until_rows(2) == [
            ("Ann", 3, AT_US, ["a", "b"], "CARD", ("Ulm",)),
            ("Bob", None, None, [], "CASH", None),
        ]
