"""Drives moves of shards between two stores: a bounded part of one move at a time, from what the stores say.

Nothing is remembered between two calls: each begins by asking both stores how far the move is, so any
driver may die at any step and any other go on, two at once too. Whoever drives (the node agent of the
source, the simulation) owns the clock: a call never waits, it answers what stands in the way. Neighbours:
`moves` has the calls and why they are safe, `sender` delivers what waits for a shard that moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum

from penstock.store.moving.copy import Blocked, Copy, End, Overtaken, Sight, held_of, source_end, target_end
from penstock.store.moving.progress import MoveObstacle, MoveProgress, MoveStep
from penstock.store.port import Answer, Moved, NodeStore, ShardStatus
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Move,
    MoveState,
    Precopy,
    ReadMove,
    Thaw,
)

StoreOf = Callable[[str], NodeStore | None]
"""Store id -> the store, None when unknown."""


class MoveKind(StrEnum):
    """What a store's agent has to do about a shard."""

    MOVE = "MOVE"
    """`move_once` to the shard's home, or to the store that it departed for."""
    BACK = "BACK"
    """`go_back_once`."""
    TIDY = "TIDY"
    """`tidy_once`: a copy here is perhaps of a dead move."""


def move_once(
    source: NodeStore,
    store_of: StoreOf,
    shard: str,
    *,
    target_id: str,
    version: int,
    chunks_max: int = 16,
    chunks_ahead_max: int | None = None,
) -> MoveProgress:
    """Take a shard's move from `source` to the store `target_id` a part further.

    `version` is that of the schedule that says so, as it is published in `source`. Copies at most
    `chunks_ahead_max` chunks (`chunks_max` where it is None) ahead of the freeze, and copies after it, or
    drops, at most `chunks_max`. A move that departed for another store before is brought to its end there. A
    lost or refused call is an obstacle; raises ProtocolMismatch only.
    """
    wanted = Precopy(shard, target_id, version)
    ahead_max = chunks_max if chunks_ahead_max is None else chunks_ahead_max
    return _carry_out(
        shard, lambda sight: _move(sight, source_end(source), store_of, wanted, ahead_max, chunks_max)
    )


def go_back_once(source: NodeStore, store_of: StoreOf, shard: str, *, chunks_max: int = 16) -> MoveProgress:
    """Take back a move of a shard that `source` copies or has frozen: thaw it, drop the target's copy.

    A move that has departed is not taken back: the step is ACTIVATE then, for `move_once`. A copy that could
    not be dropped is left to `tidy_once`.
    """
    return _carry_out(shard, lambda sight: _go_back(sight, source_end(source), store_of, chunks_max))


def let_go_once(source: NodeStore, shard: str) -> MoveProgress:
    """Give up a move whose target cannot be had: `source` notes nothing more, and the shard's owner may work.

    The copy is left to `tidy_once`, or to the next move. A move that has departed is left alone (ACTIVATE).
    """
    return _carry_out(shard, lambda sight: _let_go(sight, source_end(source)))


def tidy_once(target: NodeStore, store_of: StoreOf, shard: str, *, chunks_max: int = 16) -> MoveProgress:
    """Drop the copy that `target` has of a move, if the source that this move names says that it is dead."""
    return _carry_out(shard, lambda sight: _tidy(sight, target_end(target), store_of, chunks_max))


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


def _carry_out(shard: str, go_on: Callable[[Sight], None]) -> MoveProgress:
    sight = Sight(shard)
    obstacle = None
    try:
        go_on(sight)
    except Blocked as blocked:
        obstacle = blocked.obstacle
    except Overtaken:
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


def _move(
    sight: Sight, source: End, store_of: StoreOf, wanted: Precopy, chunks_ahead_max: int, chunks_max: int
) -> None:
    state = source.state(sight.shard)
    if state is None:
        raise Blocked(MoveObstacle.UNKNOWN)
    if state.status is ShardStatus.INSTALLING:
        raise Blocked(MoveObstacle.INSTALLING)
    if state.move is not None and state.status in {ShardStatus.DEPARTED, ShardStatus.MOVED}:
        move = state.move
        sight.target = move.target
        sight.step = MoveStep.ACTIVATE if state.status is ShardStatus.DEPARTED else MoveStep.DONE
    else:
        sight.target = wanted.target
        target = target_end(store_of(wanted.target))
        # The target is asked before anything begins: nothing is noted while there is nowhere to go.
        there = target.state(sight.shard)
        if state.move is not None and state.status is ShardStatus.FROZEN:
            move = state.move
            sight.step = MoveStep.COPY
        else:
            move, state = _begun(source, wanted)
        at, held = state.round, held_of(there, move)
        is_this_one = move.target == wanted.target and move.generation == state.generation
        if at is None or not is_this_one or held.rounds < at.number - 1:
            # A frozen shard is to go elsewhere, or its store started anew, or the target lost what it had:
            # nothing can follow what was copied. The owner works while it is copied anew.
            source.call(Thaw(sight.shard, move))
            raise Overtaken
        if at.number == 0 and there is not None and there.status is not ShardStatus.MOVED:
            # An older copy goes first there, which may take long: not while the shard stands still.
            at = replace(at, noted_fits=False)
        copy = Copy(sight, source, target, move, held)
        if sight.step is MoveStep.PRECOPY:
            copy.rounds(at, wanted.version, chunks_ahead_max)
        if sight.step is MoveStep.COPY:
            copy.rest(chunks_max)
        if sight.step is MoveStep.DEPART:
            _depart(sight, source, move)
    if sight.step is MoveStep.ACTIVATE:
        _activate(sight, target_end(store_of(move.target)), move)
        if state.status is ShardStatus.DEPARTED:
            _clear(sight, source, Drop(sight.shard, move), chunks_max, MoveStep.DONE)


def _begun(source: End, wanted: Precopy) -> tuple[Move, MoveState]:
    """The token of the copy, begun or gone on with, and how far it is."""
    answer, state = source.calls((wanted, ReadMove(wanted.shard)))
    if isinstance(answer, Moved) or answer is Answer.MOVING:
        raise Overtaken
    if not isinstance(answer, Move):
        raise Blocked(MoveObstacle.STALE if answer is Answer.STALE else MoveObstacle.UNKNOWN)
    if state is None or state.move != answer or state.status is not ShardStatus.COPYING:
        raise Overtaken
    return answer, state


def _depart(sight: Sight, source: End, move: Move) -> None:
    answer = source.call(Depart(sight.shard, move))
    if answer is not Answer.OK and answer is not Answer.DONE:
        sight.step = MoveStep.PRECOPY
        raise Overtaken
    sight.step = MoveStep.ACTIVATE


def _activate(sight: Sight, target: End, move: Move) -> None:
    answer = target.call(Activate(sight.shard, move))
    if answer is not Answer.OK and answer is not Answer.DONE:
        raise Blocked(MoveObstacle.REFUSED)
    sight.step = MoveStep.DROP


def _clear(sight: Sight, end: End, call: Drop | Discard, calls_max: int, over: MoveStep) -> None:
    """Repeat a call that drops some of a copy each time."""
    for _ in range(calls_max):
        answer = end.call(call)
        if answer is not Answer.MORE:
            # STALE: somebody else has done it, and the shard is elsewhere by now
            sight.step = over
            return


def _let_go(sight: Sight, source: End) -> None:
    sight.step = MoveStep.THAW
    state = source.state(sight.shard)
    if state is not None and state.move is not None and state.status is not ShardStatus.INSTALLING:
        sight.target = state.move.target
        if isinstance(source.call(Thaw(sight.shard, state.move)), Moved):
            sight.step = MoveStep.ACTIVATE
            return
    sight.step = MoveStep.BACK


def _go_back(sight: Sight, source: End, store_of: StoreOf, chunks_max: int) -> None:
    sight.step = MoveStep.THAW
    state = source.state(sight.shard)
    if state is None:
        raise Blocked(MoveObstacle.UNKNOWN)
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
        raise Blocked(MoveObstacle.INSTALLING)
    sight.step = MoveStep.DISCARD
    _clear(sight, target_end(store_of(move.target)), Discard(sight.shard, move), chunks_max, MoveStep.BACK)


def _tidy(sight: Sight, target: End, store_of: StoreOf, chunks_max: int) -> None:
    sight.step = MoveStep.DISCARD
    there = target.state(sight.shard)
    if there is None or there.move is None or there.status is not ShardStatus.INSTALLING:
        sight.step = MoveStep.BACK
        return
    move = there.move
    sight.target = move.target
    here = source_end(store_of(move.source)).state(sight.shard)
    if here is None:
        raise Blocked(MoveObstacle.UNKNOWN)
    # A token that is not the source's was given up: it is never minted again.
    if here.move == move:
        raise Blocked(MoveObstacle.ALIVE)
    _clear(sight, target, Discard(sight.shard, move), chunks_max, MoveStep.BACK)
