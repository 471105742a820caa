"""What a state variable is declared as, in words, and what a declaration may become.

State that was written under one schema is read under another one where Spark's own state does so in its Avro
encoding: fields may be added, removed and reordered, at any depth, and numbers may become wider. A field goes
by its name. Keys of maps stay as they are, and what shares no column with what was there is taken for a
mistake. Neighbours: the worker's `state.declared` compares what lies in a shard, `penstock run` what the code
declares before anything starts.
"""

from __future__ import annotations

import re

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.schema import Column
from penstock.dataflow.type_names import nested, split, struct_fields

VALUE, EXPIRING_VALUE = b"v", b"V"
LIST, EXPIRING_LIST = b"l", b"L"
MAP, EXPIRING_MAP = b"m", b"M"
"""Kinds of variables, without and with a time to live."""

Declared = tuple[bytes, tuple[str, ...]]
"""Kind, and the schemas as DDL: of a map keys and values, else one."""

_KINDS = {
    VALUE: "a value of",
    LIST: "a list of",
    MAP: "a map of",
    EXPIRING_VALUE: "a value, with a time to live, of",
    EXPIRING_LIST: "a list, with a time to live, of",
    EXPIRING_MAP: "a map, with a time to live, of",
}
_WORDS = re.compile(r"(a (?:value|list|map)(?:, with a time to live,)? of) \((.*)\)")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "float", "double"),
    "bigint": ("float", "double"),
    "float": ("double",),
}


def words(declared: Declared) -> str:
    """ "a map of (`k` string) to (`v` bigint)"."""
    kind, schemas = declared
    return f"{_KINDS.get(kind, kind.decode())} {' to '.join(f'({schema})' for schema in schemas)}"


def declared_in(text: str) -> Declared | None:
    """What `words` said so; None for what it never says."""
    match = _WORDS.fullmatch(text)
    kind = next((kind for kind, said in _KINDS.items() if match is not None and said == match[1]), None)
    if match is None or kind is None:
        return None
    if kind not in {MAP, EXPIRING_MAP}:
        return kind, (match[2],)
    keys, _, values = match[2].partition(") to (")
    return kind, (keys, values)


def may_become(before: Declared, now: Declared) -> bool:
    """Whether code that declares `now` may work on state that was declared as `before`."""
    if before == now:
        return True
    (kind, (*keys, value)), (kind_now, (*keys_now, value_now)) = before, now
    return kind == kind_now and keys == keys_now and reads(value, value_now)


def reads(before: str, now: str) -> bool:
    """Whether what was written under the DDL `before` can be read under `now`."""
    return _struct_reads(parse_schema(before).columns, parse_schema(now).columns)


def _struct_reads(before: tuple[Column, ...], now: tuple[Column, ...]) -> bool:
    types = {column.name: column.type for column in before}
    kept = [column for column in now if column.name in types]
    return bool(kept) and all(_type_reads(types[column.name], column.type) for column in kept)


def _type_reads(before: str, now: str) -> bool:
    if before == now or now in _WIDER.get(before, ()):
        return True
    (kind, inner), (kind_now, inner_now) = nested(before), nested(now)
    if not kind or kind != kind_now:
        return False
    if kind == "array":
        return _type_reads(inner, inner_now)
    if kind == "map":
        (key, value), (key_now, value_now) = split(inner), split(inner_now)
        return key == key_now and _type_reads(value, value_now)
    fields, fields_now = struct_fields(inner), struct_fields(inner_now)
    return _struct_reads(tuple(Column(*f) for f in fields), tuple(Column(*f) for f in fields_now))
