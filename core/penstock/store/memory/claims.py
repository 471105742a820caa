"""The twin's part about shards: their making, and who owns them."""

from __future__ import annotations

import math

from penstock.store.lives import LIFE
from penstock.store.memory.moving import MemoryMoving
from penstock.store.memory.node import Readiness, ShardRecord, TopologyData
from penstock.store.memory.queues import wait_in_line
from penstock.store.memory.topology import Handlers, enrolled_incarnation, not_here
from penstock.store.port import Answer, Claim, Claimed, Create, ExternalCursor, Moved, Reopen, ShardStatus

_HERE = (ShardStatus.COPYING, ShardStatus.ACTIVE, ShardStatus.FROZEN)


class MemoryClaims(MemoryMoving):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Create: self._create, Reopen: self._reopen, Claim: self._claim}, reads={})

    def _create(self, call: Create) -> Answer:
        data = self._data
        if data.retracted:
            return Answer.UNKNOWN
        old = data.shards.get(call.shard)
        if old is not None:
            is_here = old.status in _HERE
            if is_here or old.epoch >= call.life * LIFE:
                return Answer.EXISTS
            if not self._clear_some(call.shard, old):
                return Answer.BUSY
        record = ShardRecord(call.source, call.position, call.table_version)
        record.epoch = call.life * LIFE
        if old is not None:
            record.waiters = old.waiters
        data.shards[call.shard] = record
        data.listed = True
        # What waited for a shard that was not here is local from now on.
        for producer, target in [pair for pair in data.outgoing if pair[1] == call.shard]:
            del data.outgoing[producer, target]
            wait_in_line(producer, call.shard, record)
        self._pull_waiters(call.shard, record)
        return Answer.OK

    def _reopen(self, call: Reopen) -> Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        if not record.source or not record.finished:
            return Answer.DONE
        record.finished = False
        if record.readiness is Readiness.IDLE:
            self._enlist(call.shard, record)
        return Answer.OK

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        data = self._data
        record = data.shards.get(call.shard)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        if not _entitled(data, call):
            return Answer.STALE
        self._unlist(call.shard, record)
        record.epoch += 1
        record.owner = call.owner
        record.readiness = Readiness.IDLE
        record.inbox_limit_bytes = record.outbox_limit_bytes = math.inf
        if record.has_work():
            self._enlist(call.shard, record)
        if not record.source:
            self._look_when_due(call.shard, record)
        return Claimed(
            epoch=record.epoch,
            generation=self._node.generation,
            commit=record.commit,
            offset=record.offset,
            position=record.position,
            table_version=record.table_version,
            external={
                target: ExternalCursor(lane.issued, lane.acknowledged, lane.position, lane.intent)
                for target, lane in record.lanes.items()
                if lane.external
            },
            finished=record.finished,
            within=record.within,
            counts=record.counts,
            watermark_ms=record.watermark_ms,
        )


def _entitled(data: TopologyData, claim: Claim) -> bool:
    """Whether the maps give the shard to this executor, worker start and version."""
    schedule = data.schedules.get(claim.shard.split("/", 1)[0])
    if schedule is None or schedule.version > claim.version:
        return False
    executor = claim.owner.executor
    planned, _ = schedule.shards.get(claim.shard, ("", ""))
    if executor not in {planned, data.leaving.get(claim.shard)}:
        return False
    place = schedule.place_of(executor)
    return place is not None and enrolled_incarnation(data, place[0]) == claim.owner.incarnation
