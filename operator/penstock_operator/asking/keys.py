"""The key that somebody gives on the command line, as the operator that has it knows it.

Neighbours: `asked_shards` asks about it, `cli.state` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.dataflow.partitions import shard_name
from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.routing import Router
from penstock.errors import PermanentError

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")


class KeyUnknown(PermanentError):
    """What was given is no key of the operator; the message says what is."""


def keyed_head(plan: Plan, operator: str) -> Processor:
    """The head of a keyed operator. Raises KeyUnknown."""
    heads = {stage.operator: stage.head for stage in plan.stages if isinstance(stage.head, Processor)}
    heads = {name: head for name, head in heads.items() if head.key_columns}
    if operator not in heads:
        raise KeyUnknown(f"no operator {operator!r} keeps state by key; there are {', '.join(heads)}")
    return heads[operator]


def key_of(head: Processor, texts: Sequence[str]) -> list[Any]:
    """A key's wire values, of a text for each of its columns. Raises KeyUnknown."""
    names = [head.input.names[column] for column in head.key_columns]
    types = head.key_types
    if len(texts) != len(types):
        columns = " ".join(f"{name}({type_})" for name, type_ in zip(names, types, strict=True))
        raise KeyUnknown(f"a key has {len(types)} values here, one for each column: {columns}")
    return [_value(name, type_, text) for name, type_, text in zip(names, types, texts, strict=True)]


def shard_of_key(operator: str, head: Processor, key: Sequence[Any]) -> str:
    """The shard that a key (wire values) is routed to by its hash."""
    types = head.key_types
    routed = tuple(
        Decimal(value) if type_.startswith("decimal") else value
        for value, type_ in zip(key, types, strict=True)
    )
    return shard_name(operator, str(Router(types, head.shards).route(routed)))


def _value(name: str, type_: str, text: str) -> Any:
    try:
        if type_ in _INTEGERS:
            return int(text)
        if type_ in _FLOATS:
            return float(text)
        if type_ == "boolean":
            return {"true": True, "false": False}[text]
        if type_.startswith("decimal"):
            return str(Decimal(text))
    except (ValueError, KeyError, InvalidOperation):
        raise KeyUnknown(f"{text!r} is no {type_} for column {name}") from None
    if type_ == "string":
        return text
    raise KeyUnknown(f"column {name} is a {type_}: keys of such columns can be listed, and not asked for")
