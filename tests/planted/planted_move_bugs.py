"""Faults of moves between stores that the simulation must catch; `planted_bugs` has the others."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from msgspec import structs

from penstock.store.memory.node import Budget, MoveNote, PublishedSchedule, ShardRecord
from penstock.store.memory.parts import TIMER
from penstock.store.memory.store import MemoryStore
from penstock.store.moving.mover import StoreOf
from penstock.store.moving.progress import MoveObstacle, MoveProgress
from penstock.store.port import (
    Answer,
    Append,
    Claim,
    Claimed,
    Commit,
    Moved,
    NodeStore,
    Request,
    ShardStatus,
    StoreUnreachable,
)
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Export,
    Install,
    Move,
    NextRound,
    Precopy,
    ReadMove,
    Thaw,
)
from penstock_operator.agent.moving import Mover
from penstock_operator.agent.store_side import DueMove
from penstock_simulation.protocol.hosted_agent import AgentParts
from penstock_simulation.protocol.node import SimulatedNode
from penstock_simulation.protocol.world import Parts

A = TypeVar("A")


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


class DepartsUnseen(Mover):
    """A driver that sends the rest of a move without looking whether the copy arrived."""

    def _step(self, move: DueMove, here: NodeStore, store_of: StoreOf, chunks_ahead_max: int) -> MoveProgress:
        progress = super()._step(move, here, store_of, chunks_ahead_max)
        target = store_of(move.home)
        if progress.obstacle is MoveObstacle.TARGET_UNREACHABLE and target is not None:
            with suppress(StoreUnreachable):
                state = here.call(ReadMove(move.shard))
                if state is not None and state.move is not None:
                    here.call(Depart(move.shard, state.move))
                    target.call(Activate(move.shard, state.move))
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
        super()._note_changes(record, structs.replace(commit, state=sets, timers=timers))


class WholeDropsNotNoted(MemoryStore):
    """A commit that drops a collection notes the fields that it writes into it only."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        fields = tuple(write for write in commit.state if write.field is not None)
        super()._note_changes(record, structs.replace(commit, state=fields))


class TimersLeftBehind(MemoryStore):
    """Timers do not move with their shard."""

    def _write_part(
        self, shard: str, record: ShardRecord, key: list[Any], values: list[Any], *, final: bool
    ) -> None:
        if key[0] != TIMER:
            super()._write_part(shard, record, key, values, final=final)


class TimersNotNoted(MemoryStore):
    """Timers are copied with the first round, and never again."""

    def _note_changes(self, record: ShardRecord, commit: Commit) -> None:
        super()._note_changes(record, structs.replace(commit, timers=()))


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


class RoundsComeAgain(MemoryStore):
    """No fault: a call for the next round comes once more, after each part of that round which is read, as a
    call that a network held up may."""

    late: NextRound | None = None

    def call(self, call: Request[A]) -> A:
        answer = super().call(call)
        if isinstance(call, NextRound):
            self.late = call
        elif isinstance(call, Export) and self.late is not None:
            super().call(self.late)
        return answer


class RoundTurnedTwice(RoundsComeAgain):
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


class NotesLostAtAClaim(MemoryStore):
    """What was noted while a shard is copied goes with its owner."""

    def _claim(self, call: Claim) -> Claimed | Answer | Moved:
        answer = super()._claim(call)
        record = self._data.shards.get(call.shard)
        if isinstance(answer, Claimed) and record is not None and record.status is ShardStatus.COPYING:
            cast("MoveNote", record.note).noted = {}
        return answer


class DroppedExecutorStops(MemoryStore):
    """An executor that a schedule drops has no shards from then on, whatever has not departed yet."""

    def _keep_what_leaves(self, old: PublishedSchedule, new: PublishedSchedule) -> None:
        super()._keep_what_leaves(old, new)
        new.keepers.clear()


class UnclaimedIsNobodys(MemoryStore):
    """A shard that is sent on before anybody has claimed it has no executor until it is there."""

    def _keeper_of(self, shard: str, old: PublishedSchedule, new: PublishedSchedule) -> str | None:
        record = self._data.shards.get(shard)
        if record is None or (record.owner is None and shard not in self._data.leaving):
            return None
        return super()._keeper_of(shard, old, new)


MOVE_BUGS = {
    "an install that is not durable": Parts(moves=True, node=InstallNotDurable),
    "an incomplete copy activated": Parts(
        moves=True, store=IncompleteCopyActivated, agent=AgentParts(mover=DepartsUnseen)
    ),
    "departed before the copy was seen": Parts(moves=True, agent=AgentParts(mover=DepartsUnseen)),
    "no token check": Parts(moves=True, store=NoToken),
    "installed over an old copy": Parts(moves=True, store=InstallOverOldCopy),
    "waiters forgotten": Parts(moves=True, store=WaitersForgotten),
    "appends while frozen": Parts(moves=True, store=AppendWhileFrozen),
    "epochs begin anew": Parts(moves=True, store=EpochBeginsAnew),
    "nothing wakes the target": Parts(moves=True, store=NothingWakesTheTarget),
    "deletions not noted": Parts(moves=True, store=DeletionsNotNoted),
    "whole drops not noted": Parts(moves=True, store=WholeDropsNotNoted),
    "timers not noted": Parts(moves=True, store=TimersNotNoted),
    "timers left behind": Parts(moves=True, store=TimersLeftBehind),
    "noted after the scan": Parts(moves=True, store=NotedAfterTheScan),
    "a round forgotten": Parts(moves=True, store=RoundForgotten),
    "a round turned twice": Parts(moves=True, store=RoundTurnedTwice),
    "the rest read before the freeze": Parts(moves=True, store=RestBeforeTheFreeze),
    "notes lost at a claim": Parts(moves=True, store=NotesLostAtAClaim),
    "a dropped executor stops": Parts(moves=True, store=DroppedExecutorStops),
    "an unclaimed shard is nobody's": Parts(moves=True, store=UnclaimedIsNobodys),
    "the same token again": Parts(moves=True, store=SameTokenAgain),
}
