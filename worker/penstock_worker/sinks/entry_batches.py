"""Committed entries as the batches that Spark's sinks know: numbered without a hole, the same after a kill.

A batch is one entry of the outbox: nothing of it can change any more, and neither can which entries came
before it. A sink's position is how many batches of a shard are written, so who writes an entry again gives it
the same number (decision 0040). Neighbours: `foreach` and `data_source` hand batches to user code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.manifest.document import SHARDS_MAX
from penstock.store.codec import decode_batch

BATCH_BITS = 40
"""Of a batch id that is a shard's number and a batch's."""
_UNNUMBERED = 1 << 62


@dataclass(frozen=True, slots=True)
class Batch:
    """`number` counts the batches of its shard, from 0; `rows` are wire rows."""

    number: int
    rows: list[tuple[Any, ...]]

    @property
    def position(self) -> bytes:
        """Of the sink, behind it."""
        return b"%d" % (self.number + 1)


def batches_of(position: bytes, entries: Sequence[tuple[int, bytes]]) -> Iterator[Batch]:
    """Those of entries that follow each other from `position` on."""
    first = int(position) if position else 0
    for number, (_, payload) in enumerate(entries, first):
        yield Batch(number, decode_batch(payload).rows)


def shard_number(shard: str, feeders: Sequence[str]) -> int | None:
    """A shard's number among all that write a sink fed by the stages `feeders`, which no other has; with one
    feeder the number in its name. None where it is named otherwise, as a file's is."""
    operator, _, part = shard.partition("/")
    if operator not in feeders or not (part.isascii() and part.isdigit()) or int(part) >= SHARDS_MAX:
        return None
    return feeders.index(operator) * SHARDS_MAX + int(part)


def partition_id(shard: str, feeders: Sequence[str]) -> int:
    """The same; for a shard without a number one above all numbers, made of its name."""
    number = shard_number(shard, feeders)
    if number is not None:
        return number
    digest = hashlib.blake2b(shard.encode(), digest_size=7).digest()
    return _UNNUMBERED | int.from_bytes(digest)
