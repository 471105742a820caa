"""Avro and Protobuf as the clients of a schema registry write them: a number in front says which schema.

A schema is asked for once; the registry may be away afterwards. Fields go by their names: one that the
columns lack is passed over, one that the schema lacks is null. Neighbours: `formats` calls this,
`penstock.connectors.kafka.registry` has the settings.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from httpx2 import HTTPError

from penstock.connectors.kafka.formats import KafkaFormat
from penstock.connectors.kafka.registry import KafkaRegistry, registry_settings
from penstock.errors import PermanentError, RetryError
from penstock_worker.sources.kafka.bad_record import BadRecord
from penstock_worker.values.spark_types import spark_type
from penstock_worker.values.wire_values import Misfit, wire_type

Read = Callable[[bytes], Mapping[str, Any]]
"""What follows the schema's number, by field."""
_MAGIC = 0
_HEAD_BYTES = 5
_WRAPPED = "google.protobuf."
_SERVER_ERROR = 500


class Registered:
    """Decodes one format's records by their schemas."""

    def __init__(self, format_: KafkaFormat, registry: KafkaRegistry, secrets: Path) -> None:
        self._registry = registry
        try:
            self._client = SchemaRegistryClient(registry_settings(registry, secrets))
        except ValueError as error:
            raise PermanentError(f"schema registry {registry.url}: {error}") from error
        self._reader_of = _READERS[format_.format]
        self._readers: dict[int, Read] = {}
        self._columns = [
            (column.name, wire_type(spark_type(column.type)).to_wire) for column in format_.schema.columns
        ]

    def rows(self, given: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Raises BadRecord for the first that means nothing, RetryError while the registry is away."""
        return [self._row(place, one) for place, one in enumerate(given)]

    def _row(self, place: int, one: bytes) -> tuple[Any, ...]:
        if len(one) < _HEAD_BYTES or one[0] != _MAGIC:
            raise BadRecord(place, "has no schema's number in front: no client of a schema registry wrote it")
        number = int.from_bytes(one[1:_HEAD_BYTES], "big")
        read = self._readers.get(number)
        if read is None:
            read = self._readers[number] = self._reader(place, number)
        try:
            found = read(one[_HEAD_BYTES:])
        except (ValueError, EOFError, IndexError, KeyError, TypeError, DecodeError) as error:
            raise BadRecord(place, f"does not fit schema {number} that it names ({error})") from error
        row = []
        for name, to_wire in self._columns:
            value = found.get(name)
            try:
                row.append(None if value is None else to_wire(value))
            except Misfit as unfit:
                raise BadRecord(place, f"does not fit the columns: {name} {unfit}") from unfit
        return tuple(row)

    def _reader(self, place: int, number: int) -> Read:
        try:
            return self._reader_of(self._client, number)
        except SchemaRegistryError as error:
            if error.http_status_code >= _SERVER_ERROR:
                raise RetryError(f"schema registry {self._registry.url} fails: {error}") from error
            if error.http_status_code in (401, 403):
                raise PermanentError(
                    f"schema registry {self._registry.url} refuses the login; correct "
                    f"{f'Secret {self._registry.secret}' if self._registry.secret else 'its credentials'}"
                ) from error
            raise BadRecord(place, f"names schema {number}, which the registry does not have") from error
        except HTTPError as error:
            raise RetryError(f"schema registry {self._registry.url} does not answer: {error}") from error
        except (SchemaParseException, ValueError, TypeError, binascii.Error) as error:
            raise BadRecord(place, f"names schema {number}, which cannot be read ({error})") from error


# --- Avro ------------------------------------------------------------------------------------------


def _avro(client: SchemaRegistryClient, number: int) -> Read:
    schema = client.get_schema(number)
    named: dict[str, Any] = {}
    for reference in schema.references or ():
        _named(client, reference.subject or "", reference.version or 0, named)
    parsed = parse_schema(msgspec.json.decode(schema.schema_str or ""), named_schemas=named)

    def read(payload: bytes) -> Mapping[str, Any]:
        found = schemaless_reader(io.BytesIO(payload), parsed, None)
        if not isinstance(found, dict):
            raise TypeError("it is no record")
        return found

    return read


def _named(client: SchemaRegistryClient, subject: str, version: int, named: dict[str, Any]) -> None:
    """The schemas that one refers to, theirs first."""
    schema = client.get_version(subject, version).schema
    for reference in schema.references or ():
        _named(client, reference.subject or "", reference.version or 0, named)
    parse_schema(msgspec.json.decode(schema.schema_str or ""), named_schemas=named)


# --- Protobuf --------------------------------------------------------------------------------------


def _protobuf(client: SchemaRegistryClient, number: int) -> Read:
    pool = descriptor_pool.DescriptorPool()
    _add_own(pool)
    file = _add(client, client.get_schema(number, fmt="serialized"), f"schema-{number}.proto", pool)
    classes: dict[tuple[int, ...], Any] = {}

    def read(payload: bytes) -> Mapping[str, Any]:
        path, begin = _path(payload)
        message_class = classes.get(path)
        if message_class is None:
            message_class = classes[path] = GetMessageClass(_message(pool, file, path))
        message = message_class()
        message.ParseFromString(payload[begin:])
        return _fields(message)

    return read


def _add(
    client: SchemaRegistryClient, schema: RegisteredSchema, name: str, pool: descriptor_pool.DescriptorPool
) -> descriptor_pb2.FileDescriptorProto:
    """Its file and those that it imports, theirs first."""
    for reference in schema.references or ():
        other = client.get_version(reference.subject or "", reference.version or 0, fmt="serialized")
        _add(client, other.schema, reference.name or "", pool)
    file = descriptor_pb2.FileDescriptorProto.FromString(
        base64.b64decode(schema.schema_str or "", validate=True)
    )
    file.name = name
    pool.Add(file)
    return file


def _add_own(pool: descriptor_pool.DescriptorPool) -> None:
    """The types that every schema may import."""
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the file it is, outermost first, and where it begins. A lone 0 is the first one."""
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), at
    path = []
    for _ in range(count):
        index, at = _varint(payload, at)
        path.append(index)
    return tuple(path), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A signed number in zigzag, and where it ends."""
    value = shift = 0
    while True:
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _message(
    pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto, path: Sequence[int]
) -> Descriptor:
    message = file.message_type[path[0]]
    name = f"{file.package}.{message.name}" if file.package else message.name
    for index in path[1:]:
        message = message.nested_type[index]
        name += f".{message.name}"
    return pool.FindMessageTypeByName(name)


def _fields(message: Message) -> dict[str, Any]:
    """By name. A field that can say that it is not set, and is not, is null."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
            continue
        value = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            found[field.name] = {key: _value(of, one) for key, one in value.items()}
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return names[value].name if value in names else str(value)
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == f"{_WRAPPED}Timestamp":
        return value.ToDatetime(tzinfo=datetime.UTC)
    if name.startswith(_WRAPPED) and name.endswith("Value") and "value" in field.message_type.fields_by_name:
        return value.value
    return _fields(value)


_READERS: Mapping[str, Callable[[SchemaRegistryClient, int], Read]] = {"avro": _avro, "protobuf": _protobuf}
