"""Faults of the protocol that the simulation must catch, each a part of a run with one thing done wrong.

`BUGS` names them; those of tasks, of workers and of moves have modules of their own. Nothing in the product
can be switched to behave so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from penstock.store.memory.node import Budget, Readiness, ShardRecord, Waiting
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Answer,
    Append,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    Moved,
)
from penstock_simulation.protocol.node import SimulatedNode
from penstock_simulation.protocol.world import Parts
from planted.planted_agent_bugs import AGENT_BUGS
from planted.planted_initial_bugs import INITIAL_BUGS, JOIN_BUGS
from planted.planted_move_bugs import MOVE_BUGS
from planted.planted_table_bugs import TABLE_BUGS
from planted.planted_task_bugs import TASK_BUGS
from planted.planted_time_bugs import TIME_BUGS
from planted.planted_worker_bugs import WORKER_BUGS

A = TypeVar("A")


class ClockNumbers(MemoryStore):
    """Inbox entries are numbered by the producer's clock instead of the shard's own counter."""

    def _put(self, target: str, there: ShardRecord, producer: str, entry: Waiting) -> None:
        there.placed = entry.placed_us
        super()._put(target, there, producer, entry)


class NoCommitNumber(MemoryStore):
    """A commit carries no number: one that comes twice is applied twice."""

    def _commit(self, call: Commit) -> Answer:
        record = self._data.shards[call.shard]
        return super()._commit(structs.replace(call, number=record.commit + 1))


class EqualEpoch(MemoryStore):
    """A claim does not raise the epoch: the owner before is not fenced."""

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        answer = super()._claim(call)
        record = self._data.shards[call.shard]
        if isinstance(answer, Claimed) and record.epoch > 1:
            record.epoch -= 1
            return replace(answer, epoch=record.epoch)
        return answer


class NoDuplicateRemoval(MemoryStore):
    """An append that comes again is taken again."""

    def _append(self, call: Append) -> Answer | Moved:
        record = self._data.shards[call.target]
        last = record.taken_from.get(call.producer, 0)
        if call.number <= last and record.has_room(len(call.payload), self._bounds):
            entry = Waiting(call.number, call.placed_us, call.rows, call.payload)
            self._put(call.target, record, call.producer, entry)
            record.taken_from[call.producer] = last
            return Answer.OK
        return super()._append(call)


class ForgetfulClaim(MemoryStore):
    """A claim does not list a shard that the owner before had taken off its list."""

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        record = self._data.shards[call.shard]
        was_taken = record.readiness is Readiness.TAKEN
        answer = super()._claim(call)
        if isinstance(answer, Claimed) and was_taken and record.readiness is Readiness.QUEUED:
            self._data.ready[call.owner.ready].remove(call.shard)
            record.readiness = Readiness.TAKEN
        return answer


class TrimByLength(MemoryStore):
    """A commit trims the inbox to the length that it had at the fetch, less what was worked on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lengths: dict[str, int] = {}

    def _fetch(self, call: Fetch) -> Fetched:
        fetched = super()._fetch(call)
        for one in fetched.shards:
            self._lengths[one.shard] = len(self._data.shards[one.shard].inbox)
        return fetched

    def _commit(self, call: Commit) -> Answer:
        record = self._data.shards[call.shard]
        consumed = sum(entry.number <= call.offset for entry in record.inbox)
        kept = self._lengths.get(call.shard, len(record.inbox)) - consumed
        answer = super()._commit(call)
        if answer is Answer.OK and consumed:
            while len(record.inbox) > kept:
                entry = record.inbox.popleft()
                record.inbox_bytes -= len(entry.payload)
                record.offset = entry.number
        return answer


class WaitingOvertaken(MemoryStore):
    """Of two entries of a pair that wait for room the younger one comes in first. Nothing is lost by that."""

    def _move(
        self, producer: str, source: ShardRecord, target: str, there: ShardRecord, budget: Budget
    ) -> bool:
        waiting = source.lanes[target].waiting
        if len(waiting) > 1 and waiting[0].number > there.taken_from.get(producer, 0):
            first, second = waiting[0], waiting[1]
            waiting[0] = second._replace(number=first.number)
            waiting[1] = first._replace(number=second.number)
        return super()._move(producer, source, target, there, budget)


class EverySecond(SimulatedNode):
    """A store that rejoins by itself without the last calls that it had acknowledged."""

    def kept_length(self) -> int:
        return max(0, super().kept_length() - int(self._rng.random() * 6))


class TimersUnfenced(MemoryStore):
    """The timers of a commit change also when it is another's: an old owner takes away what it has fired."""

    def _commit(self, call: Commit) -> Answer:
        answer = super()._commit(call)
        if answer is Answer.FENCED:
            record = self._data.shards[call.shard]
            for timer in call.timers:
                if timer.due_ms is None:
                    record.timers.pop(timer.name, None)
        return answer


class TimersForgottenByClaim(MemoryStore):
    """A claim does not tell the new owner's list of the shard's timers."""

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        looks = dict(self._data.due.get(call.owner.ready, {}))
        answer = super()._claim(call)
        self._data.due[call.owner.ready] = looks
        return answer


class RefusesWhenFull(MemoryStore):
    """A full store takes nothing from others, whatever is in the inbox."""

    def _append(self, call: Append) -> Answer | Moved:
        return Answer.BUSY if call.pressed else super()._append(call)


BUGS = (
    {
        "a full store takes nothing": Parts(store=RefusesWhenFull, pressure=True),
        "inbox numbers by the clock": Parts(store=ClockNumbers),
        "no commit number": Parts(store=NoCommitNumber),
        "claim at an equal epoch": Parts(store=EqualEpoch),
        "no duplicate removal in append": Parts(store=NoDuplicateRemoval),
        "everysec rejoin": Parts(node=EverySecond),
        "claim forgets a taken shard": Parts(store=ForgetfulClaim),
        "trim by length": Parts(store=TrimByLength),
        "overtaken while it waits": Parts(store=WaitingOvertaken),
        "a timer taken away by an old owner": Parts(store=TimersUnfenced),
        "timers that a claim forgets": Parts(store=TimersForgottenByClaim),
    }
    | TASK_BUGS
    | WORKER_BUGS
    | AGENT_BUGS
    | MOVE_BUGS
    | TIME_BUGS
    | INITIAL_BUGS
    | JOIN_BUGS
    | TABLE_BUGS
)
