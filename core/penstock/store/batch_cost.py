"""What a batch of a shard costs whatever is in it, beside what its bytes cost.

Told by how the work changes with the size from one batch to the next: shards whose rows are dearer than
others' do not disturb so. Pure. Neighbour: `inbox_limit`.
"""

from __future__ import annotations

KNOWN = 4.0
"""Changes of size are remembered until their squares come to so much, each as a part of the size: some ten
batches of twice or half the size of the one before."""
BEFORE = 0.2
"""So much of them say beforehand that all work goes by bytes."""


class BatchCost:
    """Of one shard."""

    __slots__ = ("_busy_us", "_changes", "_fixed_bytes", "_followed", "_rest", "_size")

    def __init__(self) -> None:
        self._size = self._busy_us = 0
        self._changes = self._followed = self._rest = 0.0
        """Sums over changes of size: their squares, those as far as the work followed, and what is left of
        those, times the size."""
        self._fixed_bytes = 0.0
        """What is the same for each batch costs as much as so many bytes."""

    def fixed_us(self, size: int, busy_us: int) -> float:
        """How much of a batch of so many bytes, which took so long, was the same for any size."""
        before, before_us = self._size, self._busy_us
        self._size, self._busy_us = size, busy_us
        if before and size != before and before_us + busy_us:
            self._learn(
                (before + size) / 2,
                2 * (size - before) / (size + before),
                2 * (busy_us - before_us) / (busy_us + before_us),
            )
        return busy_us * self._fixed_bytes / max(1.0, self._fixed_bytes + size)

    def _learn(self, size: float, change: float, followed: float) -> None:
        """Where work is f + c * size, it follows a change by size / (f / c + size) of it."""
        self._changes += change * change
        self._followed += change * followed
        self._rest += change * (change - followed) * size
        if self._changes > KNOWN:
            kept = KNOWN / self._changes
            self._changes *= kept
            self._followed *= kept
            self._rest *= kept
        beforehand = BEFORE * (1 - self._changes / KNOWN)
        self._fixed_bytes = max(0.0, self._rest) / (max(self._followed, 0.01 * self._changes) + beforehand)
