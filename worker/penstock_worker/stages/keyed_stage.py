"""A keyed stage's work: entries -> groups by key -> the user's processor -> one commit.

Timers that are due fire behind the rows, as in Spark, and are taken away by the same commit. They come out as
old as they are late.

Rows of one key are handed over together and in the order of the inbox. Outputs are as old as the
oldest row of the group they came from, so that latency is never flattered.

A commit may end in the middle of an entry: it then notes how many rows of it are done (`within`). So what is
worked on at once (`part_reader`) is any number of rows from the inbox's start on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.dataflow.on_error import FAILS, OnError
from penstock.dataflow.plan import Processor, late_rows_of
from penstock.dataflow.routing_table import moved_count
from penstock.store.codec import UnreadableEntry, decode_batch
from penstock.store.fragments import is_fragment
from penstock.store.letters import INITIAL, TIMER, Letter, is_order
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Entry, FetchedShard, Load, StateWrite, Watermark
from penstock_worker.outputs.output_batch import OutputBatch, OutputRefused
from penstock_worker.process.clock import Clock
from penstock_worker.stages.calls_ahead import CallsAhead
from penstock_worker.stages.control_entries import decode, is_control
from penstock_worker.stages.due import Due, hashable
from penstock_worker.stages.event_time import InputTime, set_times
from penstock_worker.stages.failing_code import FailingCode, PoisonedBatch
from penstock_worker.stages.fragmented_rows import gathered, last_fragment
from penstock_worker.stages.keyed_part import Key, Part, is_apart
from penstock_worker.stages.letter_box import LetterBox, Ordered
from penstock_worker.stages.pair_counts import Origins, PairCounts
from penstock_worker.stages.part_reader import PartReader
from penstock_worker.stages.part_size import PartSize, fill_of
from penstock_worker.stages.spared_calls import Calls
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, Work, WorkFailed
from penstock_worker.state.cache import ShardState, StateCache, Variable
from penstock_worker.state.expiring import sweep
from penstock_worker.user_code.running import ProcessorRunner, UserCodeError
from penstock_worker.values.held import Held, TooMuch

LettersElsewhere = Callable[[OwnedShard, Entry, bytes, tuple[StateWrite, ...]], Work | None]
"""The commit that is through with an order (`earlier_letters`); None: it is carried out here."""
LOOK_GROUPS = 16
"""After so many keys, and then after twice as many, what they came to so far is looked at."""


class KeyedStage:
    """`runner` holds the user's processor; `cache` the state of the shards that the task owns. `pairs` counts
    which keys follow which, where that is asked for; of what timers put out nothing is counted."""

    def __init__(
        self,
        operator: str,
        head: Processor,
        runner: ProcessorRunner,
        cache: StateCache,
        fanout: FanoutRunner,
        bounds: Bounds,
        clock: Clock,
        *,
        tells_watermark: bool = False,
        on_error: OnError = FAILS,
        letters: LetterBox | None = None,
        poison: Sequence[PoisonedBatch] = (),
        pairs: PairCounts | None = None,
    ) -> None:
        self._operator = operator
        self._pairs = pairs
        self.failing = FailingCode(operator, runner, on_error, letters, poison, cache.load, clock)
        """What becomes of rows that code fails on."""
        self._tells = tells_watermark
        self._late_sinks = [sink.name for sink in head.late_sinks]
        self._columns = head.input.names
        self._time = InputTime() if head.by_event_time else None
        self._runner = runner
        self._cache = cache
        self._fanout = fanout
        self._bounds = bounds
        self._clock = clock
        self._makes_together = runner.takes_columns
        """Whether rows are made for the processor by columns, also those of one key alone."""
        self._states: dict[str, ShardState] = {}
        self._parts: dict[str, Part] = {}
        self.letters_elsewhere: LettersElsewhere | None = None
        """Asked of orders where the stage goes by no tables: there may have been some."""
        self._refusal = ""
        self._unreadable: dict[str, str] = {}
        self._size = PartSize()
        self._reader = PartReader(operator, head, runner, self.failing, self._size, clock)
        # What certainly fits a commit needs no reckoning.
        self._easy_bytes = bounds.commit_bytes_max // 4
        self._easy_count = bounds.outputs_per_commit_max // 4
        self._several, self._alone = Held(bounds, alone=False), Held(bounds, alone=True)
        self._ahead = (
            CallsAhead(runner, self.failing, self._several, clock, by_event_time=head.by_event_time)
            if runner.concurrent
            else None
        )

    @property
    def variables(self) -> Sequence[Variable]:
        """What state its processor declared."""
        return self._runner.variables

    def adopt(self, owned: OwnedShard) -> None:
        self._states[owned.shard] = self._cache.shard(owned)
        self.failing.adopt(owned)

    def state_of(self, shard: str) -> ShardState:
        """The state of an owned shard. KeyError for others."""
        return self._states[shard]

    def release(self, shard: str) -> None:
        self.withdraw(shard)
        self._states.pop(shard, None)
        self._parts.pop(shard, None)
        self._unreadable.pop(shard, None)
        self._reader.release(shard)
        if self._time is not None:
            self._time.release(shard)
        self.failing.release(shard)
        self._cache.drop(shard)

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        if self._time is not None:
            self._time.told(owned, fetched)
        self.withdraw(owned.shard)
        given = self._reader.given(owned, fetched)
        entries, _ = given
        if entries and is_apart(entries[0].payload):
            return None
        shard = owned.shard
        try:
            part = self._parts[shard] = self._reader.part(owned, given)
        except UnreadableEntry as unreadable:
            self._unreadable[shard] = str(unreadable)
            return None
        if self._ahead is not None:
            self._ahead.offer(owned, part, self._states[shard], self._watermark_ms(owned, part))
        return self._states[shard].missing(part.keys)

    def withdraw(self, shard: str) -> None:
        """What `wanted` was asked for is not worked after all, or anew."""
        if self._ahead is not None:
            self._ahead.withdraw(shard)

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        state = self._states[owned.shard]
        state.loaded(load, answer)
        # What is fetched together is loaded together: one refusal stops all of it before a row is worked.
        self._refusal = self._refusal or state.refusal

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        if unreadable := self._unreadable.pop(owned.shard, ""):
            raise WorkFailed(f"operator {self._operator}: in the inbox of {owned.shard}, {unreadable}")
        part = self._parts.pop(owned.shard, None)
        if part is None:
            apart = self._apart(owned, fetched.entries)
            if isinstance(apart, Work):
                return apart
            part = apart
        state = self._states[owned.shard]
        if refusal := self._refusal or state.refusal:
            raise WorkFailed(f"operator {self._operator}: {refusal}")
        refused = ""
        while True:
            try:
                return self._work(owned, part, in_hand=bool(fetched.entries), refused=refused)
            except (TooMuch, OutputRefused, UserCodeError) as error:
                state.rollback()
                self.failing.undone(owned.shard)
                self.withdraw(owned.shard)
                message = self._words(part, error)
                if part.order is not None:
                    return self._kept_again(owned, part, part.order, message)
                if isinstance(error, UserCodeError) and error.operator != self._operator:
                    rest = self.failing.steps.rest(owned.shard, error, self._clock.now_us())
                    if rest is not None and rest.until_us:
                        return rest
                    if rest is not None:
                        part = self._begun_again(owned, fetched, part)
                        continue
                is_single = len(part) < 2
                may_split = isinstance(error, TooMuch) or self._spares(error)
                if is_single and self._spares(error) and not refused:
                    refused = message
                elif is_single or not may_split:
                    raise WorkFailed(message) from error
                else:
                    self._size.given_up(len(part))
                    part = self._reader.part(owned, self._reader.given(owned, fetched))

    def _begun_again(self, owned: OwnedShard, fetched: FetchedShard, part: Part) -> Part:
        """The part anew; one that came in fragments is as it was."""
        return part if part.writes else self._reader.part(owned, self._reader.given(owned, fetched))

    def _words(self, part: Part, error: Exception) -> str:
        if isinstance(error, UserCodeError):
            return str(error)
        what = f"one {'timer' if part.due else 'row'} " if isinstance(error, TooMuch) else ""
        return f"operator {self._operator}: {what}{error}"

    def _spares(self, error: Exception) -> bool:
        """Whether what a row comes to makes it a dead letter; what code behind it raises is not its fault."""
        return self.failing.keeps_letters and not isinstance(error, UserCodeError)

    def _keep(self, owned: OwnedShard, entries: Sequence[Entry], writes: tuple[StateWrite, ...]) -> Work:
        """Pieces of a row came, and the last one did not yet."""
        note = b"" if owned.within else None
        commit = owned.commit(self._clock.now_us(), entries=entries, within=note, in_hand=True, state=writes)
        return Work(commit, (), {}, 0, 0)

    def _late_mark(self, owned: OwnedShard, entry: Entry) -> Work:
        """A table is carried out when all state is where it belongs. Marks may still be on their way then to
        shards that gained keys, and those of producers that the table does not name; here nobody goes by
        tables any more, and they say nothing."""
        version = decode(entry.payload).version
        if version > owned.counted_so_far(moved_count(self._operator)):
            raise WorkFailed(
                f"operator {self._operator}: {owned.shard} hears of version {version} of a routing table and "
                "goes by none; a task that begins anew does, where its node's store has the table"
            )
        return Work(owned.commit(self._clock.now_us(), entries=(entry,), in_hand=True), (), {}, 0, 0)

    def _apart(self, owned: OwnedShard, entries: Sequence[Entry]) -> Part | Work:
        """What is at the head and no rows: a commit; or a part, its key's state loaded."""
        kept = gathered(entries, self._bounds.commit_bytes_max // 2)
        if kept.entries:
            return self._keep(owned, kept.entries, kept.writes)
        head = entries[0]
        if is_control(head.payload):
            return self._late_mark(owned, head)
        payload = head.payload
        forget: tuple[StateWrite, ...] = ()
        if is_fragment(payload):
            last = last_fragment(owned, head, self._cache.load)
            payload, forget = last.payload, (last.forget,)
        if is_order(payload) and self.letters_elsewhere is not None:
            sent = self.letters_elsewhere(owned, head, payload, forget)
            if sent is not None:
                return sent
        part = Part()
        part.entries, part.writes = (head,), forget
        keys = self._add_apart(owned, part, head, payload)
        state = self._states[owned.shard]
        load = state.missing(keys)
        if load is not None:
            state.loaded(load, self._cache.load(load))
        return part

    def _add_apart(self, owned: OwnedShard, part: Part, entry: Entry, payload: bytes) -> Sequence[Key]:
        """A row whose last piece has come, or what is to be done with a letter; the keys that it is about."""
        if not is_order(payload):
            self._reader.add(owned, part, entry, decode_batch(payload))
            return list(part.keys)
        order = part.order = self.failing.ordered(owned, payload)
        letter = None if order is None else order.replayed
        return [] if letter is None or letter.key is None else [hashable(letter.key)]

    def _kept_again(self, owned: OwnedShard, part: Part, order: Ordered, error: str) -> Work:
        """The code has raised on a letter again."""
        writes = [*self.failing.kept_again(owned, order, error), *part.writes]
        commit = owned.commit(self._clock.now_us(), entries=part.entries, in_hand=True, state=tuple(writes))
        size_bytes = sum(len(write.value or b"") for write in writes)
        return Work(commit, (), {}, 0, 0, large=fill_of(self._bounds, 0, size_bytes, len(writes)) > 1)

    def _replay(
        self,
        state: ShardState,
        order: Ordered,
        letter: Letter,
        wall_ms: int,
        outputs: OutputBatch,
        counts: dict[str, int],
    ) -> list[Any]:
        """Work on a letter; what the stage's own code puts out. Raises as user code does."""
        if order.operator != self._operator or letter.key is None:
            self._fanout.feed_step(order.operator, letter.rows, letter.stamps_us, outputs, counts)
            return []
        key = hashable(letter.key)
        if letter.kind == INITIAL:
            self._runner.begin(state, key, letter.rows, wall_ms)
            return []
        if letter.kind == TIMER and letter.expiry_ms is not None:
            self._runner.set_timer(state, key, letter.expiry_ms, there=True)
            return self._runner.expire(state, key, letter.expiry_ms, wall_ms, self._alone)
        return self._runner.run(state, key, letter.rows, wall_ms, self._alone)

    def _work(self, owned: OwnedShard, part: Part, *, in_hand: bool, refused: str = "") -> Work:
        began_us = self._clock.monotonic_us()
        now_us = self._clock.now_us()
        state = self._states[owned.shard]
        rows = len(part.timestamps_us) + len(part.late)
        taken = self._taken(owned, part)
        state.alone = len(part) < 2
        held = self._alone if state.alone else self._several
        out_rows: list[Any] = []
        out_stamps: list[int] = []
        outputs = OutputBatch(self._bounds, owned.shard, held)
        outputs.spent = self.failing.steps.spent(owned.shard)
        counts: dict[str, int] = {}
        calls = self.failing.calls_of(owned, part, now_us, refused)
        wall_us = self._clock.wall_us()
        wall_ms = wall_us // 1000
        if self._ahead is not None and not refused:
            self._ahead.make(owned, part, state, self._watermark_ms(owned, part))
        set_times(state, now_us, wall_us, by_event_time=self._time is not None)
        if self._time is not None:
            self._runner.watermark_ms = self._watermark_ms(owned, part)
        if part.initial:
            self._begin(calls, state, part.initial, wall_ms, held)
        if part.retries:
            self.failing.try_again(state, part.retries, wall_ms, held, out_rows, out_stamps)
        first = len(out_rows)
        origins = None if self._pairs is None else self._pairs.sampled()
        self._work_groups(calls, state, part, wall_ms, held, out_rows, out_stamps, origins)
        if part.due.done:
            self._work_due(calls, state, part.due, now_us, wall_ms, held, out_rows, out_stamps)
        if part.order is not None and (letter := part.order.replayed) is not None:
            out_rows = self._replay(state, part.order, letter, wall_ms, outputs, counts)
            out_stamps = [min(letter.stamps_us, default=now_us)] * len(out_rows)
        if self._pairs is None or not origins:
            self._fanout.feed_counting(out_rows, out_stamps, outputs, counts)
        else:
            self._pairs.feed(first, origins, out_rows, out_stamps, outputs, counts)
        rows_out = counts
        if part.late:
            self._put_late(part, outputs, rows_out)
        self.failing.send(owned, part, outputs, now_us, wall_ms, rows_out)
        # Drained first: what it refuses can still be rolled back.
        drained = outputs.drain()
        if self._pairs is not None and origins:
            self._pairs.drained(owned.shard, drained)
        writes = state.take_writes()
        timers = state.take_timers()
        size_bytes = outputs.drained_bytes + state.taken_bytes
        failed = self.failing.writes(owned, part, wall_ms, rows_out)
        if failed:
            size_bytes += sum(len(write.value or b"") for write in failed)
            writes = (*writes, *failed)
        fill = 0.0
        count = len(drained) + len(writes) + len(timers)
        if size_bytes > self._easy_bytes or count > self._easy_count or self._size.is_limited:
            held.check_total(size_bytes)
            fill = fill_of(self._bounds, len(drained), size_bytes, len(writes) + len(timers))
            self._size.worked(len(part), fill)
        note = part.within
        if note is None and owned.within and part.entries:
            note = b""
        rows_out[self._operator] = len(out_rows)
        commit = owned.commit(
            now_us,
            entries=part.entries,
            rows=rows,
            within=note,
            counted=rows_out if len(rows_out) > 1 or out_rows else None,
            in_hand=in_hand,
            state=(*part.writes, *writes) if part.writes else writes,
            timers=timers,
            outputs=drained,
            watermark=owned.watermark if taken is None and self._tells else taken,
            tells=self._tells and not self.failing.holds_any,
            # where calls run side by side, larger batches are done faster
            paced=self._ahead is None,
        )
        waited_us = max(0, now_us * rows - part.rows_placed_us)
        busy_us = self._clock.monotonic_us() - began_us
        timestamps_us = [*part.timestamps_us, *part.late_us] if part.late else part.timestamps_us
        call_us = 0 if self._ahead is None else self._ahead.taken(owned.shard)
        return Work(commit, timestamps_us, rows_out, busy_us, waited_us, large=fill > 1, call_us=call_us)

    def _work_groups(
        self,
        calls: Calls,
        state: ShardState,
        part: Part,
        wall_ms: int,
        held: Held,
        out_rows: list[Any],
        out_stamps: list[int],
        origins: Origins | None,
    ) -> None:
        run = calls.run
        look_at = LOOK_GROUPS
        groups = part.groups
        if len(groups) == 1 and origins is None and not self._makes_together:
            # As in most parts where rows come one by one.
            ((key, group),) = groups.items()
            out_rows += run(state, key, group.rows, wall_ms, held)
            out_stamps += [group.oldest_us] * (len(out_rows) - len(out_stamps))
            return
        given_each = self._runner.given([group.rows for group in groups.values()])
        for done, ((key, group), given) in enumerate(zip(groups.items(), given_each, strict=True)):
            if done == look_at:
                held.check(out_rows)
                held.check_bytes(state.changed_bytes(), "changes")
                look_at *= 2
            produced = run(state, key, group.rows, wall_ms, held, given)
            if produced:
                out_rows.extend(produced)
                out_stamps.extend([group.oldest_us] * len(produced))
                if origins is not None:
                    origins.append((key, len(produced)))

    def _begin(
        self, calls: Calls, state: ShardState, initial: Mapping[Key, list[Any]], wall_ms: int, held: Held
    ) -> None:
        """Hand over initial state, before all other rows. Nothing is put out."""
        look_at = LOOK_GROUPS
        for done, (key, rows) in enumerate(initial.items()):
            if done == look_at:
                held.check_bytes(state.changed_bytes(), "changes")
                look_at *= 2
            calls.begin(state, key, rows, wall_ms)

    def _taken(self, owned: OwnedShard, part: Part) -> Watermark | None:
        """The watermark that the shard has behind this part; None for no other than before."""
        if self._time is None:
            return None
        return self._time.taken(owned, part.entries[-1].number if part.entries else owned.offset)

    def _watermark_ms(self, owned: OwnedShard, part: Part) -> int:
        """What the processor is told while a part is worked: rows come before the watermark behind them."""
        if self._time is None:
            return -1
        taken = None if part.timestamps_us or part.late else self._taken(owned, part)
        return (owned.watermark if taken is None else taken).ms or 0

    def _put_late(self, part: Part, outputs: OutputBatch, rows_out: dict[str, int]) -> None:
        """Rows that came behind the watermark go where they are asked for, and are counted."""
        rows_out[late_rows_of(self._operator)] = len(part.late)
        for sink in self._late_sinks:
            rows_out[sink] = rows_out.get(sink, 0) + len(part.late)
            outputs.put_external(sink, self._columns, part.late, part.late_us)

    def _work_due(
        self,
        calls: Calls,
        state: ShardState,
        due: Due,
        now_us: int,
        wall_ms: int,
        held: Held,
        rows: list[Any],
        stamps: list[int],
    ) -> None:
        """Fire timers, sweep what expired; what the former put out goes behind `rows`.

        It is as old as the timer is late; by event time it is new, since a watermark passes when it is told.
        """
        for name in due.done:
            state.set_timer(name, None)
        for key, found in due.swept:
            sweep(state, state.begin(key), found, self._runner.variables[found.slot])
        look_at = LOOK_GROUPS
        for done, (key, expiry_ms, due_us) in enumerate(due.fired):
            if done == look_at:
                held.check(rows)
                held.check_bytes(state.changed_bytes(), "changes")
                look_at *= 2
            produced = calls.expire(state, key, expiry_ms, wall_ms, held)
            rows.extend(produced)
            stamps.extend([due_us if self._time is None else now_us] * len(produced))

    def grew(self, owned: OwnedShard) -> bool:
        return False

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        return self.failing.due(now_us)

    def settled(self, owned: OwnedShard, work: Work) -> None:
        """The writes are durable: the cache may let clean keys go now."""
        self.withdraw(owned.shard)
        self._states[owned.shard].committed()
        self.failing.settled(owned.shard)
        if self._time is not None:
            self._time.settled(owned)

    def close(self) -> None:
        self._runner.close()
