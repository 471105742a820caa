"""The port's part about moves: how a shard goes from one node store to another, call by call.

    source                         target
    ACTIVE
    Precopy   -> COPYING                                      the owner works on; what it changes is noted
    NextRound
    Export    (read only)          Install  -> INSTALLING, a chunk at each call
      ... rounds, until little is left (none for a shard that is little)
    Freeze    -> FROZEN            Install                    the pause begins; the rest of the copy
    Depart    -> DEPARTED                                     from here on there is no way back
                                   Activate -> ACTIVE         the pause ends
    Drop      -> MOVED

Going back, until `Depart`: `Thaw` at the source (-> ACTIVE), then `Discard` at the target (-> MOVED).

A copy comes in rounds. The first is all state; each later one is what commits changed while the one before
was copied, and what came into inbox and outbox meanwhile; the rest, after the freeze, is one more such round
with the record itself. What a round has to copy is noted in the source by each commit, from before the first
scan, whoever owns the shard.

`Precopy` mints an epoch above all owners' and all earlier attempts', so (epoch, source's generation) names
one attempt to move and orders it after all earlier ones of the shard: that is the `Move`, the token that each
later call carries and each store compares. `Freeze` raises the shard's own epoch to at least that one, which
fences the owner. Whatever comes twice, late or from a driver that others have overtaken meets another token,
another round or another step, and does nothing. `mover` drives these calls;
`docs/decisions/0011-moves-between-stores.md` and `0018-live-moves.md` have the reasons. Neighbours: `port`
has the answers and all other calls, `memory.moves` and `redis.moves` carry these out.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer, Moved, ShardStatus
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class Move:
    """The token of one attempt to move a shard. `epoch` is the one that `Precopy` minted, `generation` the
    source's when the copy began: after the source's next start a new attempt begins, with a new token."""

    source: str
    target: str
    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Precopy(Request[Move | Answer | Moved]):
    """Begin to copy a shard for its move to `target`; it stays its owner's, and may be claimed.

    From now on its commits note what they change. Answers the `Move`; the same one again while it is being
    copied for this target in the same generation, else a new one: what was copied and noted before is void.
    STALE when this store's map has a newer schedule than `version` or another home for the shard; MOVING
    while it is frozen, or being installed here; `Moved`; UNKNOWN. Noting ends by itself, and the move is
    dead, when more than `Bounds.noted_entries_max` changes were noted in one round: nobody drives it.
    """

    shard: str
    target: str
    version: int


@dataclass(frozen=True, slots=True)
class NextRound(Request[Answer]):
    """The target has all of a round, where `resume` ends: what was noted during it is the next one's.

    OK; DONE when that round has begun; STALE when the shard is not being copied under this move, or `resume`
    is not the end of the present round or of the one before; UNKNOWN.
    """

    shard: str
    move: Move
    resume: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a shard as one store tells another. `payload` and `resume` are the stores' own affair.

    `resume` says where the next chunk begins; `is_last`: there is none. `rounds` are complete with it.
    """

    payload: bytes
    resume: bytes
    is_last: bool
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Freeze(Request[Chunk | Answer | Moved]):
    """Stop a shard for the rest of its move: claims and appends answer MOVING, commits FENCED.

    `resume` is the end of the present round, which the target has whole (b"": nothing was copied, the rest
    is all). Raises the epoch and takes the shard off its owner's ready list. What waits for it here is
    `Outgoing` from now on. Answers the rest's first `Chunk`, also when it was frozen so before. STALE when
    the shard is not being copied under this move, when `resume` is not such an end, when this store's map has
    a newer schedule than `version` or another home for the shard; MOVING while it is being installed here;
    `Moved`; UNKNOWN.
    """

    shard: str
    move: Move
    version: int
    resume: bytes


@dataclass(frozen=True, slots=True)
class Export(Request[Chunk | Answer]):
    """Read a part of what the present round copies, about `Bounds.chunk_*` at each call.

    `resume` is where the target's copy goes on. A `Chunk`, or STALE (not being copied, or frozen, under this
    move; or `resume` is the end of the present round, of another round, or of an earlier run of the server),
    or UNKNOWN. Changes nothing.
    """

    shard: str
    move: Move
    resume: bytes


@dataclass(frozen=True, slots=True)
class Installed:
    """What the target holds of a move: `chunks` of them, the next begins at `resume`; `rounds` are whole."""

    chunks: int
    resume: bytes
    complete: bool
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Install(Request[Installed | Answer]):
    """Take chunk `number` (1, 2, ...) of a move; a record that is being installed has no owner and takes no
    entry. Until the rest comes it answers `Moved`: the shard is at the source.

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
    """The source gives the move up: it is dead from now on. Nothing is noted any more; a shard that was
    frozen is taken up again, and its owner has to claim it anew.

    OK; DONE when it is active; `Moved` when it has departed: the move must go on; STALE when it is in another
    move, or being installed here; UNKNOWN.
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
class Round:
    """How far the source is with a copy: the present round (0 before the first), how many changes it copies,
    how many were noted since it began, and whether those fit into one chunk; before the first round, whether
    all of the shard does."""

    number: int
    changes: int
    noted: int
    noted_fits: bool


@dataclass(frozen=True, slots=True)
class MoveState:
    """Where a shard stands in this store, in its present `generation`.

    `move` is the one that it is in, or left with (None when it is active); `installed` what is here of a
    shard that is being installed, `round` how far the copy of one is that is being copied from here.
    """

    status: ShardStatus
    epoch: int
    move: Move | None
    installed: Installed | None
    generation: int
    round: Round | None


@dataclass(frozen=True, slots=True)
class ReadMove(Request[MoveState | None]):
    """Where a shard stands in this store. None without a record."""

    shard: str
