"""Faults of the protocol that the simulation must catch, each a part of a run with one thing done wrong.

`BUGS` names them. Nothing in the product can be switched to behave so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from penstock.simulation.protocol.moving import Drive
from penstock.simulation.protocol.node import BOUNDS, SimulatedNode
from penstock.simulation.protocol.task import Held, SimulatedTask
from penstock.simulation.protocol.workload import SINK
from penstock.simulation.protocol.world import Parts
from penstock.store.memory_node import Budget, MoveNote, Readiness, ShardRecord, Waiting
from penstock.store.memory_store import MemoryStore
from penstock.store.mover import MoveObstacle, MoveProgress, StoreOf, move_once
from penstock.store.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Install,
    Move,
    NextRound,
    Precopy,
    ReadMove,
    Thaw,
)
from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Claim,
    Claimed,
    Commit,
    Fetch,
    Fetched,
    Moved,
    NodeStore,
    Outgoing,
    ReadOutbox,
    Request,
    ShardCounters,
    ShardStatus,
    StoreUnreachable,
)
from penstock.store.stranding import StrandingWatch

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
        return super()._commit(replace(call, number=record.commit + 1))


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


class EverySecond(SimulatedNode):
    """A store that rejoins by itself without the last calls that it had acknowledged."""

    def kept_length(self) -> int:
        return max(0, super().kept_length() - int(self._rng.random() * 6))


class OutputsAgainOnDone(SimulatedTask):
    """DONE is taken for "not applied": the same work is committed under the next number."""

    def settle(self, held: Held, commit: Commit, answer: object) -> None:
        if answer is Answer.DONE:
            again = replace(commit, number=commit.number + 1)
            super().settle(held, again, self.link.call(again))
        else:
            super().settle(held, commit, answer)


class CachedStateAfterFenced(SimulatedTask):
    """After FENCED the shard is claimed again, and the same work is committed from the same cache."""

    def settle(self, held: Held, commit: Commit, answer: object) -> None:
        if answer is not Answer.FENCED:
            super().settle(held, commit, answer)
            return
        claimed = self.link.call(Claim(commit.shard, self.owner, self._version))
        if isinstance(claimed, Claimed):
            self.claimed(commit.shard, claimed)
            now_held = self.held[commit.shard]
            now_held.cache = held.cache
            again = replace(
                commit, number=claimed.commit + 1, epoch=claimed.epoch, generation=claimed.generation
            )
            super().settle(now_held, again, self.link.call(again))
        else:
            self.lost(commit.shard)


class NoLookForStranded(SimulatedTask):
    """A task never looks whether a call that came late took a shard off its list."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._watch = _BlindWatch(BOUNDS, source=False)


class _BlindWatch(StrandingWatch):
    def is_stranded(self, owned: OwnedShard, seen: ShardCounters | None, *, in_hand: bool) -> bool:
        return False


class SinkFromAnOldCursor(SimulatedTask):
    """What an earlier owner left for the sink is looked for behind the cursor that came with the claim,
    though that owner may have written and acknowledged it since."""

    def _catch_up(self, held: Held) -> None:
        waiting = self.link.call(ReadOutbox(held.owned.shard, SINK, 20))
        if not waiting:
            self._report(held, "the outbox lacks an entry")
        for number, _, _, payload in waiting:
            self._write(held, SINK, number, payload)


def acknowledge_first(
    source: NodeStore, home_of: Callable[[str], NodeStore | None], *, bytes_max: int
) -> None:
    """A sender that trims the outbox before the target has the entries."""
    for producer, target in source.call(Outgoing(100)):
        home = home_of(target)
        waiting = source.call(ReadOutbox(producer, target, bytes_max))
        if home is not None and waiting:
            source.call(Acknowledge(producer, target, waiting[-1][0]))
            home.pipeline([Append(producer, target, n, p, rows, us) for n, us, rows, p in waiting])


# --- moves between stores


class InstallNotDurable(SimulatedNode):
    """A store that answers an install before it would outlive a crash."""

    def kept_length(self) -> int:
        kept = super().kept_length()
        last = [type(call) for _, call in (self._memory.log or [])[:kept]][-6:]
        return kept - len(last) + last.index(Install) if Install in last else kept


class IncompleteCopyActivated(MemoryStore):
    """Whatever of a copy is there is activated: nobody waits for the rest of it."""

    def _activate(self, call: Activate) -> Answer:
        record = self._data.shards.get(call.shard)
        if record is not None and record.note is not None:
            record.note.complete = True
        return super()._activate(call)


def depart_unseen(
    source: NodeStore, store_of: StoreOf, shard: str, *, target_id: str, version: int, chunks_max: int
) -> MoveProgress:
    """A driver that sends the rest of a move without looking whether the copy arrived."""
    progress = move_once(source, store_of, shard, target_id=target_id, version=version, chunks_max=chunks_max)
    target = store_of(target_id)
    if progress.obstacle is MoveObstacle.TARGET_UNREACHABLE and target is not None:
        with suppress(StoreUnreachable):
            state = source.call(ReadMove(shard))
            if state is not None and state.move is not None:
                source.call(Depart(shard, state.move))
                target.call(Activate(shard, state.move))
    return progress


class NoToken(MemoryStore):
    """Calls of a move are taken for the move that the shard is in now, whichever they belong to."""

    def call(self, call: Request[A]) -> A:
        if isinstance(call, (Install, Depart, Activate, Thaw, Drop, Discard)):
            record = self._data.shards.get(call.shard)
            if record is not None and record.note is not None and record.status is not ShardStatus.MOVED:
                move = record.note.move
                if record.status is ShardStatus.FROZEN:
                    move = replace(move, generation=self._node.generation)
                call = cast("Request[A]", replace(call, move=move))
        return super().call(call)


class InstallOverOldCopy(MemoryStore):
    """A copy is begun over what an older one, or an earlier stay, left."""

    def _begin(self, shard: str, record: ShardRecord | None, move: Move) -> ShardRecord:
        begun = super()._begin(shard, record, move)
        cast("MoveNote", begun.note).clearing = False
        return begun


class WaitersForgotten(MemoryStore):
    """What waits for room in the inbox of a shard that leaves goes on waiting."""

    def _send_waiters_out(self, shard: str, record: ShardRecord) -> None:
        pass


class AppendWhileFrozen(MemoryStore):
    """A frozen shard takes entries, though it was copied."""

    def _append(self, call: Append) -> Answer | Moved:
        record = self._data.shards.get(call.target)
        if record is None or record.status is not ShardStatus.FROZEN:
            return super()._append(call)
        record.status = ShardStatus.ACTIVE
        answer = super()._append(call)
        record.status = ShardStatus.FROZEN
        return answer


class EpochBeginsAnew(MemoryStore):
    """The target mints epochs of its own, from the first one on."""

    def _activate(self, call: Activate) -> Answer:
        answer = super()._activate(call)
        if answer is Answer.OK:
            self._data.shards[call.shard].epoch = 1
        return answer


class NothingWakesTheTarget(MemoryStore):
    """A copied outbox waits for its targets in the new store to look, which they have no reason to."""

    def _move(
        self, producer: str, source: ShardRecord, target: str, there: ShardRecord, budget: Budget
    ) -> bool:
        if source.status is ShardStatus.INSTALLING:
            there.waiters[producer] = None
            return False
        return super()._move(producer, source, target, there, budget)


class DeletionsNotNoted(MemoryStore):
    """A commit notes what it sets, and not what it deletes."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        sets = tuple(write for write in commit.state if write.value is not None)
        timers = tuple(timer for timer in commit.timers if timer.due_ms is not None)
        super()._note_changes(record, replace(commit, state=sets, timers=timers))


class WholeDropsNotNoted(MemoryStore):
    """A commit that drops a collection notes the fields that it writes into it only."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        fields = tuple(write for write in commit.state if write.field is not None)
        super()._note_changes(record, replace(commit, state=fields))


class TimersNotNoted(MemoryStore):
    """Timers are copied with the first round, and never again."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        super()._note_changes(record, replace(commit, timers=()))


class NotedAfterTheScan(MemoryStore):
    """Noting begins when the first round has been copied."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        if record.note is not None and record.note.round > 1:
            super()._note_changes(record, commit)


class RoundForgotten(MemoryStore):
    """The next round begins with nothing: what was noted during the one before goes."""

    def _turn(self, note: MoveNote) -> None:
        super()._turn(note)
        note.changes = {}


class RoundTurnedTwice(MemoryStore):
    """A call for the next round begins one more each time that it comes, whatever was copied."""

    def _next_round(self, call: NextRound) -> Answer:
        answer = super()._next_round(call)
        record = self._data.shards.get(call.shard)
        if answer is Answer.DONE and record is not None and record.note is not None:
            record.note.changes, record.note.noted = record.note.noted, {}
        return answer


class RestBeforeTheFreeze(MemoryStore):
    """The rest is read while the owner still commits: it is stopped when the shard departs."""

    def _check_owner(self, shard: str, generation: int, epoch: int) -> ShardRecord | Answer:
        record = self._data.shards.get(shard)
        if record is not None and record.status is ShardStatus.FROZEN and epoch == record.epoch - 1:
            return record
        return super()._check_owner(shard, generation, epoch)


class SameTokenAgain(MemoryStore):
    """A second attempt to move has the token of the first one, which was given up."""

    def _precopy(self, call: Precopy) -> Move | Answer | Moved:
        record = self._data.shards.get(call.shard)
        if record is not None and record.status is ShardStatus.ACTIVE:
            record.note = None
        return super()._precopy(call)


BUGS = {
    "inbox numbers by the clock": Parts(store=ClockNumbers),
    "no commit number": Parts(store=NoCommitNumber),
    "claim at an equal epoch": Parts(store=EqualEpoch),
    "no duplicate removal in append": Parts(store=NoDuplicateRemoval),
    "everysec rejoin": Parts(node=EverySecond),
    "claim forgets a taken shard": Parts(store=ForgetfulClaim),
    "trim by length": Parts(store=TrimByLength),
    "outputs again on DONE": Parts(task=OutputsAgainOnDone),
    "cached state after FENCED": Parts(task=CachedStateAfterFenced),
    "no look for stranded shards": Parts(task=NoLookForStranded),
    "sink from an old cursor": Parts(task=SinkFromAnOldCursor),
    "acknowledged before it is delivered": Parts(deliver=acknowledge_first),
    "an install that is not durable": Parts(moves=True, node=InstallNotDurable),
    "an incomplete copy activated": Parts(
        moves=True, store=IncompleteCopyActivated, drive=Drive(move=depart_unseen)
    ),
    "departed before the copy was seen": Parts(moves=True, drive=Drive(move=depart_unseen)),
    "no token check": Parts(moves=True, store=NoToken),
    "installed over an old copy": Parts(moves=True, store=InstallOverOldCopy),
    "waiters forgotten": Parts(moves=True, store=WaitersForgotten),
    "appends while frozen": Parts(moves=True, store=AppendWhileFrozen),
    "epochs begin anew": Parts(moves=True, store=EpochBeginsAnew),
    "nothing wakes the target": Parts(moves=True, store=NothingWakesTheTarget),
    "deletions not noted": Parts(moves=True, store=DeletionsNotNoted),
    "whole drops not noted": Parts(moves=True, store=WholeDropsNotNoted),
    "timers not noted": Parts(moves=True, store=TimersNotNoted),
    "noted after the scan": Parts(moves=True, store=NotedAfterTheScan),
    "a round forgotten": Parts(moves=True, store=RoundForgotten),
    "a round turned twice": Parts(moves=True, store=RoundTurnedTwice),
    "the rest read before the freeze": Parts(moves=True, store=RestBeforeTheFreeze),
    "the same token again": Parts(moves=True, store=SameTokenAgain),
}
