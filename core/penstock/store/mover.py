"""Drives moves of shards between two stores: a bounded part of one move at a time, from what the stores say.

Nothing is remembered between two calls: each begins by asking both stores how far the move is, so any
driver may die at any step and any other go on, two at once too. Whoever drives (the node agent of the
source, the simulation) owns the clock: a call never waits, it answers what stands in the way. Neighbours:
`moves` has the calls and why they are safe, `sender` delivers what waits for a shard that moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from penstock.store.moves import (
    Activate,
    Chunk,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Install,
    Installed,
    Move,
    MoveState,
    NextRound,
    Precopy,
    ReadMove,
    Round,
    Thaw,
)
from penstock.store.port import Answer, Moved, NodeStore, Request, ShardStatus, StoreFull, StoreUnreachable

A = TypeVar("A")

ROUNDS_MIN = 2
"""The first round does not copy inbox and outbox: they would be others by its end."""
ROUNDS_MAX = 10
SHRINKS_BY = 0.7
"""A round must leave fewer changes than it copied, times this; else more rounds would not help."""

StoreOf = Callable[[str], NodeStore | None]
"""Store id -> the store, None when unknown."""


class MoveStep(StrEnum):
    """What a move has to do next."""

    PRECOPY = "PRECOPY"
    """The owner works on."""
    COPY = "COPY"
    """It is frozen, and the rest is copied."""
    DEPART = "DEPART"
    ACTIVATE = "ACTIVATE"
    DROP = "DROP"
    DONE = "DONE"
    """Nothing: the shard is at the target, and no copy of it at the source."""
    THAW = "THAW"
    DISCARD = "DISCARD"
    BACK = "BACK"
    """Nothing: the shard is active at the source, and no copy of it at the target."""


class MoveObstacle(StrEnum):
    """Why a move did not go on; try again later."""

    SOURCE_UNREACHABLE = "SOURCE_UNREACHABLE"
    TARGET_UNREACHABLE = "TARGET_UNREACHABLE"
    FULL = "FULL"
    """A store is at its limit of memory or disk."""
    UNKNOWN = "UNKNOWN"
    """A store has no record of the shard, or the topology is retracted there."""
    STALE = "STALE"
    """The source's map has a newer schedule, or another home for the shard."""
    INSTALLING = "INSTALLING"
    """The shard is still on its way to the source itself."""
    NO_SUCH_STORE = "NO_SUCH_STORE"
    """The look-up does not know the store at the move's other end."""
    REFUSED = "REFUSED"
    """The target does not take this move: it holds the shard, or a newer move's copy."""
    ALIVE = "ALIVE"
    """Nothing to tidy: the move goes on."""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move is after one call. `target` is the store that it is bound for ("" when unknown);
    `copied_bytes` were copied by this call, `paused_bytes` of them in `paused_chunks` while the shard stood
    still; `round` is the pre-copy's. Without an obstacle and not at an end, go on at once."""

    shard: str
    step: MoveStep
    target: str = ""
    copied_bytes: int = 0
    paused_bytes: int = 0
    paused_chunks: int = 0
    round: int = 0
    obstacle: MoveObstacle | None = None

    @property
    def is_over(self) -> bool:
        return self.step is MoveStep.DONE or self.step is MoveStep.BACK


class MoveKind(StrEnum):
    """What a store's agent has to do about a shard."""

    MOVE = "MOVE"
    """`move_once` to the shard's home, or to the store that it departed for."""
    BACK = "BACK"
    """`go_back_once`."""
    TIDY = "TIDY"
    """`tidy_once`: a copy here is perhaps of a dead move."""


def move_once(
    source: NodeStore, store_of: StoreOf, shard: str, *, target_id: str, version: int, chunks_max: int = 16
) -> MoveProgress:
    """Take a shard's move from `source` to the store `target_id` a part further.

    `version` is that of the schedule that says so, as it is published in `source`. Copies, or drops, at most
    `chunks_max` chunks. A move that departed for another store before is brought to its end there. A lost or
    refused call is an obstacle; raises ProtocolMismatch only.
    """
    wanted = Precopy(shard, target_id, version)
    return _carry_out(shard, lambda sight: _move(sight, _source(source), store_of, wanted, chunks_max))


def go_back_once(source: NodeStore, store_of: StoreOf, shard: str, *, chunks_max: int = 16) -> MoveProgress:
    """Take back a move of a shard that `source` copies or has frozen: thaw it, drop the target's copy.

    A move that has departed is not taken back: the step is ACTIVATE then, for `move_once`. A copy that could
    not be dropped is left to `tidy_once`.
    """
    return _carry_out(shard, lambda sight: _go_back(sight, _source(source), store_of, chunks_max))


def let_go_once(source: NodeStore, shard: str) -> MoveProgress:
    """Give up a move whose target cannot be had: `source` notes nothing more, and the shard's owner may work.

    The copy is left to `tidy_once`, or to the next move. A move that has departed is left alone (ACTIVATE).
    """
    return _carry_out(shard, lambda sight: _let_go(sight, _source(source)))


def tidy_once(target: NodeStore, store_of: StoreOf, shard: str, *, chunks_max: int = 16) -> MoveProgress:
    """Drop the copy that `target` has of a move, if the source that this move names says that it is dead."""
    return _carry_out(shard, lambda sight: _tidy(sight, _target(target), store_of, chunks_max))


def moves_due(
    store_id: str, homes: Mapping[str, str], statuses: Mapping[str, ShardStatus]
) -> dict[str, MoveKind]:
    """What the agent of a store has to do: shard -> kind, for the shards that need something.

    `homes` is shard -> store id by the newest schedule published here, `statuses` of the records in this
    store.
    """
    due = {}
    for shard, status in statuses.items():
        home = homes.get(shard, store_id)
        if status is ShardStatus.DEPARTED or (status is ShardStatus.ACTIVE and home != store_id):
            due[shard] = MoveKind.MOVE
        elif status is ShardStatus.COPYING or status is ShardStatus.FROZEN:
            due[shard] = MoveKind.BACK if home == store_id else MoveKind.MOVE
        elif status is ShardStatus.INSTALLING and home != store_id:
            due[shard] = MoveKind.TIDY
    return due


class _Blocked(Exception):
    """Something stands in the way of a move."""

    def __init__(self, obstacle: MoveObstacle) -> None:
        super().__init__(obstacle)
        self.obstacle = obstacle


class _Overtaken(Exception):
    """Somebody else took the move further, or back: look again."""


@dataclass(slots=True)
class _Sight:
    """How far a move is, as the driver sees it while it goes on."""

    shard: str
    step: MoveStep = MoveStep.PRECOPY
    target: str = ""
    copied_bytes: int = 0
    paused_bytes: int = 0
    paused_chunks: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class _End:
    """One of the two stores of a move; what it does not carry out is an obstacle."""

    store: NodeStore
    unreachable: MoveObstacle

    def call(self, call: Request[A]) -> A:
        try:
            return self.store.call(call)
        except StoreUnreachable as error:
            raise _Blocked(self.unreachable) from error
        except StoreFull as error:
            raise _Blocked(MoveObstacle.FULL) from error

    def state(self, shard: str) -> MoveState | None:
        return self.call(ReadMove(shard))


def _source(store: NodeStore | None) -> _End:
    return _end(store, MoveObstacle.SOURCE_UNREACHABLE)


def _target(store: NodeStore | None) -> _End:
    return _end(store, MoveObstacle.TARGET_UNREACHABLE)


def _end(store: NodeStore | None, unreachable: MoveObstacle) -> _End:
    if store is None:
        raise _Blocked(MoveObstacle.NO_SUCH_STORE)
    return _End(store, unreachable)


def _carry_out(shard: str, go_on: Callable[[_Sight], None]) -> MoveProgress:
    sight = _Sight(shard)
    obstacle = None
    try:
        go_on(sight)
    except _Blocked as blocked:
        obstacle = blocked.obstacle
    except _Overtaken:
        pass
    return MoveProgress(
        shard,
        sight.step,
        sight.target,
        sight.copied_bytes,
        sight.paused_bytes,
        sight.paused_chunks,
        sight.round,
        obstacle,
    )


def _move(sight: _Sight, source: _End, store_of: StoreOf, wanted: Precopy, chunks_max: int) -> None:
    state = source.state(sight.shard)
    if state is None:
        raise _Blocked(MoveObstacle.UNKNOWN)
    if state.status is ShardStatus.INSTALLING:
        raise _Blocked(MoveObstacle.INSTALLING)
    if state.move is not None and state.status in {ShardStatus.DEPARTED, ShardStatus.MOVED}:
        move = state.move
        sight.target = move.target
        sight.step = MoveStep.ACTIVATE if state.status is ShardStatus.DEPARTED else MoveStep.DONE
    else:
        sight.target = wanted.target
        target = _target(store_of(wanted.target))
        # The target is asked before anything begins: nothing is noted while there is nowhere to go.
        there = target.state(sight.shard)
        if state.move is not None and state.status is ShardStatus.FROZEN:
            move = state.move
            if not _goes_on(state, there, wanted):
                # What was copied cannot be gone on with. The owner works while it is copied anew.
                source.call(Thaw(sight.shard, move))
                raise _Overtaken
            sight.step = MoveStep.COPY
        else:
            move = _begun(source.call(wanted))
        copy = _Copy(sight, source, target, move, _held(there, move))
        if state.move == move and state.round is not None and copy.installed.rounds < state.round.number - 1:
            # The target has lost what it had.
            source.call(Thaw(sight.shard, move))
            raise _Overtaken
        if sight.step is MoveStep.PRECOPY:
            copy.rounds(state.round if state.move == move else None, wanted.version, chunks_max)
        if sight.step is MoveStep.COPY:
            copy.rest(chunks_max)
        if sight.step is MoveStep.DEPART:
            _depart(sight, source, move)
    if sight.step is MoveStep.ACTIVATE:
        _activate(sight, _target(store_of(move.target)), move)
        _clear(sight, source, Drop(sight.shard, move), chunks_max, MoveStep.DONE)


def _goes_on(here: MoveState, there: MoveState | None, wanted: Precopy) -> bool:
    """Whether the rest of a frozen shard fits what the target has."""
    move = here.move
    return (
        move is not None
        and move.target == wanted.target
        and move.generation == here.generation
        and there is not None
        and there.move == move
        and there.installed is not None
    )


def _begun(answer: Move | Answer | Moved) -> Move:
    if isinstance(answer, Move):
        return answer
    if isinstance(answer, Moved) or answer is Answer.MOVING:
        raise _Overtaken
    raise _Blocked(MoveObstacle.STALE if answer is Answer.STALE else MoveObstacle.UNKNOWN)


def _held(there: MoveState | None, move: Move) -> Installed:
    if there is not None and there.installed is not None and there.move == move:
        return there.installed
    return Installed(0, b"", complete=False)


def _is_little(at: Round) -> bool:
    """Whether the shard may be stopped at the end of this round: little is left, or it does not shrink."""
    if at.number < ROUNDS_MIN:
        return False
    return at.noted_fits or at.number >= ROUNDS_MAX or (at.number > 2 and at.noted > SHRINKS_BY * at.changes)


@dataclass(slots=True)
class _Copy:
    """The copy of a shard, chunk by chunk; `installed` is what the target said last."""

    sight: _Sight
    source: _End
    target: _End
    move: Move
    installed: Installed
    chunk: Chunk | None = None

    def rounds(self, at: Round | None, version: int, chunks_max: int) -> None:
        """Go on with the pre-copy, `at` this round (None: not begun); the step is COPY when it is frozen."""
        shard, move, source = self.sight.shard, self.move, self.source
        at = at or Round(0, 0, 0, noted_fits=False)
        left = chunks_max
        while True:
            self.sight.round = at.number
            if self.installed.rounds == at.number and self.chunk is None:
                if _is_little(at):
                    self.chunk = _exported(source.call(Freeze(shard, move, version, self.installed.resume)))
                    self.sight.step = MoveStep.COPY
                    return
                answer = source.call(NextRound(shard, move, self.installed.resume))
                if answer is not Answer.OK and answer is not Answer.DONE:
                    raise _Overtaken
                at = Round(at.number + 1, at.noted, 0, noted_fits=False)
            elif left == 0:
                return
            else:
                left -= 1
                self._one_more()
                if self.installed.rounds == at.number:
                    at = self._look()

    def _look(self) -> Round:
        state = self.source.state(self.sight.shard)
        if state is None or state.move != self.move or state.round is None:
            raise _Overtaken
        return state.round

    def rest(self, chunks_max: int) -> None:
        """Copy what is left of a frozen shard; the step is DEPART when the target says that it has all."""
        for _ in range(chunks_max):
            if self.installed.complete:
                break
            before = self.sight.copied_bytes
            self._one_more()
            self.sight.paused_bytes += self.sight.copied_bytes - before
            self.sight.paused_chunks += 1
        if self.installed.complete:
            self.sight.step = MoveStep.DEPART

    def _one_more(self) -> None:
        """A chunk more; the same one again while the target clears what it had before."""
        shard, move = self.sight.shard, self.move
        if self.chunk is None:
            self.chunk = _exported(self.source.call(Export(shard, move, self.installed.resume)))
        before = self.installed
        self.installed = _taken(self.target.call(Install(shard, move, before.chunks + 1, self.chunk)))
        if self.installed != before:
            self.sight.copied_bytes += len(self.chunk.payload)
            self.chunk = None


def _exported(answer: Chunk | Answer | Moved) -> Chunk:
    if not isinstance(answer, Chunk):
        raise _Overtaken
    return answer


def _taken(answer: Installed | Answer) -> Installed:
    if isinstance(answer, Answer):
        raise _Blocked(MoveObstacle.REFUSED if answer is Answer.STALE else MoveObstacle.UNKNOWN)
    return answer


def _depart(sight: _Sight, source: _End, move: Move) -> None:
    answer = source.call(Depart(sight.shard, move))
    if answer is not Answer.OK and answer is not Answer.DONE:
        sight.step = MoveStep.PRECOPY
        raise _Overtaken
    sight.step = MoveStep.ACTIVATE


def _activate(sight: _Sight, target: _End, move: Move) -> None:
    answer = target.call(Activate(sight.shard, move))
    if answer is not Answer.OK and answer is not Answer.DONE:
        raise _Blocked(MoveObstacle.REFUSED)
    sight.step = MoveStep.DROP


def _clear(sight: _Sight, end: _End, call: Drop | Discard, calls_max: int, over: MoveStep) -> None:
    """Repeat a call that drops some of a copy each time."""
    for _ in range(calls_max):
        answer = end.call(call)
        if answer is not Answer.MORE:
            # STALE: somebody else has done it, and the shard is elsewhere by now
            sight.step = over
            return


def _let_go(sight: _Sight, source: _End) -> None:
    sight.step = MoveStep.THAW
    state = source.state(sight.shard)
    if state is not None and state.move is not None and state.status is not ShardStatus.INSTALLING:
        sight.target = state.move.target
        if isinstance(source.call(Thaw(sight.shard, state.move)), Moved):
            sight.step = MoveStep.ACTIVATE
            return
    sight.step = MoveStep.BACK


def _go_back(sight: _Sight, source: _End, store_of: StoreOf, chunks_max: int) -> None:
    sight.step = MoveStep.THAW
    state = source.state(sight.shard)
    if state is None:
        raise _Blocked(MoveObstacle.UNKNOWN)
    if state.move is None:
        sight.step = MoveStep.BACK
        return
    move = state.move
    sight.target = move.target
    answer = source.call(Thaw(sight.shard, move))
    if isinstance(answer, Moved):
        sight.step = MoveStep.ACTIVATE
        return
    if answer is Answer.STALE:
        raise _Blocked(MoveObstacle.INSTALLING)
    sight.step = MoveStep.DISCARD
    _clear(sight, _target(store_of(move.target)), Discard(sight.shard, move), chunks_max, MoveStep.BACK)


def _tidy(sight: _Sight, target: _End, store_of: StoreOf, chunks_max: int) -> None:
    sight.step = MoveStep.DISCARD
    there = target.state(sight.shard)
    if there is None or there.move is None or there.status is not ShardStatus.INSTALLING:
        sight.step = MoveStep.BACK
        return
    move = there.move
    sight.target = move.target
    here = _source(store_of(move.source)).state(sight.shard)
    if here is None:
        raise _Blocked(MoveObstacle.UNKNOWN)
    # A token that is not the source's was given up: it is never minted again.
    if here.move == move:
        raise _Blocked(MoveObstacle.ALIVE)
    _clear(sight, target, Discard(sight.shard, move), chunks_max, MoveStep.BACK)
