"""Commits: the one way in which a shard's state, offset and outputs change."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.store.port.answers import Answer, Watermark
from penstock.store.port.request import Request


class StateWrite(NamedTuple):
    """One state change: value None deletes the field; `field` None deletes the collection.

    `collection` b"" is the shard's value hash, which cannot be deleted whole.
    """

    collection: bytes
    field: bytes | None
    value: bytes | None


class TimerWrite(NamedTuple):
    """Set (`due_ms`) or delete (None) the timer called `name`, of which a shard has one.

    `due_ms` is by the clock that fetches tell (`ready_lists.Fetch`)."""

    name: bytes
    due_ms: int | None


class Output(NamedTuple):
    """One entry for a target. `external` targets are sinks outside: their entries always wait in
    the outbox until `Acknowledge`."""

    target: str
    payload: bytes
    rows: int
    external: bool = False


class Commit(msgspec.Struct, Request[Answer], frozen=True, gc=False):
    """Compare-and-swap on (generation, epoch, number, table version), then apply everything.

    Applies state and timers, advances `offset` (inbox number worked up to; trims the inbox),
    sets `position` when not None, numbers the outputs per pair and places them: into a local inbox when the
    pair's last is there and there is room, else into the outbox. First drains older ones of its
    own outbox into local inboxes that have room, and entries that wait for room in this shard's
    inbox into it, both within `Bounds.drain_*`. Then, when the inbox still has entries, the
    shard goes to the end of its owner's ready list. A source shard (`again` True) goes there too.

    OK; DONE (this number was applied, under this epoch); FENCED (epoch or generation is
    another's, the shard frozen, or moved); CONFLICT (number is neither last nor last + 1, or the
    table version differs); UNKNOWN. Never BUSY.

    `in_hand`: a Fetch handed the shard out under this epoch with entries (or as a source), and this is
    the first commit since; so it is on no ready list, and is not looked for there.

    `consumed_bytes`, `consumed_rows`: sums over the entries up to `offset`. `finished`: a source partition is
    read to its end and will not be handed out again. `within`, when not None, is kept with the shard for its
    next owner: how far the work is that no offset and no position tell (opaque bytes, few). So is `counts`:
    totals since the shard's creation of rows that came out of what is fused in it (`codec.encode_counts`).
    `pressed`: queues are filled under `Bounds.pressed`, as the store was at its memory limit lately; it takes
    it all the same.

    `watermark`, where the operator goes by event time, is what the shard has taken with this commit, never
    less than before. With `tells` it is told to the stages behind as soon as no timer before it is left and
    all outputs so far are in their inboxes (`port.watermarks`).

    `inbox_limit_bytes`, when not None, is what the shard's inbox may hold from now on, where that is less
    than its bound, until its next owner's claim; 0: what its bound says. The outbox of a shard of this store
    whose last commit put out something that waits for such an inbox may hold as much; with more it is not
    handed out.
    """

    shard: str
    generation: int
    epoch: int
    number: int
    table_version: int
    now_us: int
    offset: int = 0
    consumed_bytes: int = 0
    consumed_rows: int = 0
    position: bytes | None = None
    within: bytes | None = None
    counts: bytes | None = None
    finished: bool = False
    again: bool = False
    in_hand: bool = False
    state: tuple[StateWrite, ...] = ()
    timers: tuple[TimerWrite, ...] = ()
    outputs: tuple[Output, ...] = ()
    pressed: bool = False
    watermark: Watermark | None = None
    tells: bool = False
    inbox_limit_bytes: int | None = None
