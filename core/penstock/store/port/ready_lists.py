"""What a task has to do: its ready list, and the entries of the shards that are on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.store.port.answers import Answer, Watermark
from penstock.store.port.request import Request

CONTROL_TOKEN = "!"  # noqa: S105 - not a secret
"""What a ready list carries beside shard names: the assignment changed, read it again."""

RUNG = "~"
"""What it carries when its task has listened for watermarks and there is news (`Listen`)."""


@dataclass(frozen=True, slots=True)
class WaitReady(Request[bool]):
    """Block until the ready list has something, or `timeout_ms` (at most 2000) passed.

    Answers True when something may be waiting. Takes nothing off the list. Names that come onto an empty list
    ring; without `look` only that counts, not what is there: for whoever has waited here before, and has had
    a fetch since that left nothing, and has heard nothing since. One round trip less.
    """

    ready: str
    timeout_ms: int
    look: bool = True


@dataclass(frozen=True, slots=True)
class Wake(Request[Answer]):
    """Put a control token on a ready list (at most one is kept). OK."""

    ready: str


class Entry(NamedTuple):
    """One inbox entry: its number in the inbox, when it was placed (microseconds of the
    producer's clock), its payload."""

    number: int
    placed_us: int
    payload: bytes


class DueTimer(NamedTuple):
    """A timer that is due; it is there until a commit takes it away."""

    name: bytes
    due_ms: int


class FetchedShard(NamedTuple):
    """What a task may work on now: under `epoch`, the entries after `offset`, and `timers` that are due, the
    earliest first.

    `entries` is empty for a source shard, for a keyed shard that was woken for nothing, and for one of which
    only timers are due: that is handed out again with each fetch until a commit has taken them away. By
    event time `placed` is the number of the inbox's last entry: behind it the shard has `watermark`, the
    stage's.
    """

    shard: str
    epoch: int
    offset: int
    entries: tuple[Entry, ...]
    timers: tuple[DueTimer, ...] = ()
    placed: int = 0
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """`control` is set when a control token was on the list; `full`: the store is at its memory limit.

    `next_due_ms`, where timers were asked for, says when to fetch again: when the next timer of the list's
    shards is due, at `now_ms` where more is due than was handed out; None for never. By event time it is 0
    or None, and `watermark` is the stage's; `rung`: the list was, at news of a watermark (`Listen`).
    """

    shards: tuple[FetchedShard, ...]
    control: bool
    full: bool = False
    next_due_ms: int | None = None
    watermark: Watermark | None = None
    rung: bool = False


@dataclass(frozen=True, slots=True)
class Fetch(Request[Fetched]):
    """Take up to `shards_max` shards off the ready list and read their inboxes.

    Reads at most about `bytes_max` bytes in all, one entry at the least. Of the first shard's inbox it reads
    what fits; any other one is read as a whole, or stays on the list, before all others. A shard whose outbox
    is over its bound is not handed out: it is held, and comes back by itself when the outbox was trimmed.
    With `shards_max` 0 it takes a control token at most. Answers a `Fetched`.

    `timers_max` above 0 asks also for so many timers that are due at `now_ms` (the caller's clock), a quarter
    of them from one shard at the most: those of the shards that were taken, then of the list's others by
    their earliest, within `shards_max`. A shard that waits on the list has its timers read in its turn; one
    that is held fires none. With `producers`, the operators that feed the stage, timers go by event time: due
    is what the shard's own watermark has passed, and of one without work what the stage's has.

    A store at its memory limit takes nothing off the list and answers `full`. `pressed`: asked all the same,
    under `Bounds.pressed`, by a task that was answered so (`docs/decisions/0021-memory-under-pressure.md`).
    """

    ready: str
    bytes_max: int
    shards_max: int
    pressed: bool = False
    now_ms: int = 0
    timers_max: int = 0
    producers: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    """Those of them that are keyed stages (`ReadWatermark`)."""
