"""Base of every manifest model, and the scalar types they share: names, durations, quantities.

A scalar knows its pattern (for the CRD), and in words what is expected (for the faults' messages, under
the schema key `EXPECTED`, which never reaches a CRD). Neighbours: `topology`, `latency_sla`,
`schedule` build on it, `structural` turns models into OpenAPI schemas, `faults` words the errors.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

API_GROUP = "penstock.dev"
API_VERSION = "penstock.dev/v1alpha1"
SHARDS_MAX = 4096
EXPECTED = "x-expected"
"""Schema key that says in words what a value should be."""

ApiVersion = Literal["penstock.dev/v1alpha1"]


class Document(BaseModel):
    """A part of a manifest: immutable, camelCase outside, unknown fields refused, nothing coerced."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


def cel(*rules: tuple[str, str]) -> dict[str, Any]:
    """Schema extra: CEL rules (rule, message) that the API server checks."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


def fixed(*fields: str) -> str:
    """The CEL rule that optional `fields` stay as they are."""
    return " && ".join(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in fields
    )


def atomic_list(maximum: int, minimum: int = 0) -> Any:
    """Field of a bounded list; a list replaces the one before it whole."""
    return Field(max_length=maximum, min_length=minimum, strict=False)


def keyed_list(maximum: int, key: str, minimum: int = 0) -> Any:
    """Field of a bounded list whose entries are told apart by `key` (CEL compares old and new by it)."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return Field(max_length=maximum, min_length=minimum, strict=False, json_schema_extra=extra)


# --- names -----------------------------------------------------------------------------------

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_LENGTH_MAX = 40
"""Topology and operator names: two of them with a number still make a pod's name."""

Name = Annotated[
    str,
    StringConstraints(pattern=_LABEL, min_length=1, max_length=NAME_LENGTH_MAX),
    Field(
        json_schema_extra={
            EXPECTED: f"a name of at most {NAME_LENGTH_MAX} small letters, digits and '-', "
            "with a letter or digit at both ends"
        }
    ),
]
ObjectName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253),
    Field(json_schema_extra={EXPECTED: "a name of small letters, digits, '-' and '.'"}),
]
Target = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=253),
    Field(json_schema_extra={EXPECTED: "'module:name', such as word_count:split"}),
]
ModuleName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=253),
    Field(json_schema_extra={EXPECTED: "a Python module's name, such as word_count"}),
]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Ddl = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    Field(json_schema_extra={EXPECTED: "columns in Spark's DDL, such as 'word string, total bigint'"}),
]

ARGUMENTS_MAX = 64
_ArgumentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Arguments = Annotated[
    dict[_ArgumentName, JsonValue],
    Field(max_length=ARGUMENTS_MAX),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": ARGUMENTS_MAX,
            "x-kubernetes-preserve-unknown-fields": True,
            EXPECTED: "an object of named arguments, such as {least: 5, names: [a, b]}",
        }
    ),
]
"""Plain values by name, as YAML has them, for code to be called with."""

# --- durations -------------------------------------------------------------------------------

_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_DURATION = r"^([0-9]+(\.[0-9]+)?(us|ms|s|m|h))+$"
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)")


def duration_us(text: str) -> int:
    """Microseconds of a duration such as 250ms, 1.5s or 1m30s. ValueError for anything else."""
    if not re.fullmatch(_DURATION[1:-1], text):
        raise ValueError(f"{text!r} is not a duration such as 250ms, 1.5s or 1m30s")
    return int(sum(Decimal(n) * _UNIT_US[unit] for n, unit in _DURATION_PART.findall(text)))


def _positive(text: str) -> str:
    if duration_us(text) <= 0:
        raise ValueError("must be longer than 0")
    return text


Duration = Annotated[
    str,
    StringConstraints(pattern=_DURATION, min_length=2, max_length=32),
    Field(json_schema_extra={EXPECTED: "a duration such as 500us, 250ms or 1.5s"}),
]
PositiveDuration = Annotated[
    Duration,
    AfterValidator(_positive),
    Field(
        json_schema_extra={
            EXPECTED: "a duration above 0 such as 250ms or 1.5s",
            **cel(("duration(self) > duration('0s')", "must be longer than 0")),
        }
    ),
]

# --- quantities ------------------------------------------------------------------------------

_CPU = r"^([0-9]+(\.[0-9]{1,3})?|[0-9]+m)$"
CPU_MILLIS_MAX = 1_024_000
_MEMORY = r"^[1-9][0-9]*(Ki|Mi|Gi|Ti)?$"
_MEMORY_UNIT = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
MEMORY_BYTES_MIN = 256 << 20
STORE_MEMORY_BYTES_MIN = 16 << 20


def cpu_millis(text: str) -> int:
    """Thousandths of a core of a quantity such as 2, 0.5 or 200m. ValueError for anything else."""
    if not re.fullmatch(_CPU[1:-1], text):
        raise ValueError(f"{text!r} is not a number of cores such as 2, '0.5' or 200m")
    return int(text[:-1]) if text.endswith("m") else int(Decimal(text) * 1000)


def memory_bytes(text: str) -> int:
    """Bytes of a quantity such as 512Mi or 2Gi. ValueError for anything else."""
    match = re.fullmatch(r"([1-9][0-9]*)(Ki|Mi|Gi|Ti)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory such as 512Mi or 2Gi")
    return int(match[1]) * _MEMORY_UNIT[match[2] or ""]


def _cpu_text(value: object) -> object:
    """Cores may be written as a number; inside they are text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _cpu_in_bounds(text: str) -> str:
    if not 0 < cpu_millis(text) <= CPU_MILLIS_MAX:
        raise ValueError(f"must be from 1m to {CPU_MILLIS_MAX // 1000} cores")
    return text


def _memory_in_bounds(text: str) -> str:
    if memory_bytes(text) < MEMORY_BYTES_MIN:
        raise ValueError("must be at least 256Mi: a worker holds a Spark session")
    return text


def _store_memory_in_bounds(text: str) -> str:
    if memory_bytes(text) < STORE_MEMORY_BYTES_MIN:
        raise ValueError("must be at least 16Mi: a store keeps inboxes and state in memory")
    return text


Cpu = Annotated[
    str,
    BeforeValidator(_cpu_text),
    AfterValidator(_cpu_in_bounds),
    StringConstraints(pattern=_CPU, max_length=16),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": _CPU,
            "maxLength": 16,
            EXPECTED: "a number of cores such as 2, '0.5' or 200m",
        }
    ),
]
Memory = Annotated[
    str,
    StringConstraints(pattern=_MEMORY, max_length=16),
    AfterValidator(_memory_in_bounds),
    Field(
        json_schema_extra={
            EXPECTED: "an amount of memory such as 512Mi or 2Gi",
            **cel(("quantity(self).compareTo(quantity('256Mi')) >= 0", "must be at least 256Mi")),
        }
    ),
]
StoreMemory = Annotated[
    str,
    StringConstraints(pattern=_MEMORY, max_length=16),
    AfterValidator(_store_memory_in_bounds),
    Field(
        json_schema_extra={
            EXPECTED: "an amount of memory such as 256Mi or 1Gi",
            **cel(("quantity(self).compareTo(quantity('16Mi')) >= 0", "must be at least 16Mi")),
        }
    ),
]
StorageSize = Annotated[
    str,
    StringConstraints(pattern=_MEMORY, max_length=16),
    Field(json_schema_extra={EXPECTED: "an amount of storage such as 500Mi or 10Gi"}),
]
