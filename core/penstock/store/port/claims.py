"""Shards: their making, and who owns them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer, Moved
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class Create(Request[Answer]):
    """Make a shard's record and inbox. OK, or EXISTS. UNKNOWN when the topology is retracted.

    `life` is how often its state was lost for good before (`penstock.store.lives`). Of a shard that lives
    once more, what an earlier stay or a copy on its way left here goes first: BUSY while that takes more than
    one call. One that works here, or is of that life or a later one, EXISTS.

    Called by the agent from the schedule, once; without a record everything answers UNKNOWN.
    `position` is the start position of a source partition (opaque bytes, empty for none).
    `source` marks a shard without inbox; it is ready whenever its outbox has room.
    """

    shard: str
    table_version: int = 0
    position: bytes = b""
    source: bool = False
    life: int = 0


@dataclass(frozen=True, slots=True)
class Reopen(Request[Answer | Moved]):
    """A source's partition that was read to its end has more by now: hand it out again, from its position.

    OK; DONE (it is not at its end); UNKNOWN; MOVING; a `Moved`. May be repeated.
    """

    shard: str


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs a shard: one task of one start of one executor.

    `incarnation` is "uid/start/attempt" of the worker process; `ready` names the task's ready
    list and is unique to (incarnation, executor, task attempt).
    """

    executor: str
    incarnation: str
    ready: str


@dataclass(frozen=True, slots=True)
class ExternalCursor:
    """A pair (this shard, outside sink): numbers issued and acknowledged, the sink's position after the
    acknowledged one, and what an owner said last that it would write (`deliveries.Intend`)."""

    issued: int
    acknowledged: int
    position: bytes
    intent: bytes = b""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a new owner starts from. `within` and `counts` are as last noted with a commit ("" before).
    `watermark_ms` is the one that was taken last, None before."""

    epoch: int
    generation: int
    commit: int
    offset: int
    position: bytes
    table_version: int
    external: dict[str, ExternalCursor]
    finished: bool
    within: bytes = b""
    counts: bytes = b""
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Claim(Request[Claimed | Answer | Moved]):
    """Take a shard for `owner` under schedule version `version`.

    A `Claimed`, or STALE (the map names another executor, another incarnation or a newer
    version), UNKNOWN (no record), MOVING (frozen) or a `Moved`. A granted claim mints epoch + 1 and
    puts the shard on the owner's ready list when it has work; every claim is granted a fresh epoch,
    the same owner's too.
    """

    shard: str
    owner: Owner
    version: int
