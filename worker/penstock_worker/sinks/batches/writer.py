"""The port of a sink that is written in batches.

A batch has entries of one shard or of several. It has a name, which stands in the store as each shard's
intent before anything is written. What became of a batch that nobody saw the end of, the sink itself can tell
by its name. All is called from one thread; every method may raise RetryError and PermanentError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from penstock.errors import RetryError


class Outcome(StrEnum):
    """What became of a batch, for good."""

    IN = "in"
    OUT = "out"
    """It is not in, and will never be."""
    OPEN = "open"
    """Not known yet: its owner may still be at it."""


class InDoubt(RetryError):
    """The batch may be in or not: `outcome` has to be asked by its name."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a batch has of one shard: whole payloads (`store.codec`), in the order of their numbers. The first
    has a number above `after`, the last one `number`."""

    shard: str
    after: int
    number: int
    payloads: tuple[bytes, ...]


class BatchWriter(Protocol):
    @property
    def gather_us(self) -> int:
        """From the begin of a batch to that of the next one, at least: what comes meanwhile goes with it."""

    @property
    def is_asked(self) -> bool:
        """Whether batches are named, and what became of one can be asked. Else a batch that failed, or that
        an earlier owner began, is written once more."""

    def next_name(self) -> bytes:
        """The name of the batch that `write` is given next: no other one ever has it, in any process."""

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        """Write a batch whole. RetryError: nothing of it is in, nor will be. InDoubt: that is not known."""

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        """What became of a batch of this name, of whatever process. With `fence` its writer is kept from ever
        finishing it, and the answer is not OPEN."""

    def close(self) -> None: ...
