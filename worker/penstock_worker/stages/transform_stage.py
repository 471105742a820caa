"""The work of a `transform`: what waits in its inbox as a DataFrame, and what comes of it, in one commit.

A micro-batch is what a fetch brought, as far as it is within the bounds; while Spark works the next one
gathers. Outputs and offset are one commit, so a batch that was under way when its task was killed is worked
out anew, with other rows perhaps, and counts once. A row that came in fragments is a batch by itself.
Neighbours: `batch_stage` (the same without outputs), `spark.batch_door` is what `run` leads to, `steps` has
what comes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from msgspec import structs

from penstock.dataflow.schema import Schema
from penstock.store.codec import UnreadableEntry
from penstock.store.letters import Letter, is_order
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Entry, FetchedShard, Load, Request, StateWrite
from penstock_worker.outputs.output_batch import OutputBatch, OutputRefused
from penstock_worker.process.clock import Clock
from penstock_worker.stages.batch_stage import BatchBounds, batch_of
from penstock_worker.stages.fragmented_rows import gathered, whole_rows
from penstock_worker.stages.letter_box import LetterBox, Ordered
from penstock_worker.stages.letter_orders import LetterOrders
from penstock_worker.stages.part_size import fill_of
from penstock_worker.stages.step_retries import StepRetries
from penstock_worker.stages.steps import FanoutRunner, Stamped, made_apart
from penstock_worker.stages.work import Rest, Work, WorkFailed
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.arrow_rows import ArrowRows, unpacked
from penstock_worker.values.held import Held, TooMuch
from penstock_worker.values.rows import RowMismatch, WireRow

Run = Callable[[int, int, bytes], bytes]
"""Works out the batch of this number, of so many rows, packed by Arrow; answers with what came of it, packed
too. Raises UserCodeError for what the code or its job raises on the batch, WorkFailed for what is wrong with
any batch, RetryError where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a transform stands: its operator, and the schemas of what comes and goes."""

    operator: str
    given: Schema
    output: Schema


class TransformStage:
    """Rows gather for `every_us`, or until a batch is full. `call` calls the store. Keeps the port
    `StageWork`."""

    def __init__(
        self,
        place: Place,
        batch_bounds: BatchBounds,
        every_us: int,
        run: Run,
        fanout: FanoutRunner,
        letters: LetterBox,
        bounds: Bounds,
        call: Callable[[Request[Any]], Any],
        clock: Clock,
    ) -> None:
        self._operator = place.operator
        self._arrow = ArrowRows(place.given)
        self._shape = ArrowShape(place.output)
        self._batch_bounds = batch_bounds
        self._every_us = every_us
        self._run = run
        self._fanout = fanout
        self._letters = letters
        self._on_error = letters.policies[place.operator]
        self._retries = StepRetries(letters.policies)
        self._orders = LetterOrders(letters, self._replay, bounds, clock)
        self._bounds = bounds
        self._call = call
        self._clock = clock
        self._number = 0
        self._rested: set[str] = set()
        """Shards that gathered for long enough; what they have by now is not fetched yet."""

    def adopt(self, owned: OwnedShard) -> None:
        """What it has to know stands in the claim."""

    def release(self, shard: str) -> None:
        self._rested.discard(shard)
        self._retries.release(shard)
        self._letters.release(shard)

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        return None

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> NoReturn:
        raise AssertionError("nothing was to be loaded")

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        entries = fetched.entries
        try:
            if entries and is_order(entries[0].payload):
                return self._orders.work(owned, entries[0])
            return self._work(owned, entries)
        except UnreadableEntry as unreadable:
            text = f"operator {self._operator}: in the inbox of {owned.shard}, {unreadable}"
            raise WorkFailed(text) from unreadable
        except OutputRefused as refused:
            raise WorkFailed(f"operator {self._operator}: {refused}") from refused

    def _work(self, owned: OwnedShard, entries: Sequence[Entry]) -> Work | Rest:
        kept = gathered(entries) if entries else None
        if kept is None or kept.entries:
            return self._nothing(
                owned, kept.entries if kept else (), kept.writes if kept else (), bool(entries)
            )
        taken = batch_of(entries, self._batch_bounds)
        if len(taken) == len(entries):
            due_us = entries[0].placed_us + self._every_us
            if self._clock.now_us() < due_us:
                self._rested.add(owned.shard)
                return Rest(due_us)
            if owned.shard in self._rested:
                self._rested.discard(owned.shard)
                return self._nothing(owned, (), (), in_hand=True)
        self._rested.discard(owned.shard)
        while True:
            try:
                return self._worked(owned, taken, in_hand=len(taken) < len(entries))
            except TooMuch as much:
                if len(taken) == 1:
                    raise WorkFailed(f"operator {self._operator}: one entry's rows {much}") from much
                taken = taken[: len(taken) // 2]
            except UserCodeError as error:
                rest = self._retries.rest(owned.shard, error, self._clock.now_us())
                if rest is None:
                    raise WorkFailed(str(error)) from error
                if rest.until_us:
                    return rest

    def _worked(self, owned: OwnedShard, entries: Sequence[Entry], *, in_hand: bool) -> Work:
        began_us, monotonic_us = self._clock.now_us(), self._clock.monotonic_us()
        rows, timestamps_us, waited_us, forget = whole_rows(owned, entries, self._call, began_us)
        outputs = OutputBatch(self._bounds, owned.shard, Held(self._bounds, alone=len(entries) == 1))
        outputs.spent = self._retries.spent(owned.shard)
        rows_out: dict[str, int] = {}
        made, made_us = self._made(owned, rows, timestamps_us, outputs, rows_out)
        self._fanout.feed_counting(made, made_us, outputs, rows_out)
        staying = self._sent(owned, outputs, rows_out)
        drained = outputs.drain()
        outputs.held.check_total(outputs.drained_bytes)
        writes = (*forget, *self._letter_writes(owned, staying))
        rows_out[self._operator] = len(made)
        commit = owned.commit(
            self._clock.now_us(),
            entries=entries,
            rows=len(rows),
            counted=rows_out,
            in_hand=in_hand,
            outputs=drained,
            state=writes,
        )
        busy_us = self._clock.monotonic_us() - monotonic_us
        work = Work(commit, timestamps_us, rows_out, busy_us, waited_us)
        size_bytes = outputs.drained_bytes + sum(len(write.value or b"") for write in writes)
        is_large = fill_of(self._bounds, len(drained), size_bytes, len(writes)) > 1
        return structs.replace(work, large=True) if is_large else work

    # --- the function

    def _made(
        self,
        owned: OwnedShard,
        rows: Sequence[WireRow],
        timestamps_us: Sequence[int],
        outputs: OutputBatch,
        counts: dict[str, int],
    ) -> tuple[Sequence[WireRow], Sequence[int]]:
        """What comes of rows, and how old it is: which came of which is not known, so as the oldest."""
        try:
            made = self._called(rows, outputs.held)
            return made, [min(timestamps_us)] * len(made)
        except UserCodeError as fault:
            if not self._on_error.spares_at_once and self._operator not in outputs.spent:
                raise

            def call(some: Sequence[Stamped]) -> list[Stamped]:
                if len(outputs.letters) > self._on_error.keep:
                    # Each try costs a Spark job: where it fails on all rows that is soon known.
                    self._give_up(owned, outputs)
                oldest_us = min(stamp for _, stamp in some)
                return [(one, oldest_us) for one in self._called([row for row, _ in some], outputs.held)]

            found = made_apart(
                self._operator, call, rows, timestamps_us, outputs, counts, fault, self._on_error.calls
            )
            return [row for row, _ in found], [stamp for _, stamp in found]

    def _called(self, rows: Sequence[WireRow], held: Held) -> list[WireRow]:
        self._number += 1
        table: pa.Table = unpacked(self._run(self._number, len(rows), self._arrow.packed(rows)))
        try:
            made: list[WireRow] = [
                row for batch in table.to_batches() for row in self._shape.wire_rows(batch)
            ]
        except RowMismatch as mismatch:
            raise UserCodeError(
                self._operator, "in what its transform returned,", str(mismatch)
            ) from mismatch
        held.check(made)
        return made

    def _replay(self, order: Ordered, letter: Letter, outputs: OutputBatch, counts: dict[str, int]) -> None:
        if order.operator != self._operator:
            self._fanout.feed_step(order.operator, letter.rows, letter.stamps_us, outputs, counts)
            return
        made = self._called(letter.rows, outputs.held)
        counts[self._operator] = len(made)
        self._fanout.feed_counting(made, [min(letter.stamps_us)] * len(made), outputs, counts)

    def _sent(
        self, owned: OwnedShard, outputs: OutputBatch, counts: dict[str, int]
    ) -> Sequence[tuple[str, Letter]]:
        """The letters that the commit writes, without those that go to a sink with its outputs."""
        if not outputs.letters:
            return ()
        now_us, wall_ms = self._clock.now_us(), self._clock.wall_us() // 1000
        return self._letters.send(owned, outputs.letters, now_us, wall_ms, _place(owned), outputs, counts)

    def _letter_writes(
        self, owned: OwnedShard, letters: Sequence[tuple[str, Letter]]
    ) -> Sequence[StateWrite]:
        """Raises WorkFailed where there is no room for them."""
        if not letters:
            return ()
        return self._letters.writes(owned, letters, self._clock.wall_us() // 1000, _place(owned))

    def _give_up(self, owned: OwnedShard, outputs: OutputBatch) -> None:
        """More rows of a micro-batch fail than an operator may keep. Raises WorkFailed."""
        if self._on_error.to_sink:
            _, last = outputs.letters[-1]
            raise WorkFailed(
                f"{last.error}\nMore than {self._on_error.keep} rows of one micro-batch fail, and each costs "
                f"Spark jobs of its own: mend the cause, or have {self._operator} itself tell such rows apart"
            )
        self._letter_writes(owned, outputs.letters)

    # --- the inbox

    def _nothing(
        self, owned: OwnedShard, entries: Sequence[Entry], state: tuple[StateWrite, ...], in_hand: bool
    ) -> Work:
        """No batch is worked out: the last piece of a row did not come yet, or more is to be fetched."""
        commit = owned.commit(self._clock.now_us(), entries=entries, in_hand=in_hand, state=state)
        return Work(commit, (), {}, 0, 0)

    def grew(self, owned: OwnedShard) -> bool:
        return False

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        return (), None

    def settled(self, owned: OwnedShard, work: Work) -> None:
        self._retries.settled(owned.shard)
        self._letters.settled(owned.shard)

    def close(self) -> None:
        """Nothing is open."""


def _place(owned: OwnedShard) -> str:
    return f"inbox of {owned.shard}, behind entry {owned.offset}"
