"""How much a task reads at once: adapts to what the user's code makes of it.

A commit should come every few milliseconds whatever a record costs: the byte budget of a fetch
is halved when a batch took longer than the target, and grows again when batches are cut off by the budget
while they are quick. With little load it plays no part: a batch is what waits.
"""

from __future__ import annotations

from typing import ClassVar

from penstock.store.inbox_limit import BATCH_US

TIMERS_MAX = 1024
"""Timers that a fetch asks for: about two milliseconds of the store's time."""


class BatchSize:
    """`bytes`, `shards` and `timers` are the budget of the next fetch."""

    __slots__ = ("_bytes_max", "_bytes_min", "_target_us", "bytes", "shards", "timers")

    def __init__(
        self, *, target_us: int = BATCH_US, bytes_min: int = 256, bytes_max: int = 512 << 10
    ) -> None:
        self._target_us = target_us
        self._bytes_min = bytes_min
        self._bytes_max = bytes_max
        self.bytes = 64 << 10
        self.shards = 64
        self.timers = TIMERS_MAX // 2

    def observed(self, took_us: int, read_bytes: int, read_shards: int, read_timers: int = 0) -> None:
        """A batch of `read_bytes` over `read_shards` shards, with so many timers, took `took_us`, from fetch
        to commit."""
        if took_us > self._target_us:
            # Rows give way to timers, which they set: else these would fall behind without end.
            if read_timers and self.bytes == self._bytes_min:
                self.timers = max(1, min(self.timers, read_timers) // 2)
            self.bytes = max(self._bytes_min, min(self.bytes, read_bytes) // 2)
            # Every shard taken yields one entry at least, so fewer bytes need fewer shards too.
            self.shards = max(1, min(self.shards, read_shards) // 2)
        elif took_us < self._target_us // 2:
            # Less than what is asked for comes where the next shard's inbox does not fit as a whole.
            if read_bytes * 2 >= self.bytes:
                self.bytes = min(self._bytes_max, self.bytes * 2)
            if read_shards >= self.shards:
                self.shards = min(64, self.shards * 2)
            if read_timers * 4 >= self.timers:
                self.timers = min(TIMERS_MAX, self.timers * 2)


class WholeInbox:
    """The budget of a sink's stage, always the same: a batch that one fetch brought comes whole with each
    later one, whoever fetches. It is above what an inbox holds."""

    bytes: ClassVar[int] = 2 << 20
    shards: ClassVar[int] = 1
    timers: ClassVar[int] = 0

    def observed(self, took_us: int, read_bytes: int, read_shards: int, read_timers: int = 0) -> None:
        """A call that takes seconds is no reason to hand over less."""
