"""Inboxes and outboxes: where an output goes, and what waits moves on."""

from __future__ import annotations

import math

from penstock.dataflow.partitions import operator_of
from penstock.store.lives import comes_next
from penstock.store.memory.node import Budget, Lane, Readiness, ShardRecord, Waiting
from penstock.store.memory.telling import MemoryTelling


class MemoryQueues(MemoryTelling):
    """What puts entries into queues, and moves those that wait for room."""

    def _place(self, producer: str, record: ShardRecord, target: str, lane: Lane, entry: Waiting) -> None:
        """Put a new output into its target's inbox, or else into the outbox, and say who fetches it there."""
        if lane.external:
            record.queue(lane, entry)
            return
        there = self._data.shards.get(target)
        if there is None or there.is_away:
            record.queue(lane, entry)
            self._data.outgoing[producer, target] = None
        elif comes_next(
            there.taken_from.get(producer, 0), entry.number, there.epoch, is_oldest=not lane.waiting
        ) and self._has_place(producer, target, there, len(entry.payload)):
            self._put(target, there, producer, entry)
        else:
            record.queue(lane, entry)
            if not is_key_state(producer, target):
                record.outbox_limit_bytes = min(record.outbox_limit_bytes, there.inbox_limit_bytes)
            wait_in_line(producer, target, there)

    def _has_place(self, producer: str, target: str, there: ShardRecord, size_bytes: int) -> bool:
        """Whether a producer of this node may put an entry into an inbox now."""
        return there.may_place(size_bytes, self._bounds) or is_key_state(producer, target)

    def _put(self, target: str, there: ShardRecord, producer: str, entry: Waiting) -> None:
        """Put an entry into an inbox and tell the owner."""
        there.put(producer, entry)
        if there.readiness is Readiness.IDLE:
            self._enlist(target, there)

    def _pull_waiters(self, shard: str, record: ShardRecord) -> None:
        """Take entries that wait in this node for room in this inbox, one producer after the other.

        A producer that still waits afterwards goes to the end of the line, so that none starves.
        """
        budget = Budget(self._bounds)
        for producer in list(record.waiters):
            source = self._data.shards[producer]
            emptied = self._move(producer, source, shard, record, budget)
            self._release(producer, source)
            if not emptied:
                break

    def _drain(self, shard: str, record: ShardRecord) -> None:
        """Move older entries of this outbox to the targets of this node that have room."""
        budget = Budget(self._bounds)
        for target, lane in record.lanes.items():
            if lane.waiting and not lane.external:
                there = self._data.shards.get(target)
                if there is not None and not there.is_away and self._has_place(shard, target, there, 0):
                    self._move(shard, record, target, there, budget)

    def _move(
        self, producer: str, source: ShardRecord, target: str, there: ShardRecord, budget: Budget
    ) -> bool:
        """Move a pair's waiting entries into the inbox while room and budget last.

        Answers whether none of them waits any more.
        """
        lane = source.lanes[target]
        while lane.waiting and budget.lasts():
            head = lane.waiting[0]
            if head.number > there.taken_from.get(producer, 0):
                if not self._has_place(producer, target, there, len(head.payload)):
                    break
                self._put(target, there, producer, head)
                budget.spend(head)
            source.unqueue(lane)
        there.waiters.pop(producer, None)
        if lane.waiting:
            wait_in_line(producer, target, there)
        else:
            self._data.outgoing.pop((producer, target), None)
            # what it was held for waits no more; its next commit tells whether another has as little room
            source.outbox_limit_bytes = math.inf
        self._passed(producer, source, target)
        return not lane.waiting


def is_key_state(producer: str, target: str) -> bool:
    """Whether what goes from one shard to another is the state of a key that changes its shard: no rows go
    between shards of one operator. It waits for no room, or two full shards could wait for each other's for
    ever."""
    return operator_of(producer) == operator_of(target)


def wait_in_line(producer: str, target: str, there: ShardRecord) -> None:
    """A pair's entries wait for room in an inbox of this node: behind all others, but for a key's state."""
    if is_key_state(producer, target):
        there.waiters = {producer: None, **there.waiters}
    else:
        there.waiters[producer] = None
