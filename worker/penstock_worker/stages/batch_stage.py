"""The work of a sink that is a stage of its own: its inbox in numbered batches, each written by one call.

What a fetch brought is a batch, as far as it is within the bounds; while it is written the next one gathers.
Before the call the shard commits which entries the batch has (`within.Batches`), behind it the offset: so
whoever takes the shard up in between calls with the same rows under the same number (decision 0040). A row
that came in fragments is a batch by itself. Neighbours: `within`, `fragmented_rows`; `spark.batch_door` is
what `write` leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.dataflow.schema import Schema
from penstock.store.codec import UnreadableEntry, decode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import Entry, FetchedShard, Load, Request, StateWrite
from penstock_worker.process.clock import Clock
from penstock_worker.stages import within
from penstock_worker.stages.fragmented_rows import gathered, whole_rows
from penstock_worker.stages.keyed_part import is_apart
from penstock_worker.stages.within import Batches
from penstock_worker.stages.work import Work, WorkFailed
from penstock_worker.values.arrow_rows import ArrowRows

BATCH_BYTES_MAX = 512 << 10
"""Half of what an inbox holds: in the other half the next batch gathers."""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Of a batch, in rows and in bytes of its entries; one entry is taken in any case."""

    rows_max: int
    bytes_max: int = BATCH_BYTES_MAX


Write = Callable[[int, int, bytes], None]
"""Writes the batch of this number, of so many rows, packed by Arrow; returns when it is written. Raises
WorkFailed where that cannot be, RetryError where nobody can tell whether it was."""


class BatchStage:
    """`call` calls the store. Keeps the port `StageWork`."""

    def __init__(
        self,
        operator: str,
        schema: Schema,
        bounds: BatchBounds,
        write: Write,
        call: Callable[[Request[Any]], Any],
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._arrow = ArrowRows(schema)
        self._bounds = bounds
        self._write = write
        self._call = call
        self._clock = clock

    def adopt(self, owned: OwnedShard) -> None:
        """What it has to know stands in the claim."""

    def release(self, shard: str) -> None:
        """Nothing is kept."""

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        return None

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> NoReturn:
        raise AssertionError("nothing was to be loaded")

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work:
        try:
            return self._work(owned, fetched)
        except UnreadableEntry as unreadable:
            text = f"operator {self._operator}: in the inbox of {owned.shard}, {unreadable}"
            raise WorkFailed(text) from unreadable

    def _work(self, owned: OwnedShard, fetched: FetchedShard) -> Work:
        noted = within.batches(owned.within)
        entries, is_open = fetched.entries, noted.last > 0
        if is_open:
            if not entries or entries[-1].number < noted.last:
                # The store hands out less now than it did before: the batch waits until it is whole.
                return self._nothing(owned, in_hand=bool(entries))
            entries = tuple(entry for entry in entries if entry.number <= noted.last)
        else:
            kept = gathered(entries) if entries else None
            if kept is None or kept.entries:
                return self._nothing(
                    owned,
                    kept.entries if kept else (),
                    state=kept.writes if kept else (),
                    in_hand=bool(entries),
                )
            entries = batch_of(entries, self._bounds)
            noted = Batches(noted.number, entries[-1].number)
            self._intend(owned, noted)
        return self._written(owned, noted.number, entries, in_hand=is_open)

    def _intend(self, owned: OwnedShard, batch: Batches) -> None:
        """Commit what the batch has, before anybody is called with it. Raises OwnershipLost."""
        intent = owned.commit(self._clock.now_us(), within=within.encode(batch), in_hand=True)
        owned.settle(intent, self._call(intent))

    def _written(self, owned: OwnedShard, number: int, entries: Sequence[Entry], *, in_hand: bool) -> Work:
        began_us, monotonic_us = self._clock.now_us(), self._clock.monotonic_us()
        rows, timestamps_us, waited_us, forget = whole_rows(owned, entries, self._call, began_us)
        self._write(number, len(rows), self._arrow.packed(rows))
        rows_out = {self._operator: len(rows)}
        commit = owned.commit(
            self._clock.now_us(),
            entries=entries,
            rows=len(rows),
            within=within.encode(Batches(number + 1)),
            counted=rows_out,
            in_hand=in_hand,
            state=forget,
        )
        busy_us = self._clock.monotonic_us() - monotonic_us
        return Work(commit, timestamps_us, rows_out, busy_us, waited_us)

    def _nothing(
        self,
        owned: OwnedShard,
        entries: Sequence[Entry] = (),
        *,
        state: tuple[StateWrite, ...] = (),
        in_hand: bool,
    ) -> Work:
        """No batch is written: pieces of a row came and the last one did not yet, or nothing did."""
        commit = owned.commit(self._clock.now_us(), entries=entries, in_hand=in_hand, state=state)
        return Work(commit, (), {}, 0, 0)

    def grew(self, owned: OwnedShard) -> bool:
        return False

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        return (), None

    def settled(self, owned: OwnedShard, work: Work) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        """Nothing is open."""


def batch_of(entries: Sequence[Entry], bounds: BatchBounds) -> tuple[Entry, ...]:
    """The first of `entries`, which are not none, that make a batch: one at the least, and a fragment, or an
    order, alone. Raises UnreadableEntry."""
    taken = rows = size_bytes = 0
    for entry in entries:
        if is_apart(entry.payload):
            break
        rows += len(decode_batch(entry.payload).rows)
        size_bytes += len(entry.payload)
        if taken and (rows > bounds.rows_max or size_bytes > bounds.bytes_max):
            break
        taken += 1
    return tuple(entries[: max(1, taken)])
