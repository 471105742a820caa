"""Between stores, and outside: entries come in, wait to go out, and are acknowledged."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.store.port.answers import Answer, Moved
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class Append(Request[Answer | Moved]):
    """Deliver entry `number` of the pair (producer, target) into the target's inbox.

    Takes exactly last + 1, but for a shard that was lost and lives once more (`penstock.store.lives`): of
    such a producer the first number of its life, into such a target the oldest that its producer has
    (`is_oldest`: nothing of the pair waits before it). OK; DUP (had it); GAP; BUSY (no room; ask later);
    MOVING (frozen); `Moved`; UNKNOWN. FULL: the store is at its memory limit. `pressed`: it is asked all the
    same, and takes an entry into an empty inbox only, so that the stores behind this one can drain.
    """

    producer: str
    target: str
    number: int
    payload: bytes
    rows: int
    placed_us: int
    pressed: bool = False
    is_oldest: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing(Request[list[tuple[str, str]]]):
    """Pairs with entries for targets that are not in this store: [(producer, target), ...].

    At most `count` of them, without external ones; those that wait longest for a target come first. With
    `targets` only what waits for these, in their order; behind the first `skip` that wait for the first of
    them. So all can be looked through in calls that stay short (`sender.waiting_pairs`), and what waits for
    one store hides nothing that waits for another.
    """

    count: int
    targets: tuple[str, ...] = ()
    skip: int = 0


@dataclass(frozen=True, slots=True)
class OutgoingTargets(Request[list[str]]):
    """The targets of the pairs that `Outgoing` tells, in order of their names."""


@dataclass(frozen=True, slots=True)
class WaitOutgoing(Request[bool]):
    """Block until the bell of the outboxes rings, or `timeout_ms` (at most 2000) passed.

    It rings when an entry begins to wait for a target that is not in this store and that nothing waited for.
    True when something may be waiting. A client's first call also looks (and so does the first after a
    broken connection), so nothing is missed by who looks with `Outgoing` after each True, and
    again after whatever it delivered.
    """

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReadOutbox(Request[list[tuple[int, int, int, bytes]]]):
    """The oldest waiting entries of a pair, at most about `bytes_max` bytes (one at the least).

    Only those numbered above `after`. Answers [(number, placed_us, rows, payload), ...].
    """

    producer: str
    target: str
    bytes_max: int
    after: int = 0


class Acknowledge(msgspec.Struct, Request[Answer], frozen=True, gc=False):
    """All entries of the pair up to `number` are at the target: trim them. OK, or UNKNOWN.

    `position` is an outside sink's position after `number`; kept when `number` is news.
    May come late, twice or from an old owner: it only ever moves forward. Wakes the
    producer if it was held and is under its bound again.
    """

    producer: str
    target: str
    number: int
    position: bytes = b""


@dataclass(frozen=True, slots=True)
class Intend(Request[Answer]):
    """The owner is about to put entries of `shard` into the outside sink `target`, as `intent` says.

    OK; FENCED (not the owner under this generation and epoch, or frozen for a move); UNKNOWN (also a sink
    that nothing was put out for). One intent is
    kept for a pair, the last; whoever claims the shard is told it (`ExternalCursor.intent`), so that a sink
    whose writes cannot be repeated unseen is first asked what became of them. Opaque bytes, few. May be
    repeated.
    """

    shard: str
    generation: int
    epoch: int
    target: str
    intent: bytes
