"""How the twin tells watermarks: what a shard has reached waits for what is in its outbox."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataflow.partitions import operator_of
from penstock.store.lives import life_of
from penstock.store.memory.node import ShardRecord
from penstock.store.memory.topology import MemoryTopology
from penstock.store.port import Watermark, WatermarkFact
from penstock.store.watermark_rule import UNKNOWN, told_by_operators, told_by_shards

VERSIONS_A_START = 1 << 32
"""The versions that a start of a store has for itself."""
STARTS_A_LIFE = 1 << 13
"""The starts, of all stores that had it, that a life of a shard has for itself."""


class MemoryTelling(MemoryTopology):
    """What commits and deliveries do about watermarks, and what is known of them."""

    def _take_fact(self, fact: WatermarkFact) -> None:
        """A fact that comes from elsewhere: counts when it is newer than what is known."""
        facts = self._data.facts.setdefault(operator_of(fact.shard), {})
        known = facts.get(fact.shard)
        if known is None or _order(fact) > _order(known):
            facts[fact.shard] = fact
            self._data.listed = True
            self._ring_listeners(operator_of(fact.shard))

    def _tell(self, shard: str, record: ShardRecord, told: Watermark) -> None:
        # above all that an earlier start of this store told, of which it may have lost the last
        # or that was told in an earlier life
        starts = life_of(record.epoch) * STARTS_A_LIFE + self._node.generation
        record.told_version = max(record.told_version, starts * VERSIONS_A_START) + 1
        record.told = told
        facts = self._data.facts.setdefault(operator_of(shard), {})
        facts[shard] = WatermarkFact(shard, record.told_version, told)
        self._ring_listeners(operator_of(shard))

    def _tell_or_mark(self, shard: str, record: ShardRecord) -> None:
        """Tell what was reached, or note what that waits for."""
        if record.marked is not None or record.reached is None or record.reached == record.told:
            return
        waiting = {target: lane.issued for target, lane in record.lanes.items() if _waits(record, target)}
        if waiting:
            record.marked, record.marks = record.reached, waiting
        else:
            self._tell(shard, record, record.reached)

    def _tell_marked(self, shard: str, record: ShardRecord) -> None:
        """Tell what was marked when nothing is left that it waits for."""
        if record.marks or record.marked is None:
            return
        told, record.marked = record.marked, None
        self._tell(shard, record, told)
        self._tell_or_mark(shard, record)

    def _passed(self, shard: str, record: ShardRecord, target: str) -> None:
        """Entries of a pair have left the outbox for the target's inbox."""
        number = record.marks.get(target)
        waiting = record.lanes[target].waiting
        if record.marked is None or number is None or (waiting and waiting[0].number <= number):
            return
        del record.marks[target]
        # A shard that is stopped for a move goes on where it is taken up.
        if not record.is_away:
            self._tell_marked(shard, record)

    def _reach(self, shard: str, record: ShardRecord, *, is_idle: bool) -> None:
        """The shard has its watermark; whether it is as far depends on its timers."""
        taken_ms = record.watermark_ms
        if not record.source and any(due_ms < (taken_ms or 0) for due_ms in record.timers.values()):
            return
        record.reached = Watermark(taken_ms, is_idle) if taken_ms is not None or is_idle else None
        self._tell_or_mark(shard, record)

    def _resume_telling(self, shard: str, record: ShardRecord) -> None:
        """A shard that has come, or is taken up again."""
        if record.told is not None:
            self._take_fact(WatermarkFact(shard, record.told_version, record.told))
        if record.marked is not None:
            self._tell_marked(shard, record)
        else:
            self._tell_or_mark(shard, record)

    def _input_watermark(self, producers: Sequence[str], keyed: Sequence[str]) -> Watermark:
        """The watermark of a stage that these operators feed, of which those of `keyed` are keyed."""
        told = []
        for operator in producers:
            facts = self._data.facts.get(operator, {})
            schedule = self._data.schedules.get(operator)
            if schedule is None or not schedule.shards or not schedule.shards.keys() <= facts.keys():
                return UNKNOWN
            told.append(told_by_shards((fact.watermark for fact in facts.values()), keyed=operator in keyed))
        return told_by_operators(told)


def take_watermark(record: ShardRecord, ms: int | None) -> None:
    """The watermark that an owner says its shard has taken; it never goes back."""
    if ms and (record.watermark_ms is None or ms > record.watermark_ms):
        record.watermark_ms = ms


def _order(fact: WatermarkFact) -> tuple[int, int, bool]:
    return fact.version, fact.watermark.ms or 0, fact.watermark.is_idle


def _waits(record: ShardRecord, target: str) -> bool:
    lane = record.lanes[target]
    return bool(lane.waiting) and not lane.external
