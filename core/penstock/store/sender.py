"""Outbox delivery: takes what waits in one store for shards of other stores to their homes.

One pass is read, append, acknowledge, pair by pair. Each step may be lost, repeated or left half
done: the target takes a pair's entries by number, so what it has already answers DUP, and what
was not acknowledged is read again. Whoever runs passes (the node agent's loop, the simulation)
owns the clock: a pass never waits, it answers what stands in the way. Entries for outside sinks
are not its business, their shard's owner writes those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Moved,
    NodeStore,
    Outgoing,
    ReadOutbox,
    StoreUnreachable,
)

HomeOf = Callable[[str], NodeStore | None]
"""Target shard -> the store that is its home by the newest schedule, None when unknown."""


class Obstacle(StrEnum):
    """Why a pair's entries stay in the outbox for now."""

    BUSY = "BUSY"
    """The target's inbox has no room."""
    MOVING = "MOVING"
    """The target is on its way to another store."""
    MOVED = "MOVED"
    """The target is at another store than the look-up says."""
    UNKNOWN = "UNKNOWN"
    """The look-up knows no home, or the home has no record of the target."""
    GAP = "GAP"
    """The target lacks entries that are no longer in the outbox; nothing here can mend that."""
    UNREACHABLE = "UNREACHABLE"
    """The target's home did not answer."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one pass did. `more`: entries were left only for the pass's own limits; go on at once.

    Otherwise wait before the next pass: longer each time when `obstacles` (pair -> reason) stay.
    """

    entries: int
    more: bool
    obstacles: dict[tuple[str, str], Obstacle]


_OBSTACLES = {
    Answer.BUSY: Obstacle.BUSY,
    Answer.MOVING: Obstacle.MOVING,
    Answer.UNKNOWN: Obstacle.UNKNOWN,
    Answer.GAP: Obstacle.GAP,
}


def deliver_once(
    source: NodeStore, home_of: HomeOf, *, pairs_max: int = 10_000, bytes_max: int = 64 << 10
) -> Delivered:
    """One pass over the pairs that wait in `source`, about `bytes_max` bytes of each.

    An unreachable home is an obstacle of its pairs; an unreachable `source` raises
    StoreUnreachable. `pairs_max` must not be less than the pairs that can be stuck at a time.
    """
    entries = 0
    more = False
    obstacles: dict[tuple[str, str], Obstacle] = {}
    pairs = source.call(Outgoing(pairs_max))
    for pair in pairs:
        delivery = _deliver_pair(source, home_of, pair, bytes_max)
        entries += delivery.entries
        more = more or delivery.more
        if delivery.obstacle is not None:
            obstacles[pair] = delivery.obstacle
    return Delivered(entries, more or len(pairs) == pairs_max, obstacles)


@dataclass(slots=True)
class _PairDelivery:
    """How far one pair came: `last` is the number of its last entry that is at the target."""

    entries: int = 0
    last: int = 0
    more: bool = False
    obstacle: Obstacle | None = None


def _deliver_pair(source: NodeStore, home_of: HomeOf, pair: tuple[str, str], bytes_max: int) -> _PairDelivery:
    """Append a pair's oldest entries at the target's home and acknowledge them.

    A second try follows an answer that fresh knowledge may mend: MOVED (ask the look-up again) and
    GAP (another sender may have trimmed the outbox since it was read).
    """
    delivery = _try_pair(source, home_of, pair, bytes_max)
    if delivery.obstacle in {Obstacle.MOVED, Obstacle.GAP}:
        earlier = delivery.entries
        delivery = _try_pair(source, home_of, pair, bytes_max)
        delivery.entries += earlier
    return delivery


def _try_pair(source: NodeStore, home_of: HomeOf, pair: tuple[str, str], bytes_max: int) -> _PairDelivery:
    producer, target = pair
    home = home_of(target)
    if home is None:
        return _PairDelivery(obstacle=Obstacle.UNKNOWN)
    waiting = source.call(ReadOutbox(producer, target, bytes_max))
    appends = [
        Append(producer, target, number, payload, rows, placed_us)
        for number, placed_us, rows, payload in waiting
    ]
    try:
        answers = home.pipeline(appends)
    except StoreUnreachable:
        return _PairDelivery(obstacle=Obstacle.UNREACHABLE)
    delivery = _PairDelivery(more=bool(appends))
    for append, answer in zip(appends, answers, strict=True):
        if answer is not Answer.OK and answer is not Answer.DUP:
            delivery.obstacle = Obstacle.MOVED if isinstance(answer, Moved) else _OBSTACLES[answer]
            delivery.more = False
            break
        delivery.entries += answer is Answer.OK
        delivery.last = append.number
    if delivery.last:
        source.call(Acknowledge(producer, target, delivery.last))
    return delivery
