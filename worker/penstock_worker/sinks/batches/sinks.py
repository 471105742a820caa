"""The batched sinks of one task, a thread each.

Neighbours: `turns` is what a thread does, `sinks.delivery` hands over what commits placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.store.ownership import OwnedShard
from penstock_worker.sinks.batches.thread import BatchThread
from penstock_worker.sinks.batches.turns import BatchTurns


class BatchedSinks:
    def __init__(self, turns: Mapping[str, BatchTurns]) -> None:
        self._turns = dict(turns)
        self._threads = {name: BatchThread(of, name) for name, of in self._turns.items()}

    def __contains__(self, target: str) -> bool:
        return target in self._turns

    def adopt(self, owned: OwnedShard) -> None:
        """The shard is this task's, under a new epoch."""
        for name, turns in self._turns.items():
            turns.adopt(owned)
            self._threads[name].wake()

    def place(self, target: str, owned: OwnedShard, entries: Sequence[tuple[int, bytes]]) -> None:
        self._turns[target].place(owned, entries)
        self._threads[target].wake()

    def release(self, shard: str) -> None:
        for turns in self._turns.values():
            turns.release(shard)

    def failures(self) -> Iterator[tuple[str, str]]:
        """Sinks that cannot go on, and why."""
        for name, turns in self._turns.items():
            if turns.failure is not None:
                yield name, turns.failure

    def take_written(self) -> Iterator[tuple[str, Sequence[bytes], int]]:
        """What has come to be in since the last call: sink, payloads, and when."""
        for name, turns in self._turns.items():
            for part, at_us in turns.take_written():
                yield name, part.payloads, at_us

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()
