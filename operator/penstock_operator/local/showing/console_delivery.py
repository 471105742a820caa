"""Empties console sinks: rows wait in the outboxes of their shards until the command has printed them.

An entry is acknowledged after it was printed; a command that is killed in between prints it again at its
next run. Neighbours: `local_run` calls it every tick, `run_output` does the printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.outline import ConsoleTarget
from penstock.store.codec import decode_batch
from penstock.store.fragments import Gathering
from penstock.store.port import Acknowledge, NodeStore, ReadOutbox, ShardCounters, StoreUnreachable

READ_BYTES_MAX = 256 << 10
_ROUNDS_MAX = 8
"""Reads of one outbox in one tick, so that a flood of rows does not keep the supervision waiting."""


class ConsoleDelivery:
    """`shards` are the shard names by stage, in the order of the counters given to `deliver`."""

    def __init__(self, targets: Sequence[ConsoleTarget], shards: Mapping[str, Sequence[str]]) -> None:
        self._targets = targets
        self._shards = shards
        self._rows = {target: JsonRows(target.schema) for target in targets}
        self._printed: dict[tuple[str, str], int] = {}
        self._begun: dict[tuple[str, str], Gathering] = {}
        """By shard and sink: the pieces of a row that is not whole yet."""

    def deliver(
        self,
        store: NodeStore,
        counters: Mapping[str, Sequence[ShardCounters | None]],
        write: Callable[[list[str]], None],
        now_us: Callable[[], int],
    ) -> Iterator[tuple[str, list[int]]]:
        """Print what waits in outboxes; yields (sink, microseconds from source to here by row).

        Raises StoreUnreachable, and whatever `write` raises; neither loses a row.
        """
        pairs = [
            (shard, target)
            for target in self._targets
            for shard, known in zip(self._shards[target.stage], counters[target.stage], strict=True)
            if known is not None and known.outbox_entries
        ]
        for _ in range(_ROUNDS_MAX):
            if not pairs:
                return
            answers = self._read(store, pairs)
            again = []
            acknowledge = []
            for (shard, target), entries in zip(pairs, answers, strict=True):
                if not entries:
                    continue
                yield from self._print(shard, target, entries, write, now_us)
                acknowledge.append(
                    Acknowledge(shard, target.sink, self._printed.get((shard, target.sink), 0))
                )
                again.append((shard, target))
            if acknowledge:
                store.pipeline(acknowledge)
            pairs = again

    def _read(
        self, store: NodeStore, pairs: Sequence[tuple[str, ConsoleTarget]]
    ) -> list[list[tuple[int, int, int, bytes]]]:
        """What waits, from behind the pieces that are here already."""
        begun = [self._begun.get((shard, target.sink)) for shard, target in pairs]
        try:
            return store.pipeline(
                [
                    ReadOutbox(shard, target.sink, READ_BYTES_MAX, after=rows.taken if rows else 0)
                    for (shard, target), rows in zip(pairs, begun, strict=True)
                ]
            )
        except StoreUnreachable:
            # It may come back without what it had last.
            self._begun.clear()
            raise

    def _print(
        self,
        shard: str,
        target: ConsoleTarget,
        entries: Sequence[tuple[int, int, int, bytes]],
        write: Callable[[list[str]], None],
        now_us: Callable[[], int],
    ) -> Iterator[tuple[str, list[int]]]:
        """Entries that were printed and whose acknowledgement got lost are passed over."""
        pair = (shard, target.sink)
        printed = self._printed.get(pair, 0)
        rows = self._begun.pop(pair, None) or Gathering()
        for number, payload in rows.whole((entry[0], entry[3]) for entry in entries if entry[0] > printed):
            batch = decode_batch(payload)
            write(self._rows[target].lines(batch.rows).decode().removesuffix("\n").split("\n"))
            self._printed[pair] = number
            at_us = now_us()
            yield target.sink, [at_us - batch.base_us - delta_us for delta_us in batch.deltas_us]
        if rows.is_between:
            self._begun[pair] = rows
