"""The twin's part about commits."""

from __future__ import annotations

import math
from typing import cast

from penstock.store.memory.node import MoveNote, Readiness, ShardRecord, Waiting
from penstock.store.memory.parts import STATE, TIMER
from penstock.store.memory.queues import MemoryQueues
from penstock.store.memory.telling import take_watermark
from penstock.store.memory.topology import Handlers
from penstock.store.port import Answer, Commit, ShardStatus, StateWrite


class MemoryCommits(MemoryQueues):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(writes={Commit: self._commit}, reads={})

    def _commit(self, call: Commit) -> Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        if call.number == record.commit:
            return Answer.DONE
        if (
            call.number != record.commit + 1
            or call.table_version != record.table_version
            or call.offset > record.placed
        ):
            return Answer.CONFLICT
        _write_notes(record, call)
        if record.status is ShardStatus.COPYING:
            self._note_changes(record, call)
        _write_state(record, call)
        if call.timers:
            self._look_when_due(call.shard, record)
        worked = max(0, call.offset - record.offset)
        record.trim_inbox(call.offset, call.consumed_bytes, call.consumed_rows)
        if call.inbox_limit_bytes is not None:
            record.inbox_limit_bytes = call.inbox_limit_bytes or math.inf
        was_held = record.readiness is Readiness.HELD
        was_listed = record.readiness is Readiness.QUEUED and not call.in_hand
        if not call.in_hand:
            self._unlist(call.shard, record)
        # On no list while entries are moved about: what comes in does not list it before its turn.
        record.readiness = Readiness.TAKEN
        record.keep_for_callers(call.consumed_bytes, worked, self._bounds)
        self._pull_waiters(call.shard, record)
        self._drain(call.shard, record)
        record.outbox_limit_bytes = math.inf
        for output in call.outputs:
            lane = record.lane(output.target, output.external)
            lane.issued += 1
            entry = Waiting(lane.issued, call.now_us, output.rows, output.payload)
            self._place(call.shard, record, output.target, lane, entry)
        if call.watermark is not None and call.tells:
            self._reach(call.shard, record, is_idle=call.watermark.is_idle)
        if was_held:
            record.readiness = Readiness.HELD
            self._release(call.shard, record)
            return Answer.OK
        record.readiness = Readiness.IDLE
        comes_again = not record.source or call.again or was_listed
        if comes_again and record.has_work():
            self._enlist(call.shard, record)
        return Answer.OK

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        """What a commit is about to change of a shard that is being copied."""
        note = cast("MoveNote", record.note)
        for write in commit.state:
            names = record.state.get(write.collection, ()) if write.field is None else (write.field,)
            note.noted.update(dict.fromkeys((STATE, write.collection, name) for name in names))
        note.noted.update(dict.fromkeys((TIMER, timer.name) for timer in commit.timers))
        if len(note.noted) > self._bounds.noted_entries_max:
            record.stop_noting()


def _write_notes(record: ShardRecord, call: Commit) -> None:
    """What a commit says of the shard itself."""
    record.commit = call.number
    if call.position is not None:
        record.position = call.position
    if call.within is not None:
        record.within = call.within
    if call.counts is not None:
        record.counts = call.counts
    record.finished = record.finished or call.finished
    if call.watermark is not None:
        take_watermark(record, call.watermark.ms)


def _write_state(record: ShardRecord, call: Commit) -> None:
    for write in call.state:
        _write_field(record, write)
    for timer in call.timers:
        if timer.due_ms is None:
            record.timers.pop(timer.name, None)
        else:
            record.timers[timer.name] = timer.due_ms


def _write_field(record: ShardRecord, write: StateWrite) -> None:
    """One state change; a collection without fields is no collection."""
    if write.field is None:
        record.state.pop(write.collection, None)
        return
    collection = record.state.setdefault(write.collection, {})
    if write.value is None:
        collection.pop(write.field, None)
        if not collection:
            del record.state[write.collection]
    else:
        collection[write.field] = write.value
