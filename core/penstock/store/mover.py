"""Drives moves of shards between two stores: a bounded part of one move at a time, from what the stores say.

Nothing is remembered between two calls: each begins by asking both stores how far the move is, so any
driver may die at any step and any other go on, two at once too. Whoever drives (the node agent of the
source, the simulation) owns the clock: a call never waits, it answers what stands in the way. Neighbours:
`moves` has the calls and why they are safe, `sender` delivers what waits for a shard that moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.store.port import NodeStore, ShardStatus


class MoveStep(StrEnum):
    """What a move has to do next."""

    FREEZE = "FREEZE"
    COPY = "COPY"
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
    TARGET_FULL = "TARGET_FULL"
    """The target is at its memory limit."""
    UNKNOWN = "UNKNOWN"
    """A store has no record of the shard, or the topology is retracted there."""
    STALE = "STALE"
    """The source's map has a newer schedule, or another home for the shard."""
    INSTALLING = "INSTALLING"
    """The shard is still on its way to the source itself."""
    OTHER_TARGET = "OTHER_TARGET"
    """The shard has departed for another store: that move must end first (`MoveProgress.target` names the
    store)."""
    REFUSED = "REFUSED"
    """The target does not take this move: it holds the shard, or a newer move's copy."""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move is after one call. `target` is the store that it is bound for ("" before the freeze);
    `copied_bytes` were copied by this call. Without an obstacle and not at an end, go on at once."""

    shard: str
    step: MoveStep
    target: str = ""
    copied_bytes: int = 0
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
    source: NodeStore, target: NodeStore, shard: str, *, target_id: str, version: int, chunks_max: int = 16
) -> MoveProgress:
    """Take a shard's move from `source` to `target` (whose store id is `target_id`) a part further.

    `version` is that of the schedule that says so, as it is published in `source`. Copies at most
    `chunks_max` chunks. A lost or refused call is an obstacle; raises nothing but ProtocolMismatch.
    """
    raise NotImplementedError


def go_back_once(source: NodeStore, target: NodeStore, shard: str) -> MoveProgress:
    """Take back a move of a shard that `source` has frozen: thaw it, drop the target's copy, a part at a
    time.

    A move that has departed is not taken back: the step is ACTIVATE then, for `move_once`.
    """
    raise NotImplementedError


def tidy_once(target: NodeStore, source: NodeStore, shard: str) -> MoveProgress:
    """Drop the copy that `target` has of a move, if `source` (the store that this move names) says that it
    is dead."""
    raise NotImplementedError


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
        elif status is ShardStatus.FROZEN:
            due[shard] = MoveKind.BACK if home == store_id else MoveKind.MOVE
        elif status is ShardStatus.INSTALLING and home != store_id:
            due[shard] = MoveKind.TIDY
    return due
