"""The port's part about moves: how a shard goes from one node store to another, call by call.

    source                         target
    ACTIVE
    Freeze    -> FROZEN
    Export    (read only)          Install  -> INSTALLING, a chunk at each call
    Depart    -> DEPARTED                                     from here on there is no way back
                                   Activate -> ACTIVE
    Drop      -> MOVED

Going back, until `Depart`: `Thaw` at the source (-> ACTIVE), then `Discard` at the target (-> MOVED).

A `Freeze` mints an epoch as a claim does, so (epoch, source's generation) names one attempt to move and
orders it after all earlier ones of the shard: that is the `Move`, the token that each later call carries
and each store compares. Whatever comes twice, late or from a driver that others have overtaken meets
another token or another step, and does nothing. `mover` drives these calls;
`docs/decisions/0011-moves-between-stores.md` has the reasons. Neighbours: `port` has the answers and all
other calls, `memory_moves` and `redis_moves` carry these out.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port import Answer, Moved, Request, ShardStatus


@dataclass(frozen=True, slots=True)
class Move:
    """The token of one attempt to move a shard. `epoch` is the one that `Freeze` minted, `generation` the
    source's when the copy began: the source's next start makes a new token, and the copy begins anew."""

    source: str
    target: str
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Freeze(Request[Move | Answer | Moved]):
    """Stop a shard for its move to `target`: claims and appends answer MOVING, commits FENCED.

    Mints epoch + 1 and takes the shard off its owner's ready list. What waits for it here is `Outgoing`
    from now on. Answers the `Move`; the same one again while it is frozen for this target, a new one (a new
    epoch) when it was frozen for another. STALE when this store's map has a newer schedule than `version`
    or another home for the shard; MOVING while it is being installed here; `Moved`; UNKNOWN.
    """

    shard: str
    target: str
    version: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a shard as one store tells another. `payload` and `resume` are the stores' own affair.

    `resume` says where the next chunk begins; `is_last`: there is none.
    """

    payload: bytes
    resume: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Export(Request[Chunk | Answer]):
    """Read a frozen shard: its record, state, timers, inbox and outbox, about `Bounds.chunk_*` at each call.

    Starts with `resume` b"". A `Chunk`, or STALE (not frozen under this move, or `resume` is of an earlier
    run of the server), or UNKNOWN. Changes nothing.
    """

    shard: str
    move: Move
    resume: bytes


@dataclass(frozen=True, slots=True)
class Installed:
    """What the target holds of a move: `chunks` of them, the next one begins at `resume`."""

    chunks: int
    resume: bytes
    complete: bool


@dataclass(frozen=True, slots=True)
class Install(Request[Installed | Answer]):
    """Take chunk `number` (1, 2, ...) of a move; a record that is being installed has no owner and takes no
    entry.

    Always answers what is there afterwards, an `Installed`: a chunk that is not the next one is not taken,
    and the driver goes on from the answer. The first chunk of a newer move clears what an older one or an
    earlier stay left, some at each call: until that is done `chunks` is 0, and chunk 1 is sent again. STALE
    when the shard is active or frozen here, or came or left with this or a newer move; UNKNOWN when the
    topology is retracted. Refused (StoreFull) at the memory limit, unlike all other calls of a move.
    """

    shard: str
    move: Move
    number: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Depart(Request[Answer]):
    """The source gives the shard up: from now on it answers `Moved`, and the move can only go forward.

    To be called when the target has said that it holds a complete copy, and is as durable as the mode
    promises. OK; DONE when it was done under this move; STALE when the shard is not frozen under this move;
    UNKNOWN.
    """

    shard: str
    move: Move


@dataclass(frozen=True, slots=True)
class Activate(Request[Answer]):
    """The target takes the shard up; for whoever has seen the source depart.

    Entries that waited here for the shard go into its inbox or wait in this node from now on; claims are
    granted. OK; DONE when it was done before, whatever became of the shard since; CONFLICT when the copy is
    not complete; STALE when nothing of this move is here; UNKNOWN.
    """

    shard: str
    move: Move


@dataclass(frozen=True, slots=True)
class Drop(Request[Answer]):
    """The source's copy goes, some of it at each call; for whoever has seen the target active.

    OK when it is gone; MORE when some is left; STALE when the shard did not depart with this move; UNKNOWN.
    The tombstone stays and answers `Moved`.
    """

    shard: str
    move: Move


@dataclass(frozen=True, slots=True)
class Thaw(Request[Answer | Moved]):
    """The source takes the shard up again; the move is dead from now on. Its owner has to claim it anew.

    OK; DONE when it is active; `Moved` when it has departed: the move must go on; STALE when it is frozen
    under another move, or being installed here; UNKNOWN.
    """

    shard: str
    move: Move


@dataclass(frozen=True, slots=True)
class Discard(Request[Answer]):
    """The target's copy goes, some of it at each call; for whoever knows that the move is dead.

    OK when it is gone, or was; MORE when some is left; STALE when a newer move's copy is here, or the shard
    itself; UNKNOWN. Leaves a tombstone that refuses late chunks of the move.
    """

    shard: str
    move: Move


@dataclass(frozen=True, slots=True)
class MoveState:
    """Where a shard stands in this store.

    `move` is the one that it is in, or left with (None when it is active); `installed` what is here of a
    shard that is being installed.
    """

    status: ShardStatus
    epoch: int
    move: Move | None
    installed: Installed | None


@dataclass(frozen=True, slots=True)
class ReadMove(Request[MoveState | None]):
    """Where a shard stands in this store. None without a record."""

    shard: str
