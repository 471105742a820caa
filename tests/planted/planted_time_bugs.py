"""Faults of watermarks that the simulation must catch; `planted_bugs` has the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from penstock.store.memory.node import ShardRecord
from penstock.store.memory.parts import HEAD
from penstock.store.memory.store import MemoryStore
from penstock.store.memory.telling import operator_of
from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Advancing,
    Answer,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    FetchedShard,
    Moved,
    ShardStatus,
    Watermark,
    WatermarkFact,
)
from penstock_simulation.protocol.world import Parts
from penstock_worker.stages.event_time import InputTime
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.within import Decided
from penstock_worker.task.large_commit import Chunk, LargeCommits
from penstock_worker.task.loop import TaskLoop


class ToldAtOnce(MemoryStore):
    """A watermark is told although entries wait in the outbox."""

    def _tell_or_mark(self, shard: str, record: ShardRecord) -> None:
        if record.reached is not None and record.reached != record.told:
            self._tell(shard, record, record.reached)


class MarksLostInAMove(MemoryStore):
    """A shard that has moved tells what it reached, whatever of its outbox came along."""

    def _resume_telling(self, shard: str, record: ShardRecord) -> None:
        if record.reached is not None and record.reached != record.told:
            self._tell(shard, record, record.reached)


class ReachedBeforeItsTimers(MemoryStore):
    """A shard is as far as its watermark although timers before it have not fired."""

    def _reach(self, shard: str, record: ShardRecord, *, is_idle: bool) -> None:
        timers, record.timers = record.timers, {}
        super()._reach(shard, record, is_idle=is_idle)
        record.timers = timers


class LeavesOutWhoMoves(MemoryStore):
    """The watermark of a stage waits for the shards that are in this store, or known to be in another one."""

    def _input_watermark(self, producers: Sequence[str], keyed: Sequence[str]) -> Watermark:
        kept = self._data.facts
        away = {ShardStatus.FROZEN, ShardStatus.INSTALLING, ShardStatus.DEPARTED}
        shards = self._data.shards
        self._data.facts = {
            operator: {
                shard: fact._replace(watermark=fact.watermark._replace(is_idle=True))
                if shard in shards and shards[shard].status in away
                else fact
                for shard, fact in facts.items()
            }
            for operator, facts in kept.items()
        }
        try:
            return super()._input_watermark(producers, keyed)
        finally:
            self._data.facts = kept


class WaitsForNobodyUnknown(MemoryStore):
    """The watermark of a stage waits only for shards of which something is known."""

    def _input_watermark(self, producers: Sequence[str], keyed: Sequence[str]) -> Watermark:
        told = [
            fact.watermark
            for operator in {*producers, *keyed}
            for fact in self._data.facts.get(operator, {}).values()
        ]
        waited = [watermark.ms or 0 for watermark in told if not watermark.is_idle]
        if waited:
            return Watermark(min(waited))
        return Watermark(
            max((watermark.ms or 0 for watermark in told), default=0) or None, is_idle=bool(told)
        )


class IdleShardsLeftOut(MemoryStore):
    """A shard of a keyed stage that told that it was idle is not waited for, whatever came to it since."""

    def _input_watermark(self, producers: Sequence[str], keyed: Sequence[str]) -> Watermark:
        return super()._input_watermark(producers, ())


class ForgottenByAClaim(MemoryStore):
    """A claim forgets the watermark of the owner before."""

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        record = self._data.shards.get(call.shard)
        answer = super()._claim(call)
        if isinstance(answer, Claimed) and record is not None:
            record.watermark_ms = None
            return replace(answer, watermark_ms=None)
        return answer


class VersionsBeginAnew(MemoryStore):
    """A shard that has moved tells its watermarks in versions from the first one on."""

    def _write_part(
        self, shard: str, record: ShardRecord, key: list[Any], values: list[Any], *, final: bool
    ) -> None:
        super()._write_part(shard, record, key, values, final=final)
        if key[0] == HEAD:
            record.told_version = 0


class OldFactsTaken(MemoryStore):
    """A fact that comes late replaces a newer one."""

    def _take_fact(self, fact: WatermarkFact) -> None:
        self._data.facts.setdefault(operator_of(fact.shard), {})[fact.shard] = fact


class AdvancedByAnOldOwner(MemoryStore):
    """Whoever owned a shard once may have it take its watermark."""

    def _advance_one(self, shard: Advancing, watermark: Watermark) -> Answer:
        record = self._data.shards.get(shard.shard)
        if record is not None and record.placed == record.offset:
            status, record.status = record.status, ShardStatus.ACTIVE
            shard = shard._replace(epoch=record.epoch, generation=self._node.generation)
            answer = super()._advance_one(shard, watermark)
            record.status = status
            return answer
        return super()._advance_one(shard, watermark)


class AdvancedBeforeItsRows(MemoryStore):
    """A shard takes a watermark that came behind rows in its inbox."""

    def _advance_one(self, shard: Advancing, watermark: Watermark) -> Answer:
        record = self._data.shards.get(shard.shard)
        if record is None:
            return super()._advance_one(shard, watermark)
        placed, record.placed = record.placed, record.offset
        answer = super()._advance_one(shard, watermark)
        record.placed = placed
        return answer


class FiresBeforeItsRows(MemoryStore):
    """Timers fire by the watermark of the stage, although rows wait that came before it."""

    def _hand_out_due(self, call: Fetch, taken: list[FetchedShard], control: bool) -> Fetched:
        watermark = self._input_watermark(call.producers, call.keyed)
        records = [self._data.shards[one.shard] for one in taken]
        kept = [record.watermark_ms for record in records]
        for record in records:
            record.watermark_ms = watermark.ms
        fetched = super()._hand_out_due(call, taken, control)
        for record, own_ms in zip(records, kept, strict=True):
            record.watermark_ms = own_ms
        return fetched


class TakenAtOnce(InputTime):
    """What the store told with a fetch holds with the next commit, whatever had been placed by then."""

    def taken(self, owned: OwnedShard, offset: int) -> Watermark | None:
        return super().taken(owned, 1 << 60)


class TakesAtOnce(KeyedStage):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._time = TakenAtOnce()


class NeverAdvances(TaskLoop):
    """Shards without rows take no watermark."""

    def _advance(self, fetched: Fetched) -> None:
        pass


class _PartsWithoutWatermark(LargeCommits):
    def _decide(self, owned: OwnedShard, commit: Commit, chunks: Sequence[Chunk]) -> Decided:
        return super()._decide(owned, structs.replace(commit, watermark=None, tells=False), chunks)


class NotToldInParts(TaskLoop):
    """A commit in parts, which may fire the last timers before a watermark, does not tell that one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._large = _PartsWithoutWatermark(self._store, self._launch.bounds, self._clock)


TIME_BUGS = {
    name: replace(parts, moves=True, event_time=True)
    for name, parts in {
        "told although entries wait": Parts(store=ToldAtOnce),
        "marks lost in a move": Parts(store=MarksLostInAMove),
        "reached before its timers": Parts(store=ReachedBeforeItsTimers),
        "a shard that moves is left out": Parts(store=LeavesOutWhoMoves),
        "an unknown shard is left out": Parts(store=WaitsForNobodyUnknown),
        "an idle shard is left out": Parts(store=IdleShardsLeftOut),
        "a watermark that a claim forgets": Parts(store=ForgottenByAClaim),
        "versions begin anew": Parts(store=VersionsBeginAnew),
        "old facts taken": Parts(store=OldFactsTaken),
        "advanced by an old owner": Parts(store=AdvancedByAnOldOwner),
        "advanced before its rows": Parts(store=AdvancedBeforeItsRows),
        "timers fire before rows": Parts(store=FiresBeforeItsRows),
        "a watermark taken with the fetch": Parts(keyed=TakesAtOnce),
        "shards without rows do not advance": Parts(loop=NeverAdvances),
        "a commit in parts tells nothing": Parts(loop=NotToldInParts),
    }.items()
}
