"""Writes a shard's committed outputs into its sinks, of whatever kind, then tells the store.

The committed outbox entry is the durable intent (`docs/decisions/0004`): it cannot change any
more, so writing it twice, or late from an old owner, puts the same bytes in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.errors import PermanentError
from penstock.store.codec import decode_timestamps
from penstock.store.even_rows import read_even_stamps
from penstock.store.fragments import Gathering
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Acknowledge, NodeStore, ReadOutbox
from penstock.store.stamps import joined
from penstock_worker.sinks.batches.sinks import BatchedSinks
from penstock_worker.sinks.sync import SinkSync
from penstock_worker.sinks.writer import SinkWriter
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.running import UserCodeError

_LEFTOVER_BYTES_MAX = 1 << 20


class SinkDelivery:
    """What a task's commits place for sinks: written at once by `writers`, or apart by `batched`."""

    def __init__(
        self, writers: dict[str, SinkWriter], batched: BatchedSinks | None = None, *, durable: bool = False
    ) -> None:
        self._writers = writers
        self._batched = batched or BatchedSinks({})
        self._gathering: dict[tuple[str, str], Gathering] = {}
        """By shard and sink: what came of rows in fragments."""
        self._sync = SinkSync(self._sync_file) if durable and self._writers else None

    def write(
        self, owned: OwnedShard, placed: Iterable[tuple[str, int, bytes]]
    ) -> Iterator[tuple[Acknowledge, list[bytes]]]:
        """Write (sink, pair number, payload) entries that follow those before.

        Of a row in fragments all or nothing. Yields what to acknowledge and the payloads behind it; what is
        written in batches is acknowledged by itself. Raises WorkFailed.
        """
        by_sink: dict[str, list[tuple[int, bytes]]] = {}
        for target, number, payload in placed:
            if target in self._writers or target in self._batched:
                by_sink.setdefault(target, []).append((number, payload))
        for target, pieces in by_sink.items():
            writer = self._writers.get(target)
            if writer is None:
                self._batched.place(target, owned, pieces)
                continue
            entries = self._gathering_of(owned, target).whole(pieces)
            if not entries:
                continue
            try:
                position = writer.write(owned.shard, owned.sink_position(target), entries)
            except UserCodeError as error:
                raise WorkFailed(str(error)) from error
            except PermanentError as error:
                raise WorkFailed(f"sink {target}: {error}") from error
            yield owned.written(target, entries[-1][0], position), [payload for _, payload in entries]

    def adopt(self, owned: OwnedShard) -> None:
        """The shard is this task's from now on; before anything is written of it."""
        self._batched.adopt(owned)

    def release(self, shard: str) -> None:
        """Ownership went: what came of rows in fragments comes again, to whoever owns the shard next."""
        self._batched.release(shard)
        for target in self._writers:
            self._gathering.pop((shard, target), None)

    def _gathering_of(self, owned: OwnedShard, target: str) -> Gathering:
        gathering = self._gathering.get((owned.shard, target))
        if gathering is None:
            gathering = self._gathering[owned.shard, target] = Gathering()
        return gathering

    def catch_up(self, owned: OwnedShard, target: str, store: NodeStore) -> Iterator[list[bytes]]:
        """Write what an earlier owner committed for `target` and did not get to; acknowledges as it goes.

        That owner may still acknowledge some of it meanwhile. Then the position that was claimed with is
        an old one, and only another claim tells the new one: raises OwnershipLost.
        """
        if target not in self._writers:
            return
        cursor = owned.cursor(target)
        read = cursor.acknowledged
        while read < cursor.issued:
            waiting = store.call(ReadOutbox(owned.shard, target, _LEFTOVER_BYTES_MAX, after=read))
            if not waiting or waiting[0][0] != read + 1:
                raise OwnershipLost(owned.shard, "an earlier owner acknowledged after the claim")
            entries = [(target, number, payload) for number, _, _, payload in waiting]
            read = waiting[-1][0]
            for acknowledge, payloads in self.write(owned, entries):
                if self._sync is not None:
                    self._sync_file(target, owned.shard)
                store.call(acknowledge)
                yield payloads

    def check(self, owned: OwnedShard) -> None:
        """See that the sinks still hold what was written for a shard, and nothing else, and that batches are
        written. Raises WorkFailed."""
        for target, why in self._batched.failures():
            raise WorkFailed(f"sink {target}: {why}")
        for target, writer in self._writers.items():
            try:
                writer.check(owned.shard, owned.sink_position(target))
            except PermanentError as error:
                raise WorkFailed(f"sink {target}: {error}") from error

    def tellable(self, written: Iterable[Acknowledge]) -> list[Acknowledge]:
        """What may be acknowledged now: `written`, or in mode Disk what has been synced of this and earlier.

        Raises PermanentError when a file cannot be synced.
        """
        if self._sync is None:
            return list(written)
        self._sync.submit(written)
        return self._sync.take_synced()

    @property
    def is_syncing(self) -> bool:
        """`tellable` has more to tell soon."""
        return self._sync is not None and self._sync.is_busy

    def _sync_file(self, sink: str, shard: str) -> None:
        self._writers[sink].sync(shard)

    def take_batched(self) -> Iterator[tuple[str, Sequence[int], int]]:
        """What was written in batches since the last call: sink, the rows' timestamps, and when."""
        for target, payloads, at_us in self._batched.take_written():
            yield target, self.timestamps(payloads), at_us

    def timestamps(self, payloads: Iterable[bytes]) -> Sequence[int]:
        found = [read_even_stamps(payload) or decode_timestamps(payload) for payload in payloads]
        return found[0] if len(found) == 1 else joined(found)

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()
        self._batched.close()
        for writer in self._writers.values():
            writer.close()
