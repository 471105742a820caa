"""What is fused behind a stage: stateless steps, routing to keyed stages, and the outputs of one commit.

`FanoutRunner` takes a stage's rows through its map steps and hands them to an `OutputBatch`, which gathers
them by target and packs them into entries. Rows are wire rows (`rows`), each with its source timestamp.
Neighbours: `source_stage` and `keyed_stage` call both; `user_code.running` loads the steps' functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.dataflow.expression_tree import ColumnStep
from penstock.dataflow.interval_join import EVENT_TIME, LEFT, RIGHT
from penstock.dataflow.on_error import dead_letters_of, taken_apart
from penstock.dataflow.plan import ROWS, Calls, Fanout, KeyedEdge, Projection, Step
from penstock.dataflow.routing import Key, Router
from penstock.dataflow.schema import Schema
from penstock.dataflow.wire_keys import routing_keys
from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock.store.fragments import fragments_of
from penstock.store.letters import ROWS as ROWS_OF
from penstock.store.letters import Letter
from penstock.store.port import Bounds, Output
from penstock_worker.stages.event_time import latest_us
from penstock_worker.user_code.arguments import STEPS, decoded, step_function, sync_with_calls
from penstock_worker.user_code.async_step import AsyncCalls, CallFailed, is_async
from penstock_worker.user_code.batch_steps import batch_form, batches_of, listed_batches
from penstock_worker.user_code.forms import listed_rows
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing, raised
from penstock_worker.values.held import Held, TooMuch
from penstock_worker.values.rows import OutputShape, RowReader, WireRow, no_unicode
from penstock_worker.values.wire_values import shown

ENTRY_ROWS_MAX = 256
"""A task downstream works on an entry at a time at the least; what its rows come to should fit a commit."""

Stamped = tuple[WireRow, int]
_Gathered = tuple[list[int], list[WireRow]]
"""Timestamps and rows for one target, equally long."""


class OutputRefused(PermanentError):
    """A row cannot be put out: it is too large, or holds what is no text; the message says which."""


class OutputBatch:
    """The outputs of one commit of `shard`: rows by target, packed into entries by `drain`.

    `held` says how many rows may be held on the way here, `initial` that they are initial state.
    """

    def __init__(self, bounds: Bounds, shard: str, held: Held, *, initial: bool = False) -> None:
        self.held = held
        self._initial = initial
        self.drained_bytes = 0
        """What `drain` answered last came to."""
        self._bounds = bounds
        self._shard = shard
        self._targets: dict[str, _Gathered] = {}
        self._columns: dict[str, Sequence[str]] = {}
        self._external: set[str] = set()
        self.latest_us: dict[str, int] = {}
        """Latest event times, by where they were declared."""
        self.letters: list[tuple[str, Letter]] = []
        """Steps, and rows that they failed on."""
        self.spent: frozenset[str] = frozenset()
        """Steps that were tried again often enough."""

    def target(self, name: str, columns: Sequence[str]) -> _Gathered:
        """The lists that rows for the shard `name` are to be appended to; `columns` are their names."""
        gathered = self._targets.get(name)
        if gathered is None:
            gathered = self._targets[name] = ([], [])
            self._columns[name] = columns
        return gathered

    def external(self, sink: str, columns: Sequence[str]) -> _Gathered:
        """The same for a sink outside."""
        self._external.add(sink)
        return self.target(sink, columns)

    def drain(self) -> tuple[Output, ...]:
        """Everything gathered as entries, and nothing is left here. Raises OutputRefused."""
        outputs = [
            output
            for name, (timestamps, rows) in self._targets.items()
            if rows
            for output in self._entries(name, timestamps, rows)
        ]
        self._targets.clear()
        self.drained_bytes = sum(len(output.payload) for output in outputs)
        return tuple(outputs)

    def _entries(self, name: str, timestamps: Sequence[int], rows: Sequence[WireRow]) -> Iterable[Output]:
        if len(rows) > ENTRY_ROWS_MAX and name not in self._external:
            for start in range(0, len(rows), ENTRY_ROWS_MAX):
                end = start + ENTRY_ROWS_MAX
                yield from self._entries(name, timestamps[start:end], rows[start:end])
            return
        try:
            payload = encode_batch(timestamps, rows, initial=self._initial)
        except UnicodeEncodeError:
            raise OutputRefused(f"a row for {name}: {no_unicode(rows, self._columns[name])}") from None
        if len(payload) <= self._bounds.entry_bytes_max:
            yield Output(name, payload, len(rows), name in self._external)
            return
        if len(rows) == 1:
            yield from self._fragments(name, payload, rows[0])
            return
        # A little more pieces than bytes ask for, since rows differ in size.
        pieces = min(len(rows), len(payload) * 5 // (self._bounds.entry_bytes_max * 4) + 1)
        step = -(-len(rows) // pieces)
        for start in range(0, len(rows), step):
            yield from self._entries(name, timestamps[start : start + step], rows[start : start + step])

    def _fragments(self, name: str, payload: bytes, row: WireRow) -> Iterable[Output]:
        """The entries of a row that is larger than one."""
        if len(payload) > self._bounds.row_bytes_max:
            raise OutputRefused(
                f"a row for {name} takes {len(payload)} bytes; {self._bounds.row_bytes_max} are the most for "
                f"one row. Put out several smaller ones; the row is {shown(tuple(row))}"
            )
        pieces = fragments_of(self._shard, payload, self._bounds.entry_bytes_max)
        for number, piece in enumerate(pieces, 1):
            yield Output(name, piece, int(number == len(pieces)), name in self._external)


class FanoutRunner:
    """Runs everything behind one schema's rows, those of a stage or of its step `name`. Raises
    UserCodeMissing when a step's code is not there."""

    def __init__(self, fanout: Fanout, base_dir: Path, name: str = "") -> None:
        self._name = name
        self._event_time = fanout.event_time
        self._columns = fanout.schema.names
        self._sinks = [sink.name for sink in fanout.sinks]
        self._edges = [EdgeRunner(edge, fanout.schema) for edge in fanout.edges]
        self._steps = [_step_runner(step, fanout.schema, base_dir) for step in fanout.steps]

    def keyed_edges(self) -> Iterator[EdgeRunner]:
        """All edges behind it, also behind its steps."""
        yield from self._edges
        for step in self._steps:
            yield from step.out.keyed_edges()

    def table_edges(self) -> Iterator[EdgeRunner]:
        """Those of them that are to have a routing table."""
        return (edge for edge in self.keyed_edges() if edge.edge.locality)

    def direct_edges(self) -> Sequence[EdgeRunner]:
        """The edges that no step stands before."""
        return self._edges

    def feed(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch
    ) -> dict[str, int]:
        """Take rows and their source timestamps (equally long) to every target.

        Answers how many rows each fused step put out, and each sink was given. Raises UserCodeError,
        OutputRefused.
        """
        counts: dict[str, int] = {}
        self.feed_counting(rows, timestamps_us, into, counts)
        return counts

    def feed_counting(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch, counts: dict[str, int]
    ) -> None:
        """As `feed`, adding to `counts`."""
        if not rows:
            return
        if self._event_time is not None:
            found_us = latest_us(rows, self._event_time.column)
            if found_us is not None:
                into.latest_us[self._name] = found_us
        for sink in self._sinks:
            counts[sink] = counts.get(sink, 0) + len(rows)
            gathered_us, gathered = into.external(sink, self._columns)
            gathered_us.extend(timestamps_us)
            gathered.extend(rows)
        for edge in self._edges:
            edge.feed(rows, timestamps_us, into)
        for step in self._steps:
            step.feed(rows, timestamps_us, into, counts)

    def feed_step(
        self,
        name: str,
        rows: Sequence[WireRow],
        timestamps_us: Sequence[int],
        into: OutputBatch,
        counts: dict[str, int],
    ) -> bool:
        """Take rows to the step `name` alone, as `feed_counting` does; False when there is none."""
        for step in self._steps:
            if step.name == name:
                step.feed(rows, timestamps_us, into, counts)
                return True
        return any(step.out.feed_step(name, rows, timestamps_us, into, counts) for step in self._steps)


class EdgeRunner:
    """Puts rows to the shards of one keyed stage."""

    def __init__(self, edge: KeyedEdge, schema: Schema) -> None:
        types = [schema.columns[column].type for column in edge.key_columns]
        self.edge = edge
        self.types = tuple(types)
        self.row_types = [column.type for column in schema.columns]
        self.route: Callable[[Key], int] = Router(types, edge.shards).route
        """Where keys go. Who routes by tables puts another one here before rows are fed."""
        self.tap: Callable[[Sequence[WireRow]], None] | None = None
        """Is shown rows before they are fed. Who counts pairs of keys puts one here."""
        self._operator = edge.operator
        self._columns: Sequence[str] = schema.names
        self._project: Callable[[WireRow], WireRow] | None = None
        if edge.projection is not None:
            self._project = _projecting(edge.projection)
            self._columns = (*(schema.names[at] for at in edge.key_columns), EVENT_TIME, LEFT, RIGHT)
        self._names = [f"{edge.operator}/{shard}" for shard in range(edge.shards)]
        self._keys_of = routing_keys(edge.key_columns, types)

    def feed(self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch) -> None:
        """Raises OutputRefused for a key that is no Unicode."""
        if self.tap is not None:
            self.tap(rows)
        try:
            self._feed(rows, timestamps_us, into)
        except UnicodeEncodeError:
            raise OutputRefused(f"a row for {self._operator}: {no_unicode(rows, self._columns)}") from None

    def _feed(self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch) -> None:
        route, names, project = self.route, self._names, self._project
        slots: dict[int, _Gathered] = {}
        for key, row, timestamp_us in zip(self._keys_of(rows), rows, timestamps_us, strict=True):
            shard = route(key)
            slot = slots.get(shard)
            if slot is None:
                slot = slots[shard] = into.target(names[shard], self._columns)
            slot[0].append(timestamp_us)
            slot[1].append(row if project is None else project(row))


def _projecting(of: Projection) -> Callable[[WireRow], WireRow]:
    """A row of one input of a join -> one of the join's."""
    key_columns, at = of.key_columns, of.event_column

    def left(row: WireRow) -> WireRow:
        return (*[row[column] for column in key_columns], row[at], row, None)

    def right(row: WireRow) -> WireRow:
        return (*[row[column] for column in key_columns], row[at], None, row)

    return right if of.side else left


def _step_runner(
    step: Step, schema: Schema, base_dir: Path
) -> _StepRunner | _BatchStepRunner | _ColumnStepRunner:
    if step.columns is not None:
        return _ColumnStepRunner(step, step.columns, schema, base_dir)
    return (_StepRunner if step.form == ROWS else _BatchStepRunner)(step, schema, base_dir)


class _StepRunner:
    """One map step: calls the user's function on each row and hands on what it returns."""

    def __init__(self, step: Step, schema: Schema, base_dir: Path) -> None:
        self.name = step.name
        self._called = step.function
        self._function = step_function(STEPS[ROWS], step.function, decoded(step.arguments), base_dir)
        self._calls: AsyncCalls | None = None
        if is_async(self._function):
            self._calls = AsyncCalls(self._function, step.calls or Calls())
        elif step.calls is not None and (problem := sync_with_calls(step.function, self._function)):
            raise UserCodeMissing(problem)
        self._reader = RowReader(schema)
        self._shape = OutputShape(step.out.schema)
        self._spares = step.on_error.spares_at_once
        self._calls_made = step.on_error.calls
        self.out = FanoutRunner(step.out, base_dir, step.name)

    def feed(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch, counts: dict[str, int]
    ) -> None:
        try:
            wire_rows, produced_us = self._made(rows, timestamps_us, into.held)
        except UserCodeError:
            if not self._spares and self.name not in into.spent:
                raise
            wire_rows, produced_us = self._one_by_one(rows, timestamps_us, into, counts)
        counts[self.name] = counts.get(self.name, 0) + len(wire_rows)
        self.out.feed_counting(wire_rows, produced_us, into, counts)

    def _made(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], held: Held
    ) -> tuple[Sequence[WireRow], list[int]]:
        produced: list[Any] = []
        produced_us: list[int] = []
        function = self._function
        given: Iterable[Any] = self._reader.rows(rows)
        if self._calls is not None:
            given = list(given)
            function = self._answers(self._calls, given)
        look_at = 1
        for row, timestamp_us in zip(given, timestamps_us, strict=True):
            try:
                made = listed_rows(function(row), held)
            except TooMuch:
                raise
            except BaseException as error:
                raise self._raised(f"on {shown(row)}", error) from error
            produced.extend(made)
            produced_us.extend([timestamp_us] * len(made))
            if len(produced) >= look_at:
                held.check(produced)
                look_at = 2 * len(produced)
        try:
            wire_rows = self._shape.wire_rows(produced)
        except BaseException as error:
            raise self._raised("in what it returned", error) from error
        return wire_rows, produced_us

    def _one_by_one(
        self,
        rows: Sequence[WireRow],
        timestamps_us: Sequence[int],
        into: OutputBatch,
        counts: dict[str, int],
    ) -> tuple[list[WireRow], list[int]]:
        """As `_made`, without the rows that the function fails on: these become letters."""
        wire_rows: list[WireRow] = []
        stamps_us: list[int] = []
        refused = 0
        for row, timestamp_us in zip(rows, timestamps_us, strict=True):
            try:
                made, made_us = self._made([row], [timestamp_us], into.held)
            except UserCodeError as fault:
                into.letters.append(_letter(self.name, [row], [timestamp_us], fault, self._calls_made))
                refused += 1
                continue
            wire_rows += made
            stamps_us += made_us
        _count_letters(self.name, refused, counts)
        return wire_rows, stamps_us

    def _raised(self, what: str, error: BaseException) -> UserCodeError:
        return raised(self.name, self._function, self._called, what, error)

    def _answers(self, calls: AsyncCalls, rows: Sequence[Any]) -> Callable[[Any], Any]:
        """Call async code for all rows, and give what came of it in their order."""
        try:
            results = iter(calls.results(rows))
        except CallFailed as failed:
            what = f"on {shown(rows[failed.place])}"
            raise self._raised(what, failed.error) from failed.error
        return lambda _: next(results)


class _BatchStepRunner:
    """One step on batches: calls the user's function on all rows at once, and hands on what it gives.

    Rows that come out are as old as the oldest that went in: which came of which is not known.
    """

    def __init__(self, step: Step, schema: Schema, base_dir: Path) -> None:
        self.name = step.name
        self._called = step.function
        self._function = step_function(STEPS[step.form], step.function, decoded(step.arguments), base_dir)
        self._form = batch_form(step.form, schema, step.out.schema)
        self._spares = step.on_error.spares_at_once
        self._calls_made = step.on_error.calls
        self.out = FanoutRunner(step.out, base_dir, step.name)

    def feed(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch, counts: dict[str, int]
    ) -> None:
        try:
            wire_rows = self._made(rows, into)
        except UserCodeError as fault:
            if not self._spares and self.name not in into.spent:
                raise
            self._feed_apart(rows, timestamps_us, into, counts, fault)
            return
        counts[self.name] = counts.get(self.name, 0) + len(wire_rows)
        self.out.feed_counting(wire_rows, [min(timestamps_us)] * len(wire_rows), into, counts)

    def _made(self, rows: Sequence[WireRow], into: OutputBatch) -> Sequence[WireRow]:
        try:
            result = self._function(batches_of(self._form, rows))
            return listed_batches(self._form, result, into.held)
        except TooMuch:
            raise
        except BaseException as error:
            what = f"on {len(rows)} rows, of which the first is {shown(tuple(rows[0]))}"
            raise raised(self.name, self._function, self._called, what, error) from error

    def _feed_apart(
        self,
        rows: Sequence[WireRow],
        timestamps_us: Sequence[int],
        into: OutputBatch,
        counts: dict[str, int],
        fault: UserCodeError,
    ) -> None:
        def call(some: Sequence[Stamped]) -> list[Stamped]:
            oldest_us = min(stamp for _, stamp in some)
            return [(made, oldest_us) for made in self._made([row for row, _ in some], into)]

        made = made_apart(self.name, call, rows, timestamps_us, into, counts, fault, self._calls_made)
        counts[self.name] = counts.get(self.name, 0) + len(made)
        self.out.feed_counting([row for row, _ in made], [stamp for _, stamp in made], into, counts)


class _ColumnStepRunner:
    """One step that expressions say. Arrow takes its time and its memory: only who has one pays."""

    def __init__(self, step: Step, columns: ColumnStep, schema: Schema, base_dir: Path) -> None:
        from penstock_worker.expressions.column_step import ColumnStepWork

        self.name = step.name
        self._work = ColumnStepWork(columns, schema, step.name).work
        self._spares = step.on_error.spares_at_once
        self._calls_made = step.on_error.calls
        self.out = FanoutRunner(step.out, base_dir, step.name)

    def feed(
        self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch, counts: dict[str, int]
    ) -> None:
        try:
            found, found_us = self._work(rows, timestamps_us)
        except UserCodeError as fault:
            if not self._spares and self.name not in into.spent:
                raise
            made = made_apart(
                self.name, self._work_pairs, rows, timestamps_us, into, counts, fault, self._calls_made
            )
            found, found_us = [row for row, _ in made], [stamp for _, stamp in made]
        into.held.check(found)
        counts[self.name] = counts.get(self.name, 0) + len(found)
        self.out.feed_counting(found, found_us, into, counts)

    def _work_pairs(self, some: Sequence[Stamped]) -> list[Stamped]:
        return list(zip(*self._work([row for row, _ in some], [stamp for _, stamp in some]), strict=True))


def made_apart(
    name: str,
    call: Callable[[Sequence[Stamped]], list[Stamped]],
    rows: Sequence[WireRow],
    timestamps_us: Sequence[int],
    into: OutputBatch,
    counts: dict[str, int],
    fault: UserCodeError,
    calls: int,
) -> list[Stamped]:
    """What comes of the rows in parts, without those that `call` fails on also when they are alone: these
    become letters, of so many calls."""
    refused_before = len(into.letters)

    def refuse(one: Stamped, error: Exception) -> None:
        into.letters.append(_letter(name, [one[0]], [one[1]], error, calls))

    given = list(zip(rows, timestamps_us, strict=True))
    made = taken_apart(given, call, refuse, UserCodeError, fault)
    _count_letters(name, len(into.letters) - refused_before, counts)
    return made


def _letter(
    name: str, rows: list[WireRow], stamps_us: list[int], error: Exception, calls: int
) -> tuple[str, Letter]:
    """A dead letter of a step; when and where is for the stage to say."""
    return name, Letter(ROWS_OF, None, rows, stamps_us, str(error), 0, "", calls)


def _count_letters(name: str, rows: int, counts: dict[str, int]) -> None:
    dead = dead_letters_of(name)
    counts[dead] = counts.get(dead, 0) + rows
