"""What a record's key or value holds: its format, and the columns that it stands for.

Neighbour: the worker's `sources.kafka.formats` decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.json_lines import unreadable
from penstock.dataflow.schema import Column, Schema
from penstock.manifest.document import ColumnName, Ddl, Document, cel
from penstock.manifest.faults import Fault, nearest

FormatName = Literal["bytes", "string", "json", "avro", "protobuf"]
WHOLE: Mapping[str, str] = {"bytes": "binary", "string": "string"}
"""Formats of one column, and its type."""
REGISTERED = frozenset({"avro", "protobuf"})
"""Formats whose schema is in a registry."""


@dataclass(frozen=True, slots=True)
class KafkaFormat:
    """What a plan holds of it: `schema` are its columns."""

    format: str
    schema: Schema


class FormatSpec(Document):
    """What a key or a value holds."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "(self.format in ['json', 'avro', 'protobuf']) == has(self.schema)",
                "formats json, avro and protobuf need a schema, and the others have none",
            ),
            (
                "self.format in ['bytes', 'string'] || !has(self.column)",
                "column names what formats bytes and string give; the others have a schema",
            ),
        )
    )

    format: FormatName
    """bytes: as they are. string: text in UTF-8. json: one JSON object. avro, protobuf: as the clients of a
    schema registry write them, with the schema's number in front; it is read from schemaRegistry."""
    columns: Annotated[Ddl | None, Field(alias="schema")] = None
    """The columns of json, avro and protobuf, in Spark's DDL; fields go by their names. One that is missing
    is null, one that is no column is passed over."""
    column: ColumnName | None = None
    """Name of the one column of bytes and string; without it `value`, or `key`."""

    def plan(self, column: str) -> KafkaFormat:
        schema = format_schema(self.model_dump(by_alias=True, exclude_none=True), column)
        if schema is None:
            raise ValueError(f"{self} has no schema: faults come first")
        return KafkaFormat(self.format, schema)


def format_schema(body: Mapping[str, Any], column: str) -> Schema | None:
    """Its columns, of the plain document; `column` is the one that names none. None where that is not
    clear."""
    name, ddl = body.get("format"), body.get("schema")
    if isinstance(name, str) and name in WHOLE:
        given = body.get("column") or column
        return Schema((Column(given, WHOLE[name]),)) if isinstance(given, str) else None
    if isinstance(ddl, str) and ddl:
        try:
            return parse_schema(ddl)
        except InvalidSchema:
            return None
    return None


def format_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between its fields."""
    name, ddl = body.get("format"), body.get("schema")
    if name in WHOLE:
        if ddl is not None:
            return [
                Fault(f"{path}.schema", f"format {name} has one column; leave it out, or give format: json")
            ]
        return []
    if name not in ("json", *REGISTERED):
        return []
    if body.get("column") is not None:
        return [Fault(f"{path}.column", f"format {name} has the columns of its schema; leave it out")]
    if ddl is None and not nearest("schema", list(body)):
        message = f"is missing; format {name} needs its columns, such as 'user string, amount bigint'"
        return [Fault(f"{path}.schema", message)]
    if isinstance(ddl, str) and ddl:
        try:
            schema = parse_schema(ddl)
        except InvalidSchema as error:
            return [Fault(f"{path}.schema", str(error))]
        unfit = unreadable(schema) if name == "json" else None
        return [] if unfit is None else [Fault(f"{path}.schema", unfit)]
    return []
