"""Outbox delivery: takes what waits in one store for shards of other stores to their homes.

One pass is read, append, acknowledge, each in one round trip for many pairs. Each step may be lost,
repeated or left half done: the target takes a pair's entries by number, so what it has already answers
DUP, and what was not acknowledged is read again. Whoever runs passes (the links of the node's agent)
owns the clock: a pass never waits, it answers what stands in the way. Entries for outside sinks
are not its business, their shard's owner writes those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Moved,
    NodeStore,
    Outgoing,
    ReadOutbox,
    StoreFull,
    StoreUnreachable,
)

HomeOf = Callable[[str], NodeStore | None]
"""Target shard -> the store that is its home by the newest schedule, None when unknown."""

Refused = Callable[[str, "Answer | Moved"], None]
"""Told of (target shard, answer) when its home did not take an entry; a look-up may learn from it."""

Pair = tuple[str, str]
"""Producer and target, both shards."""

PAIRS_AT_ONCE = 32
PAIRS_A_LOOK = 500
TARGETS_A_LOOK = 256
"""What one look at an outbox asks for at most: then it takes the store a millisecond."""


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
    FULL = "FULL"
    """The target's home takes no writes: it cannot write to its disk."""
    PRESSED = "PRESSED"
    """The target's home is at its memory limit, and there is something in the target's inbox."""


TAKES_NOTHING = frozenset({Obstacle.UNREACHABLE, Obstacle.FULL})
"""Obstacles of a whole store: it takes no entry of any pair now."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one pass did. `more`: entries were left only for the pass's own limits; go on at once.

    Otherwise wait before the next pass: longer each time when `obstacles` (pair -> reason) stay.
    `oldest_us` is when the oldest delivered entry was placed (the producer's clock), 0 for none.
    """

    entries: int
    more: bool
    obstacles: dict[Pair, Obstacle]
    oldest_us: int = field(default=0, compare=False)


_OBSTACLES = {
    Answer.BUSY: Obstacle.BUSY,
    Answer.MOVING: Obstacle.MOVING,
    Answer.UNKNOWN: Obstacle.UNKNOWN,
    Answer.GAP: Obstacle.GAP,
    Answer.FULL: Obstacle.PRESSED,
}


def waiting_pairs(source: NodeStore, targets: Sequence[str]) -> Iterator[list[Pair]]:
    """Pairs with entries for these targets, a page at a time, each read when it is asked for.

    What leaves a line between two pages shifts it: whoever has delivered something looks once more.
    """
    for first in range(0, len(targets), TARGETS_A_LOOK):
        left, skip = tuple(targets[first : first + TARGETS_A_LOOK]), 0
        while left:
            pairs = source.call(Outgoing(PAIRS_A_LOOK, left, skip))
            if pairs:
                yield pairs
            if len(pairs) < PAIRS_A_LOOK:
                break
            last = pairs[-1][1]
            skip = sum(target == last for _, target in pairs) + (skip if last == left[0] else 0)
            left = left[left.index(last) :]


def deliver_pairs(
    source: NodeStore,
    home_of: HomeOf,
    pairs: Sequence[Pair],
    *,
    bytes_max: int = 64 << 10,
    refused: Refused | None = None,
) -> Delivered:
    """One pass over these pairs, `PAIRS_AT_ONCE` at a time.

    A second try follows an answer that fresh knowledge may mend: MOVED (ask the look-up again) and
    GAP (another sender may have trimmed the outbox since it was read). A home that takes nothing is not
    asked again in this pass.
    """
    taking_nothing: dict[int, Obstacle] = {}
    entries = 0
    more = False
    oldest_us = 0
    obstacles: dict[Pair, Obstacle] = {}
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        batch = pairs[first : first + PAIRS_AT_ONCE]
        tries = _try_pairs(source, home_of, batch, bytes_max, refused, taking_nothing)
        again = [pair for pair, one in tries.items() if one.obstacle in {Obstacle.MOVED, Obstacle.GAP}]
        if again:
            earlier = tries
            tries = tries | _try_pairs(source, home_of, again, bytes_max, refused, taking_nothing)
            for pair in again:
                tries[pair].take_over(earlier[pair])
        for pair, one in tries.items():
            entries += one.entries
            more = more or one.more
            oldest_us = min(oldest_us or one.oldest_us, one.oldest_us or oldest_us)
            if one.obstacle is not None:
                obstacles[pair] = one.obstacle
    return Delivered(entries, more, obstacles, oldest_us)


@dataclass(slots=True)
class _PairDelivery:
    """How far one pair came: `last` is the number of its last entry that is at the target."""

    entries: int = 0
    last: int = 0
    more: bool = False
    obstacle: Obstacle | None = None
    oldest_us: int = 0

    def take_over(self, earlier: _PairDelivery) -> None:
        """Add what an earlier try of the same pair delivered."""
        self.entries += earlier.entries
        self.oldest_us = earlier.oldest_us or self.oldest_us


def _try_pairs(
    source: NodeStore,
    home_of: HomeOf,
    pairs: Sequence[Pair],
    bytes_max: int,
    refused: Refused | None,
    taking_nothing: dict[int, Obstacle],
) -> dict[Pair, _PairDelivery]:
    """Append the pairs' oldest entries at the targets' homes and acknowledge them.

    `taking_nothing`: homes, by id, that took nothing so far, and why; those that are met are added.
    """
    tries = {pair: _PairDelivery(obstacle=Obstacle.UNKNOWN) for pair in pairs}
    homes = []
    for pair in pairs:
        home = home_of(pair[1])
        if home is not None and id(home) in taking_nothing:
            tries[pair] = _PairDelivery(obstacle=taking_nothing[id(home)])
        elif home is not None:
            homes.append((pair, home))
    if not homes:
        return tries
    read = source.pipeline([ReadOutbox(producer, target, bytes_max) for (producer, target), _ in homes])
    waiting_at: dict[int, tuple[NodeStore, list[Append]]] = {}
    for ((producer, target), home), waiting in zip(homes, read, strict=True):
        tries[producer, target] = _PairDelivery(more=bool(waiting))
        _, appends = waiting_at.setdefault(id(home), (home, []))
        appends += [
            Append(producer, target, number, payload, rows, placed_us, is_oldest=not at)
            for at, (number, placed_us, rows, payload) in enumerate(waiting)
        ]
    for home, appends in waiting_at.values():
        if appends and (obstacle := _append(home, appends, tries, refused)) is not None:
            taking_nothing[id(home)] = obstacle
    acknowledged = [Acknowledge(*pair, one.last) for pair, one in tries.items() if one.last]
    if acknowledged:
        source.pipeline(acknowledged)
    return tries


def _append(
    home: NodeStore, appends: Sequence[Append], tries: dict[Pair, _PairDelivery], refused: Refused | None
) -> Obstacle | None:
    """Send entries to one home, and note for each pair how far it came. Answers why it takes nothing."""
    try:
        answers = home.pipeline(appends)
        if Answer.FULL in answers:
            answers = _press(home, appends, answers)
    except (StoreUnreachable, StoreFull) as error:
        obstacle = Obstacle.FULL if isinstance(error, StoreFull) else Obstacle.UNREACHABLE
        for append in appends:
            tries[append.producer, append.target] = _PairDelivery(obstacle=obstacle)
        return obstacle
    for append, answer in zip(appends, answers, strict=True):
        one = tries[append.producer, append.target]
        if one.obstacle is not None:
            continue
        if answer is Answer.OK or answer is Answer.DUP:
            one.entries += answer is Answer.OK
            one.oldest_us = one.oldest_us or append.placed_us
            one.last = append.number
            continue
        one.obstacle = Obstacle.MOVED if isinstance(answer, Moved) else _OBSTACLES[answer]
        one.more = False
        if refused is not None:
            refused(append.target, answer)
    return None


def _press(
    home: NodeStore, appends: Sequence[Append], answers: Sequence[Answer | Moved]
) -> list[Answer | Moved]:
    """The answers of a home at its memory limit, once each pair's first refused entry was tried again.

    An empty inbox takes it all the same. So whatever waits behind a full store goes on as that is worked off,
    and two that are full of entries for each other both drain.
    """
    first: dict[Pair, int] = {}
    for at, (append, answer) in enumerate(zip(appends, answers, strict=True)):
        if answer is Answer.FULL:
            first.setdefault((append.producer, append.target), at)
    pressed = home.pipeline([replace(appends[at], pressed=True) for at in first.values()])
    last_word = list(answers)
    for at, answer in zip(first.values(), pressed, strict=True):
        last_word[at] = Answer.FULL if answer is Answer.BUSY else answer
    return last_word
