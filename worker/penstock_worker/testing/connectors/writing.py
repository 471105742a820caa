"""Shards' committed rows and their owners, who bring them into the sink under test.

The store is the twin in memory, what delivers is the product's (`sinks.delivery`, `sinks.batches`). An owner
can be cut at each of its steps: before and after each call of the store and of the writer. Neighbour:
`sink_suite` decides who is cut when.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeGuard, cast

from penstock.dataflow.plan import Plan
from penstock.store.codec import encode_batch
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Answer,
    Bounds,
    Claim,
    Claimed,
    Create,
    Enroll,
    Measure,
    OpenStore,
    Output,
    Owner,
    Publish,
    Request,
)
from penstock_worker.process.clock import SystemClock
from penstock_worker.sinks.batches.turns import BatchTurns
from penstock_worker.sinks.batches.writer import BatchWriter, Outcome, Part
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.sinks.writer import SinkPlace, SinkWriter
from penstock_worker.stages.work import WorkFailed
from penstock_worker.testing.connectors.read_back import Row
from penstock_worker.testing.connectors.tested_topology import NAME, SHARDS
from penstock_worker.values.rows import OutputShape, RowReader

OPERATOR = "of"
BATCH_ROWS = 3
WITHIN_S = 30.0
"""So long a batched sink may take for what waits. Only a failing test waits for it."""

AnyWriter = SinkWriter | BatchWriter


class Cut(BaseException):
    """An owner ends at this very place: nothing of it goes on, and nothing is cleared up."""


class CommittedRows:
    """What each shard commits: batch by batch, always the same. The sink has no row that was not."""

    def __init__(self, plan: Plan, folder: Path, rows: Sequence[Any]) -> None:
        ((self.sink, self.schema),) = plan.stage(OPERATOR).all_sinks()
        self.folder = folder
        self.uid = uuid.uuid4().hex[:12]
        self._due_us = time.time_ns() // 1000
        """Of the first batches. A system may forget at once what is too old, as Kafka does."""
        self._reader = RowReader(self.schema, collected=True)
        wire = OutputShape(self.schema).wire_rows(list(rows))
        self.rows = self._read(wire)
        self.batches: dict[str, list[list[Row]]] = {f"{OPERATOR}/{n}": [] for n in range(SHARDS)}
        dealt: dict[str, list[Row]] = {shard: [] for shard in self.batches}
        for row in wire:
            dealt[f"{OPERATOR}/{zlib.crc32(repr(row[0]).encode()) % SHARDS}"].append(row)
        for shard, of in dealt.items():
            self.batches[shard] = [of[at : at + BATCH_ROWS] for at in range(0, len(of), BATCH_ROWS)]
        self.store = MemoryStore(MemoryNode(), self.uid, Bounds())
        self._publish()

    def _publish(self) -> None:
        self.store.call(OpenStore("n"))
        place = (("w0", "n", "localhost", "u"),)
        shards = tuple((shard, f"{OPERATOR}-w0", "n") for shard in self.batches)
        self.store.call(Publish(OPERATOR, 1, 0, place, ((f"{OPERATOR}-w0", "w0", 1),), shards))
        for shard in self.batches:
            self.store.call(Create(shard))
        assert self.store.call(Enroll("w0", "u", 1, 1)) is Answer.OK

    def _read(self, wire: Sequence[Any]) -> list[Row]:
        """As a reader of the system outside has them."""
        return [tuple(row) for row in self._reader.rows(wire)]

    def first_rows(self, batches: int) -> list[Row]:
        """Those of so many batches of each shard."""
        return [row for of in self.batches.values() for batch in of[:batches] for row in self._read(batch)]

    def place(self, task: str) -> SinkPlace:
        return SinkPlace(self.folder, self.uid, NAME, durable=False, task=task)

    def payload(self, shard: str, number: int) -> bytes:
        rows = self.batches[shard][number]
        return encode_batch([self._due_us + number] * len(rows), rows)

    def applied(self) -> dict[str, int]:
        """Shard -> how many of its batches are committed."""
        counters = self.store.call(Measure(tuple(self.batches)))
        return {shard: of.commit for shard, of in zip(self.batches, counters, strict=True) if of is not None}

    def waiting(self, shards: Sequence[str]) -> int:
        """Entries that are committed and not acknowledged."""
        return sum(of.outbox_entries for of in self.store.call(Measure(tuple(shards))) if of is not None)


class SinkOwner:
    """One task's part in the sink: it takes shards, commits their next batches, and brings them there.

    `cut_at` is the step that it ends at. All of its calls are steps, so what they are follows from the sink.
    """

    def __init__(
        self,
        committed: CommittedRows,
        open_writer: Callable[[SinkPlace], AnyWriter],
        task: str,
        cut_at: int | None = None,
    ) -> None:
        self._committed = committed
        self._task = task
        self._target = committed.sink.name
        self._cut_at = cut_at
        self.steps = 0
        self._store = _SteppedStore(committed.store, self._step)
        self._owned: dict[str, OwnedShard] = {}
        self._turns: BatchTurns | None = None
        writer = open_writer(committed.place(task))
        self._writer = writer
        writers: dict[str, SinkWriter] = {}
        if is_batched(writer):
            self._turns = BatchTurns(
                self._target, _SteppedBatches(writer, self._step), self._store, SystemClock()
            )
        else:
            writers[self._target] = _SteppedWriter(cast("SinkWriter", writer), self._step)
        self._delivery = SinkDelivery(writers)

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._cut_at:
            raise Cut

    def take(self, *shards: str) -> None:
        """Claim them, and write what an earlier owner committed and did not get to."""
        for shard in shards:
            owner = Owner(f"{OPERATOR}-w0", "u/1/1", f"{self._task}.ready")
            claimed = self._store.call(Claim(shard, owner, 1))
            assert isinstance(claimed, Claimed)
            owned = self._owned[shard] = OwnedShard(shard, claimed)
            if self._turns is not None:
                self._turns.adopt(owned)
                continue
            for target in owned.unwritten():
                for _ in self._delivery.catch_up(owned, target, self._store):
                    pass

    def commit(self, shard: str) -> list[tuple[str, int, bytes]]:
        """The shard's next batch, whichever that is by what the store has. Answers what is to be written."""
        owned = self._owned[shard]
        payload = self._committed.payload(shard, owned.number)
        rows = len(self._committed.batches[shard][owned.number])
        commit = owned.commit(1, rows=rows, outputs=(Output(self._target, payload, rows, external=True),))
        return owned.settle(commit, self._store.call(commit))

    def deliver(self, shard: str, placed: Sequence[tuple[str, int, bytes]]) -> None:
        owned = self._owned[shard]
        if self._turns is not None:
            self._turns.place(owned, [(number, payload) for _, number, payload in placed])
            return
        for acknowledge, _ in self._delivery.write(owned, placed):
            self._store.call(acknowledge)

    def work(self, upto: int | None = None) -> None:
        """All batches of its shards up to this number, in turn, and all of them into the sink."""
        while True:
            left = [shard for shard in self._owned if self._owned[shard].number < self._last(shard, upto)]
            if not left:
                break
            for shard in left:
                self.deliver(shard, self.commit(shard))
        self.settle()

    def _last(self, shard: str, upto: int | None) -> int:
        there = len(self._committed.batches[shard])
        return there if upto is None else min(there, upto)

    def settle(self) -> None:
        """Until what waits of its shards is in. Raises WorkFailed."""
        if self._turns is None:
            return
        deadline_s = time.monotonic() + WITHIN_S
        while self._committed.waiting(tuple(self._owned)):
            assert time.monotonic() < deadline_s, f"rows wait for the sink for {WITHIN_S} s"
            self._turn()

    def late(self) -> None:
        """What an owner still does that another one has replaced."""
        if self._turns is not None:
            for _ in range(10):
                self._turn()

    def _turn(self) -> None:
        assert self._turns is not None
        wait_us = self._turns.turn()
        if self._turns.failure is not None:
            raise WorkFailed(f"sink {self._target}: {self._turns.failure}")
        time.sleep(min(0.02, (wait_us or 0) / 1e6))

    def check(self) -> None:
        """As a task looks at its sinks now and then. Raises WorkFailed."""
        for owned in self._owned.values():
            self._delivery.check(owned)

    def close(self) -> None:
        self._writer.close()


def is_batched(writer: AnyWriter) -> TypeGuard[BatchWriter]:
    return hasattr(writer, "outcome")


class _SteppedStore:
    """The store, with a step before and after each call. Keeps the port `NodeStore`."""

    def __init__(self, store: MemoryStore, step: Callable[[], None]) -> None:
        self._store = store
        self._step = step

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = []
        for call in calls:
            self._step()
            answers.append(self._store.call(call))
            self._step()
        return answers

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        """The store is all owners'."""


class _SteppedWriter:
    """A writer with a step before and after each write."""

    def __init__(self, writer: SinkWriter, step: Callable[[], None]) -> None:
        self._writer = writer
        self._step = step

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        self._step()
        position = self._writer.write(shard, position, entries)
        self._step()
        return position

    def check(self, shard: str, position: bytes) -> None:
        self._writer.check(shard, position)

    def sync(self, shard: str) -> None:
        self._writer.sync(shard)

    def close(self) -> None:
        self._writer.close()


class _SteppedBatches:
    """The same of a writer of batches."""

    def __init__(self, writer: BatchWriter, step: Callable[[], None]) -> None:
        self._writer = writer
        self._step = step

    @property
    def gather_us(self) -> int:
        return self._writer.gather_us

    @property
    def is_asked(self) -> bool:
        return self._writer.is_asked

    def next_name(self) -> bytes:
        return self._writer.next_name()

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        self._step()
        self._writer.write(name, parts)
        self._step()

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        self._step()
        answer = self._writer.outcome(name, fence=fence)
        self._step()
        return answer

    def close(self) -> None:
        self._writer.close()
