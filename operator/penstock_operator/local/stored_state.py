"""What a run's keyed operators keep, asked of a worker's process, which knows how state lies in a store.

Neighbours: `penstock_worker.state.stored_state` answers, `opened_store` opens the store, `cli.state`
shows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.routing import Router
from penstock.errors import PermanentError
from penstock.store.port import Measure, ReadGeneration
from penstock.store.state_question import ShardSeen, StateAnswer, StateQuestion
from penstock_operator.local.opened_store import OpenedStore

_ANSWER_S = 60
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")


class KeyUnknown(PermanentError):
    """What was given is no key of the operator; the message says what is."""


def keyed_head(plan: Plan, operator: str) -> Processor:
    """The head of a keyed operator. Raises KeyUnknown."""
    heads = {stage.operator: stage.head for stage in plan.stages if isinstance(stage.head, Processor)}
    heads = {name: head for name, head in heads.items() if head.batches_to is None}
    if operator not in heads:
        raise KeyUnknown(f"no operator {operator!r} keeps state by key; there are {', '.join(heads)}")
    return heads[operator]


def key_types(head: Processor) -> list[str]:
    return [head.input.columns[column].type for column in head.key_columns]


def key_of(head: Processor, texts: Sequence[str]) -> list[Any]:
    """A key's wire values, of a text for each of its columns. Raises KeyUnknown."""
    names = [head.input.names[column] for column in head.key_columns]
    types = key_types(head)
    if len(texts) != len(types):
        columns = " ".join(f"{name}({type_})" for name, type_ in zip(names, types, strict=True))
        raise KeyUnknown(f"a key has {len(types)} values here, one for each column: {columns}")
    return [_value(name, type_, text) for name, type_, text in zip(names, types, texts, strict=True)]


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


def state_of(opened: OpenedStore, operator: str, head: Processor, key: list[Any]) -> StateAnswer:
    """What an operator keeps of a key. Raises PermanentError."""
    types = key_types(head)
    routed = tuple(
        Decimal(value) if type_.startswith("decimal") else value
        for value, type_ in zip(key, types, strict=True)
    )
    shard = f"{operator}/{Router(types, head.shards).route(routed)}"
    return _asked(opened, [shard], types, key, 1)


def keys_of(opened: OpenedStore, operator: str, head: Processor, most: int) -> StateAnswer:
    """The keys that an operator keeps state of. Raises PermanentError."""
    return _asked(opened, list(opened.shards.get(operator, ())), key_types(head), None, most)


def _asked(
    opened: OpenedStore, shards: Sequence[str], types: list[str], key: list[Any] | None, most: int
) -> StateAnswer:
    generation = opened.store.call(ReadGeneration())
    counters = opened.store.call(Measure(tuple(shards)))
    seen = [
        ShardSeen(shard, generation, one.epoch)
        for shard, one in zip(shards, counters, strict=True)
        if one is not None
    ]
    now_ms = time.time_ns() // 1_000_000
    question = StateQuestion(opened.url, opened.topology_uid, seen, types, key, most, now_ms)
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_worker.state.stored_state"],
        input=msgspec.json.encode(question),
        capture_output=True,
        timeout=_ANSWER_S,
        check=False,
    )
    if ran.returncode:
        last = (ran.stderr.decode(errors="replace").strip() or "it wrote nothing").splitlines()[-1]
        raise PermanentError(f"the state could not be read: {last}")
    return msgspec.json.decode(ran.stdout, type=StateAnswer)
