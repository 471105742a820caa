"""What several calls answer: one word, that a shard is elsewhere, or a watermark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Answer(StrEnum):
    """One-word answers of the protocol (`docs/decisions/0001-store-protocol.md`)."""

    OK = "OK"
    EXISTS = "EXISTS"
    UNKNOWN = "UNKNOWN"
    STALE = "STALE"
    DONE = "DONE"
    FENCED = "FENCED"
    CONFLICT = "CONFLICT"
    DUP = "DUP"
    GAP = "GAP"
    MOVED = "MOVED"
    MOVING = "MOVING"
    BUSY = "BUSY"
    FULL = "FULL"
    MORE = "MORE"


class ShardStatus(StrEnum):
    """Where a shard stands in one store. All but ACTIVE belong to moves between stores (`moves`).

    An owner works at ACTIVE and COPYING."""

    ACTIVE = "active"
    COPYING = "copying"
    """Being copied to another store, while its owner works."""
    FROZEN = "frozen"
    """On its way to another store; it may still come back."""
    DEPARTED = "departed"
    """Another store's; its copy is still here, and the other one has perhaps not been told to go on."""
    MOVED = "moved"
    """Another store's; only the tombstone is here."""
    INSTALLING = "installing"
    """On its way here."""


class Watermark(NamedTuple):
    """All rows with an event time before `ms` have come, or count as late. None: nothing is known.

    `is_idle`: nothing has come for a while, so nobody waits for it.
    """

    ms: int | None
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The shard's home is another store now."""

    store_id: str
