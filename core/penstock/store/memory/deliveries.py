"""The twin's part between stores, and outside: entries come in, wait to go out, and are acknowledged."""

from __future__ import annotations

from penstock.store.lives import comes_next
from penstock.store.memory.node import Waiting
from penstock.store.memory.queues import MemoryQueues, is_key_state
from penstock.store.memory.topology import Handlers, not_here
from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Intend,
    Moved,
    Outgoing,
    OutgoingTargets,
    ReadOutbox,
    WaitOutgoing,
)


class MemoryDeliveries(MemoryQueues):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={Append: self._append, Acknowledge: self._acknowledge, Intend: self._intend},
            reads={
                Outgoing: self._outgoing,
                OutgoingTargets: self._outgoing_targets,
                WaitOutgoing: self._wait_outgoing,
                ReadOutbox: self._read_outbox,
            },
        )

    def _append(self, call: Append) -> Answer | Moved:
        record = self._data.shards.get(call.target)
        if record is None:
            return Answer.UNKNOWN
        if record.is_away:
            return not_here(record)
        last = record.taken_from.get(call.producer, 0)
        if call.number <= last:
            return Answer.DUP
        if not comes_next(last, call.number, record.epoch, is_oldest=call.is_oldest):
            return Answer.GAP
        if not record.has_room(len(call.payload), self._bounds) and not is_key_state(
            call.producer, call.target
        ):
            record.note_caller(call.producer, len(call.payload))
            return Answer.BUSY
        entry = Waiting(call.number, call.placed_us, call.rows, call.payload)
        self._put(call.target, record, call.producer, entry)
        record.note_called(call.producer, len(call.payload), self._bounds)
        return Answer.OK

    def _outgoing(self, call: Outgoing) -> list[tuple[str, str]]:
        if not call.targets:
            return list(self._data.outgoing)[: call.count]
        pairs: list[tuple[str, str]] = []
        for number, target in enumerate(call.targets):
            waiting = [pair for pair in self._data.outgoing if pair[1] == target]
            pairs += waiting[0 if number else call.skip :]
        return pairs[: call.count]

    def _outgoing_targets(self, _: OutgoingTargets) -> list[str]:
        return sorted({target for _, target in self._data.outgoing})

    def _wait_outgoing(self, _: WaitOutgoing) -> bool:
        return bool(self._data.outgoing)

    def _read_outbox(self, call: ReadOutbox) -> list[tuple[int, int, int, bytes]]:
        record = self._data.shards.get(call.producer)
        lane = record.lanes.get(call.target) if record else None
        answer: list[tuple[int, int, int, bytes]] = []
        used_bytes = 0
        for entry in lane.waiting if lane else ():
            if entry.number <= call.after:
                continue
            used_bytes += len(entry.payload)
            if answer and used_bytes > call.bytes_max:
                break
            answer.append((entry.number, entry.placed_us, entry.rows, entry.payload))
        return answer

    def _acknowledge(self, call: Acknowledge) -> Answer:
        record = self._data.shards.get(call.producer)
        lane = record.lanes.get(call.target) if record else None
        if record is None:
            return Answer.UNKNOWN
        if lane is None or call.number > lane.issued:
            return Answer.OK
        if lane.external and record.is_away:
            # The next owner writes the same bytes once more.
            return Answer.OK
        if lane.external and call.number > lane.acknowledged:
            lane.acknowledged = call.number
            lane.position = call.position
        is_news = bool(lane.waiting) and lane.waiting[0].number <= call.number
        while lane.waiting and lane.waiting[0].number <= call.number:
            record.unqueue(lane)
        if not lane.waiting:
            self._data.outgoing.pop((call.producer, call.target), None)
            if there := self._data.shards.get(call.target):
                there.waiters.pop(call.producer, None)
        if is_news:
            self._passed(call.producer, record, call.target)
            self._release(call.producer, record)
        return Answer.OK

    def _intend(self, call: Intend) -> Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        lane = record.lanes.get(call.target)
        if lane is None or not lane.external:
            return Answer.UNKNOWN
        lane.intent = call.intent
        return Answer.OK
