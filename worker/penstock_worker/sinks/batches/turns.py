"""The turns of a batched sink: entries of many shards become batches, each intended, written, acknowledged.

One turn: take what the task's loop handed over; ask what became of batches that earlier owners began; gather;
tell the store what the batch has of each shard (who is refused there is no owner any more, and stays out);
write; acknowledge. A crash between any two of them leaves either an intent whose outcome can be asked, or
nothing. Neighbours: `lane` is a shard's part, `thread` takes the turns, a writer (`writer.BatchWriter`)
writes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from penstock.errors import PermanentError, RetryError
from penstock.store.ownership import OwnedShard
from penstock.store.port import Acknowledge, Answer, Intend, NodeStore, ReadOutbox
from penstock_worker.process.clock import Clock
from penstock_worker.sinks.batches.intents import Intent
from penstock_worker.sinks.batches.lane import KEPT_BYTES_MAX, Lane
from penstock_worker.sinks.batches.writer import BatchWriter, InDoubt, Outcome, Part

_LOG = logging.getLogger(__name__)

BATCH_BYTES_MAX = 4 << 20
RETRY_US = 100_000
ASK_US = 20_000
"""A batch whose writer may still be at it is asked for so often."""
PATIENCE_US = 2_000_000
"""So long its writer is left alone. One that is well ends its batch meanwhile, and loses nothing; fenced, it
would lose what it has under way for its other shards."""
TOLD_US = 5_000_000
"""What does not get on is logged so often."""


class BatchTurns:
    """`adopt`, `place`, `release` and `take_written` are the loop's thread's, `turn` is another one's."""

    def __init__(self, target: str, writer: BatchWriter, store: NodeStore, clock: Clock) -> None:
        self._target = target
        self._writer = writer
        self._store = store
        self._clock = clock
        self._events: deque[Callable[[], None]] = deque()
        self._written: deque[tuple[Part, int]] = deque()
        self._lanes: dict[str, Lane] = {}
        self._asked_us: dict[bytes, int] = {}
        """Names of batches that are open, and since when they are asked for."""
        self._unacknowledged: dict[str, int] = {}
        self._due_us = 0
        """The next batch begins then, at the earliest."""
        self._told_us = 0
        self.failure: str | None = None
        """Why nothing is written any more, until the task ends."""

    # --- the loop's thread

    def adopt(self, owned: OwnedShard) -> None:
        lane = Lane(owned, self._target, asked=self._writer.is_asked)
        self._events.append(lambda: self._lanes.__setitem__(lane.shard, lane))

    def place(self, owned: OwnedShard, entries: Sequence[tuple[int, bytes]]) -> None:
        """(pair number, payload) entries that a commit of `owned` placed, right behind those before."""
        shard, epoch = owned.shard, owned.epoch

        def placed() -> None:
            lane = self._lanes.get(shard)
            if lane is not None and lane.epoch == epoch:
                lane.place(entries)

        self._events.append(placed)

    def release(self, shard: str) -> None:
        self._events.append(lambda: self._dropped(shard))

    def take_written(self) -> list[tuple[Part, int]]:
        """What has come to be in since the last call, and when."""
        taken = []
        while self._written:
            taken.append(self._written.popleft())
        return taken

    # --- the other one

    def turn(self) -> int | None:
        """One turn. Answers in how many microseconds the next is due; None: when something was handed
        over."""
        while self._events:
            self._events.popleft()()
        if self.failure is not None:
            return None
        now_us = self._clock.monotonic_us()
        try:
            return self._turn(now_us)
        except RetryError as error:
            if now_us >= self._told_us:
                self._told_us = now_us + TOLD_US
                _LOG.warning("sink %s waits: %s", self._target, error)
            return RETRY_US
        except PermanentError as error:
            self.failure = str(error)
            return None

    def close(self) -> None:
        """What was acknowledged last is told, if the store is there; nothing more is written."""
        try:
            self._acknowledge()
        except RetryError as error:
            _LOG.info("sink %s ends: %s", self._target, error)
        self._writer.close()
        self._store.close()

    def _turn(self, now_us: int) -> int | None:
        self._acknowledge()
        self._resolve(now_us)
        for lane in list(self._lanes.values()):
            self._fill(lane)
        ready = [lane for lane in self._lanes.values() if lane.has_ready]
        if not ready:
            return ASK_US if any(lane.doubt is not None for lane in self._lanes.values()) else None
        if now_us < self._due_us:
            return self._due_us - now_us
        # Counted from here, not from the end: what comes while this one is written waits that much less.
        self._due_us = now_us + self._writer.gather_us
        self._write(ready)
        self._acknowledge()
        return 0

    def _resolve(self, now_us: int) -> None:
        """Ask for batches that others began, each once for all of its shards."""
        doubts = {lane.doubt.name for lane in self._lanes.values() if lane.doubt is not None}
        self._asked_us = {name: self._asked_us.get(name, now_us) for name in doubts}
        for name, since_us in self._asked_us.items():
            outcome = self._writer.outcome(name, fence=now_us - since_us >= PATIENCE_US)
            if outcome is Outcome.OPEN:
                continue
            for lane in self._lanes.values():
                if lane.doubt is not None and lane.doubt.name == name:
                    lane.resolved(lane.doubt, is_in=outcome is Outcome.IN)
                    self._unacknowledged[lane.shard] = lane.written

    def _fill(self, lane: Lane) -> None:
        behind = lane.reads_behind
        if behind is None:
            return
        waiting = self._store.call(ReadOutbox(lane.shard, self._target, KEPT_BYTES_MAX, after=behind))
        lane.read([(number, payload) for number, _, _, payload in waiting])

    def _write(self, ready: Sequence[Lane]) -> None:
        parts: dict[str, Part] = {}
        room = BATCH_BYTES_MAX
        for lane in ready:
            if room <= 0:
                break
            part = parts[lane.shard] = lane.take(room)
            room -= sum(map(len, part.payloads))
        name = b""
        try:
            if self._writer.is_asked:
                name = self._writer.next_name()
                parts = self._intended(name, parts)
            if parts:
                self._writer.write(name, tuple(parts.values()))
        except InDoubt:
            for part in parts.values():
                self._lanes[part.shard].in_doubt(name, part)
            self._turn_around(parts)
            raise
        except RetryError:
            for part in parts.values():
                if (lane_of := self._lanes.get(part.shard)) is not None:
                    lane_of.again(part)
            raise
        at_us = self._clock.now_us()
        for part in parts.values():
            self._lanes[part.shard].written = part.number
            self._unacknowledged[part.shard] = part.number
            self._written.append((part, at_us))
        self._turn_around(parts)

    def _intended(self, name: bytes, parts: dict[str, Part]) -> dict[str, Part]:
        """Those whose owner this still is. A lost answer is no harm: what was intended and never written is
        out."""
        calls = []
        for part in parts.values():
            lane, intent = self._lanes[part.shard], Intent(name, part.after, part.number)
            calls.append(Intend(part.shard, lane.generation, lane.epoch, self._target, intent.packed()))
        kept = {}
        for call, answer in zip(calls, self._store.pipeline(calls), strict=True):
            if answer is Answer.OK:
                kept[call.shard] = parts[call.shard]
            else:
                self._dropped(call.shard)
        return kept

    def _turn_around(self, parts: dict[str, Part]) -> None:
        """Who was in this batch is last in the next one, should there be no room for all."""
        for shard in parts:
            self._lanes[shard] = self._lanes.pop(shard)

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            told = dict(self._unacknowledged)
            self._store.pipeline([Acknowledge(shard, self._target, number) for shard, number in told.items()])
            self._unacknowledged = {}

    def _dropped(self, shard: str) -> None:
        """Somebody else goes on with it, or this task does so after its next claim."""
        self._lanes.pop(shard, None)
