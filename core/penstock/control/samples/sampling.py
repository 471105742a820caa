"""From looks at a store to a policy's samples: what the stores count, beside what the tasks tell of it.

The stores count rows as they arrive and as they are committed; tasks tell, up to 100 ms later, how long those
rows waited and were worked on (`ShardRow`). A mean needs both of the same rows: within one writer `completed`
is therefore what its rows account for, on top of what was complete when it began. Neighbours: the live loop
and the cluster's operator read the stores, `snapshot` is what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.snapshot import ShardSample
from penstock.metrics.rows import ShardRow
from penstock.store.port import ShardCounters

Writer = tuple[int, int]
"""(generation, epoch): differences across two of them are missing."""


@dataclass(slots=True)
class _Told:
    """The writer that a shard's rows are of, and how many rows were complete when it began."""

    writer: Writer
    before: int


class ShardSampler:
    """One per operator and reader. Looks come in the order of time, rows read before the counters."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def take(
        self, counters: Mapping[str, ShardCounters | None], rows: Mapping[str, ShardRow]
    ) -> dict[str, ShardSample | None]:
        """A sample a shard; None where the store does not know it, sums None until its owner has told
        them."""
        return {
            shard: None if known is None else self._sample(shard, known, rows.get(shard))
            for shard, known in counters.items()
        }

    def _sample(self, shard: str, known: ShardCounters, row: ShardRow | None) -> ShardSample:
        writer = (known.generation, known.epoch)
        if row is None or (row.generation, row.epoch) != writer:
            # Claimed by another one, who has not spoken yet: the old owner's sums say nothing of it.
            return ShardSample(known.arrived_rows, known.completed_rows, writer=writer)
        # Rows are never ahead of counters that were read after them, so the least difference is the true one.
        before = known.completed_rows - row.rows
        told = self._told.get(shard)
        if told is None or told.writer != writer:
            told = self._told[shard] = _Told(writer, before)
        told.before = min(told.before, before)
        return ShardSample(
            arrived=known.arrived_rows,
            completed=told.before + row.rows,
            waited_us=row.waited_us,
            served_us=row.served_us,
            busy_us=row.busy_us,
            writer=writer,
        )
