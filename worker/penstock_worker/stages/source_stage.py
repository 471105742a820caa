"""A source stage's work: read what is due of one partition, and commit position and outputs together.

A partition begins when the initial state of all operators behind it is in their inboxes (`initial_gate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from penstock.dataflow.on_error import dead_letters_of
from penstock.dataflow.plan import Stage
from penstock.dataflow.source import ADDED, Source
from penstock.errors import PermanentError
from penstock.store.letters import INPUT, Letter
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, FetchedShard, Load, Output, StateWrite, Watermark
from penstock_worker.outputs.output_batch import OutputBatch, OutputRefused
from penstock_worker.process.clock import Clock
from penstock_worker.sources.reader import ColumnReader, SourceBatch, SourceReader, SparingReader
from penstock_worker.stages.event_time import SourceTime, declared_times
from penstock_worker.stages.flush_pace import FlushPace
from penstock_worker.stages.initial_gate import END_MS, LOOK_US, InitialGate
from penstock_worker.stages.letter_box import LetterBox, Ordered
from penstock_worker.stages.letter_orders import LetterOrders
from penstock_worker.stages.part_size import PartSize, QuickRows, fill_of
from penstock_worker.stages.step_retries import StepRetries
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, Work, WorkFailed
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.held import Held, TooMuch

READ_ROWS_MAX = 1024
READ_COLUMNS_MAX = 8192
"""The same where rows are columns all the way, and quick."""
READ_BYTES_MAX = 256 << 10


class SourceStage:
    """`reader` knows the partitions by their shard names; `gate` is what the stage waits for, if anything."""

    def __init__(
        self,
        stage: Stage,
        reader: SourceReader,
        fanout: FanoutRunner,
        bounds: Bounds,
        clock: Clock,
        gate: InitialGate | None = None,
        letters: LetterBox | None = None,
    ) -> None:
        self._operator = stage.operator
        self._letters = letters
        self._retries = StepRetries(stage.policies)
        if stage.on_error.keeps_letters and isinstance(reader, SparingReader):
            reader.spare()
        self._late = stage.head.late_position if isinstance(stage.head, Source) else b""
        self._reader = reader
        self._fanout = fanout
        self._bounds = bounds
        self._clock = clock
        self._paces: dict[str, FlushPace] = {}
        self._declared = declared_times(stage.out) if stage.tells_watermark else {}
        self._times: dict[str, SourceTime] = {}
        self._is_initial = bool(stage.initial_of)
        self._gate = gate
        self._waiting: set[str] = set()
        self.lags: dict[str, tuple[int, int]] = {}
        """Of its partitions, as they were last read (`SourceBatch.lag`)."""
        gives_columns = (
            fanout.takes_columns
            and isinstance(reader, ColumnReader)
            and reader.give_columns(fanout.columns_from)
        )
        rows_max = READ_COLUMNS_MAX if gives_columns and fanout.only_columns else READ_ROWS_MAX
        self._size = PartSize(rows_max)
        self._quick = QuickRows(READ_ROWS_MAX, rows_max)
        self._several, self._alone = Held(bounds, alone=False), Held(bounds, alone=True)
        self._orders = LetterOrders(letters, self._replay, bounds, clock, again=True)

    def adopt(self, owned: OwnedShard) -> None:
        self._reader.open(owned.shard, self._position(owned), self._clock.now_us())
        self._paces[owned.shard] = FlushPace()
        if self._declared:
            self._times[owned.shard] = SourceTime(self._declared, self._clock.now_us())

    def release(self, shard: str) -> None:
        self._paces.pop(shard, None)
        self._times.pop(shard, None)
        self._waiting.discard(shard)
        self.lags.pop(shard, None)
        self._retries.release(shard)
        if self._letters is not None:
            self._letters.release(shard)
        self._reader.release(shard)

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        return None

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        raise AssertionError("a source shard has no state to load")

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        if fetched.entries:
            return self._orders.work(owned, fetched.entries[0])
        return self._read(owned)

    def _read(self, owned: OwnedShard) -> Work | Rest:
        now_us = self._clock.now_us()
        if self._gate is not None and not self._may_begin(owned, self._gate):
            return Rest(now_us + LOOK_US)
        rested_us = self._paces[owned.shard].due_us
        if self._reader.paced and now_us < rested_us:
            return Rest(rested_us)
        while True:
            began_us = self._clock.monotonic_us()
            try:
                rows_max = min(self._size.rows, self._quick.rows)
                batch = self._reader.read(
                    owned.shard, self._position(owned), rows_max, READ_BYTES_MAX, now_us
                )
                if batch.lag is not None:
                    self.lags[owned.shard] = batch.lag
                if not len(batch.rows) and not batch.finished and batch.position == owned.position:
                    return self._without_rows(owned, max(batch.next_due_us or 0, rested_us), now_us, began_us)
                held = self._several if len(batch.rows) > 1 else self._alone
                outputs = OutputBatch(self._bounds, owned.shard, held, initial=self._is_initial)
                outputs.spent = self._retries.spent(owned.shard)
                rows_out = self._fanout.feed(batch.rows, batch.timestamps_us, outputs)
                staying = self._letters_of(owned, batch, outputs, now_us, rows_out)
                drained = outputs.drain()
                outputs.held.check_total(outputs.drained_bytes)
                letters = self._letter_writes(owned, staying)
            except TooMuch as much:
                if len(batch.rows) < 2:
                    raise WorkFailed(f"source {self._operator}: one row {much}") from much
                self._size.given_up(len(batch.rows))
                continue
            except OutputRefused as refused:
                raise WorkFailed(f"source {self._operator}: {refused}") from refused
            except UserCodeError as error:
                if (rest := self._rest_after(owned, error, now_us)) is not None:
                    return rest
                continue
            except PermanentError as error:
                raise WorkFailed(f"source {self._operator}: {error}") from error
            size_bytes = outputs.drained_bytes + sum(len(write.value or b"") for write in letters)
            fill = fill_of(self._bounds, len(drained), size_bytes, len(letters))
            self._size.worked(len(batch.rows), fill)
            if len(batch.rows) and (time := self._times.get(owned.shard)) is not None:
                time.seen(outputs.latest_us, now_us)
            if fill > 1 and batch.finished and (self._declared or self._is_initial):
                # A commit in parts says of no partition that it is idle, or read: the empty one behind does.
                batch = replace(batch, finished=False)
            work = self._committed(owned, batch, rows_out, drained, letters, now_us, began_us)
            return structs.replace(work, large=True) if fill > 1 else work

    def seen(self, shard: str, at_us: int) -> None:
        """As if a row with this event time had come of a partition, wherever in the stage it is declared."""
        if (time := self._times.get(shard)) is not None:
            time.seen(dict.fromkeys(self._declared, at_us), self._clock.now_us())

    def _rest_after(self, owned: OwnedShard, error: UserCodeError, now_us: int) -> Rest | None:
        """How long the shard rests behind a step that has raised; None where it is worked again at once."""
        rest = self._retries.rest(owned.shard, error, now_us)
        if rest is None:
            raise WorkFailed(str(error)) from error
        return rest if rest.until_us else None

    def _position(self, owned: OwnedShard) -> bytes:
        return self._late if owned.position == ADDED else owned.position

    def _may_begin(self, owned: OwnedShard, gate: InitialGate) -> bool:
        """A partition that began asks no more. One that waited begins its pace and its event time anew."""
        if owned.position not in (b"", ADDED):
            return True
        if not gate.is_open():
            self._waiting.add(owned.shard)
            return False
        if owned.shard in self._waiting:
            self._waiting.discard(owned.shard)
            self.adopt(owned)
        return True

    def _without_rows(self, owned: OwnedShard, until_us: int, now_us: int, began_us: int) -> Work | Rest:
        """Nothing is there: rest, unless the watermark has news."""
        time = self._times.get(owned.shard)
        if time is None:
            return Rest(until_us)
        watermark = time.watermark(owned, now_us, finished=False)
        if watermark is None:
            if time.is_behind(owned):
                until_us = min(until_us, time.tell_at_us())
            return Rest(until_us if owned.watermark.is_idle else min(until_us, time.idle_at_us()))
        commit = owned.commit(now_us, again=True, in_hand=True, watermark=watermark, tells=True)
        return Work(commit, (), {}, self._clock.monotonic_us() - began_us, 0)

    def _committed(
        self,
        owned: OwnedShard,
        batch: SourceBatch,
        rows_out: dict[str, int],
        outputs: tuple[Output, ...],
        letters: list[StateWrite],
        now_us: int,
        began_us: int,
    ) -> Work:
        behind = batch.next_due_us is not None and batch.next_due_us <= now_us
        self._paces[owned.shard].flushed(now_us, behind=behind)
        rows_out[self._operator] = len(batch.rows)
        time = self._times.get(owned.shard)
        watermark = None if time is None else time.watermark(owned, now_us, finished=batch.finished)
        if self._is_initial and batch.finished:
            watermark = Watermark(END_MS)
        busy_us = self._clock.monotonic_us() - began_us
        self._quick.took(len(batch.rows), busy_us)
        commit = owned.commit(
            now_us,
            rows=len(batch.rows),
            counted=rows_out if len(batch.rows) or batch.bad else None,
            position=batch.position,
            finished=batch.finished,
            again=not batch.finished,
            in_hand=True,
            state=tuple(letters),
            outputs=outputs,
            watermark=watermark,
            tells=watermark is not None,
        )
        return Work(commit, batch.timestamps_us, rows_out, busy_us, 0)

    # --- dead letters -----------------------------------------------------------------------

    def _letters_of(
        self,
        owned: OwnedShard,
        batch: SourceBatch,
        outputs: OutputBatch,
        now_us: int,
        counts: dict[str, int],
    ) -> Sequence[tuple[str, Letter]]:
        """Input that is no row, and rows that steps failed on: those that the commit writes, without those
        that go to a sink with its outputs."""
        if self._letters is None or not (batch.bad or outputs.letters):
            return ()
        found = [
            (self._operator, Letter(INPUT, None, [bad.raw], [now_us], bad.error, 0, bad.place))
            for bad in batch.bad
        ]
        if found:
            counts[dead_letters_of(self._operator)] = len(found)
        record = self._reader.record_of if isinstance(self._reader, SparingReader) else None
        return self._letters.send(
            owned,
            [*found, *outputs.letters],
            now_us,
            self._clock.wall_us() // 1000,
            owned.shard,
            outputs,
            counts,
            record,
        )

    def _letter_writes(self, owned: OwnedShard, letters: Sequence[tuple[str, Letter]]) -> list[StateWrite]:
        if self._letters is None or not letters:
            return []
        return self._letters.writes(owned, letters, self._clock.wall_us() // 1000, owned.shard)

    def _replay(self, order: Ordered, letter: Letter, outputs: OutputBatch, counts: dict[str, int]) -> None:
        if letter.kind != INPUT:
            self._fanout.feed_step(order.operator, letter.rows, letter.stamps_us, outputs, counts)
        elif isinstance(self._reader, SparingReader):
            rows = [row for raw in letter.rows for row in self._reader.rows_again(raw)]
            self._fanout.feed_counting(rows, letter.stamps_us[:1] * len(rows), outputs, counts)
            counts[self._operator] = counts.get(self._operator, 0) + len(rows)

    def grew(self, owned: OwnedShard) -> bool:
        return not self._is_initial and self._reader.grew(owned.shard, self._position(owned))

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        return (), None

    def settled(self, owned: OwnedShard, work: Work) -> None:
        """The position is the owned shard's; how long the store took tells how long to gather."""
        self._retries.settled(owned.shard)
        if self._letters is not None:
            self._letters.settled(owned.shard)
        pace = self._paces.get(owned.shard)
        if pace is not None:
            pace.answered(self._clock.now_us())

    def close(self) -> None:
        self._reader.close()
