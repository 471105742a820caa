"""The twin's part about watermarks: how far what comes is, by what producers told."""

from __future__ import annotations

from penstock.store.memory.node import ShardRecord
from penstock.store.memory.telling import MemoryTelling, take_watermark
from penstock.store.memory.topology import Handlers
from penstock.store.port import (
    Advance,
    Advanced,
    Advancing,
    Answer,
    Listen,
    ReadFacts,
    ReadWatermark,
    TakeFacts,
    ToldOperators,
    Watermark,
    WatermarkFact,
)


class MemoryWatermarks(MemoryTelling):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={Advance: self._advance, Listen: self._listen, TakeFacts: self._take_facts},
            reads={
                ReadWatermark: self._read_watermark,
                ToldOperators: self._told_operators,
                ReadFacts: self._read_facts,
            },
        )

    def _read_watermark(self, call: ReadWatermark) -> Watermark:
        return self._input_watermark(call.producers, call.keyed)

    def _listen(self, call: Listen) -> bool:
        watermark = self._input_watermark(call.producers, call.keyed)
        if self._data.retracted or watermark != call.heard:
            return False
        looks = self._data.due.get(call.ready, {})
        if watermark.ms is not None and any(at_ms < watermark.ms for at_ms in looks.values()):
            return False
        for operator in call.producers:
            self._data.listening.setdefault(operator, set()).add(call.ready)
        return True

    def _advance(self, call: Advance) -> Advanced:
        watermark = self._input_watermark(call.producers, call.keyed)
        return Advanced(watermark, tuple(self._advance_one(shard, watermark) for shard in call.shards))

    def _advance_one(self, shard: Advancing, watermark: Watermark) -> Answer:
        record: ShardRecord | Answer = Answer.UNKNOWN
        if not self._data.retracted:
            record = self._check_owner(shard.shard, shard.generation, shard.epoch)
        if isinstance(record, Answer):
            return record
        if record.placed > record.offset:
            return Answer.BUSY
        take_watermark(record, watermark.ms)
        self._reach(shard.shard, record, is_idle=watermark.is_idle)
        return Answer.OK

    def _told_operators(self, _: ToldOperators) -> list[str]:
        return sorted(self._data.facts)

    def _read_facts(self, call: ReadFacts) -> list[WatermarkFact]:
        return sorted(self._data.facts.get(call.operator, {}).values())

    def _take_facts(self, call: TakeFacts) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        for fact in call.facts:
            self._take_fact(fact)
        return Answer.OK
