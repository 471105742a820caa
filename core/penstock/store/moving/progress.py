"""How far a move of a shard is, and what stands in its way: the words that its driver and others share.

Neighbours: `mover` drives moves and says so, `moves` has the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
