"""Watermarks, and what producers told of them, as commands."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from penstock.store.port import (
    Advance,
    Advanced,
    Listen,
    ReadFacts,
    ReadWatermark,
    TakeFacts,
    ToldOperators,
    Watermark,
    WatermarkFact,
)
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import (
    ANSWERS,
    CallForm,
    PartsForm,
    RedisRole,
    answer,
    names,
    producer_names,
    unpacked_watermark,
    watermark,
)

_FACT = struct.Struct("<dd")

_LISTENS_SINCE = 10
"""The protocol's version."""
_FACTS_PER_COMMAND = 256
"""At about 8 microseconds each."""
_OPERATORS_MAX, _FACTS_MAX = 4096, 65_536
"""No more are read: a topology has 64 operators, and some thousand shards of each."""


class RedisWatermarks(RedisRole):
    """A part of `redis.calls`."""

    writes = ("advance", "listen", "take_facts")
    reads = ("read_watermark",)

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            ReadWatermark: CallForm(self._read_watermark, _read),
            Listen: CallForm(self._listen, self._listens),
            Advance: CallForm(self._advance, _advanced),
            ToldOperators: CallForm(self._told_operators, names),
            ReadFacts: CallForm(self._read_facts, _facts),
            TakeFacts: PartsForm(self._take_facts, _taken),
        }

    def _read_watermark(self, call: ReadWatermark) -> Command:
        return (*self._heads["read_watermark"], *producer_names(call.producers, call.keyed))

    def _listen(self, call: Listen) -> Command:
        producers = producer_names(call.producers, call.keyed)
        if self._version < _LISTENS_SINCE:
            return (*self._heads["read_watermark"], *producers)
        heard = call.heard
        told = "" if heard.ms is None else heard.ms
        return (*self._heads["listen"], call.ready, told, int(heard.is_idle), *producers)

    def _listens(self, _: Listen, reply: Any) -> bool:
        return self._version >= _LISTENS_SINCE and reply == 1

    def _advance(self, call: Advance) -> Command:
        shards = [part for shard in call.shards for part in shard]
        producers = producer_names(call.producers, call.keyed)
        return (*self._heads["advance"], len(producers), *producers, *shards)

    def _told_operators(self, _: ToldOperators) -> Command:
        return (b"SRANDMEMBER", self._keys.telling, _OPERATORS_MAX)

    def _read_facts(self, call: ReadFacts) -> Command:
        return (b"HRANDFIELD", self._keys.facts(call.operator), _FACTS_MAX, b"WITHVALUES")

    def _take_facts(self, call: TakeFacts) -> list[Command]:
        packed = [(fact.shard, _FACT.pack(fact.version, _value(fact.watermark))) for fact in call.facts]
        return [
            (*self._heads["take_facts"], *[part for fact in some for part in fact])
            for first in range(0, max(1, len(packed)), _FACTS_PER_COMMAND)
            for some in [packed[first : first + _FACTS_PER_COMMAND]]
        ]


def _value(told: Watermark) -> int:
    """As `watermarks.lua` has it."""
    return 2 * (told.ms or 0) + told.is_idle


def _read(_: ReadWatermark, reply: list[Any]) -> Watermark:
    return watermark(*reply)


def _advanced(_: Advance, reply: list[Any]) -> Advanced:
    return Advanced(watermark(*reply[:2]), tuple(ANSWERS[one] for one in reply[2:]))


def _facts(_: ReadFacts, reply: list[tuple[bytes, bytes]]) -> list[WatermarkFact]:
    facts = []
    for shard, packed in sorted(map(tuple, reply)):
        version, value = _FACT.unpack(packed)
        facts.append(WatermarkFact(shard.decode(), int(version), unpacked_watermark(int(value))))
    return facts


def _taken(call: TakeFacts, replies: list[Any]) -> Any:
    return answer(call, replies[-1])
