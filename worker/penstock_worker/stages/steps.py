"""What is fused behind a stage: stateless steps, routing to keyed stages, and the outputs of one commit.

`FanoutRunner` takes a stage's rows through its map steps and hands them to an `OutputBatch`, which gathers
them by target and packs them into entries. Rows are wire rows (`rows`), each with its source timestamp, or
columns that are a sequence of such (`column_rows`): who knows columns takes these.
Neighbours: `source_stage` and `keyed_stage` call both; `user_code.running` loads the steps' functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.dataflow.expression_tree import ColumnStep
from penstock.dataflow.on_error import dead_letters_of, taken_apart
from penstock.dataflow.plan import ROWS, Calls, Fanout, Step
from penstock.dataflow.schema import Schema
from penstock.store.letters import ROWS as ROWS_OF
from penstock.store.letters import Letter
from penstock.store.stamps import Stamps, oldest
from penstock_worker.outputs.edges import EdgeRunner
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.event_time import latest_us
from penstock_worker.user_code.arguments import STEPS, decoded, step_function, sync_with_calls
from penstock_worker.user_code.async_step import AsyncCalls, CallFailed, is_async
from penstock_worker.user_code.batch_steps import batch_form, batches_of, listed_batches
from penstock_worker.user_code.forms import listed_rows
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing, raised
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows
from penstock_worker.values.held import Held, TooMuch
from penstock_worker.values.rows import OutputShape, RowReader, WireRow
from penstock_worker.values.wire_values import shown

Stamped = tuple[WireRow, int]


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
        self.takes_columns = all(taking.takes_columns for taking in (*self._edges, *self._steps))
        """Whether all that rows are given to takes them as columns,"""
        self.only_columns: bool = self.takes_columns and all(step.out.only_columns for step in self._steps)
        """and all behind that."""

    def columns_from(self) -> int:
        """Fewer rows are no sooner worked on as columns by what is next behind it, as it looks now."""
        if self._steps or self._sinks or not self._edges:
            return COLUMNS_FROM
        return min([edge.columns_from for edge in self._edges])

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
        if not len(rows):
            return
        if self._event_time is not None:
            found_us = latest_us(rows, self._event_time.column)
            if found_us is not None:
                into.latest_us[self._name] = found_us
        for sink in self._sinks:
            counts[sink] = counts.get(sink, 0) + len(rows)
            into.put_external(sink, self._columns, rows, timestamps_us)
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


def _step_runner(
    step: Step, schema: Schema, base_dir: Path
) -> _StepRunner | _BatchStepRunner | _ColumnStepRunner:
    if step.columns is not None:
        return _ColumnStepRunner(step, step.columns, schema, base_dir)
    return (_StepRunner if step.form == ROWS else _BatchStepRunner)(step, schema, base_dir)


class _StepRunner:
    """One map step: calls the user's function on each row and hands on what it returns."""

    takes_columns: bool = False

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

    takes_columns = True

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
        self.out.feed_counting(wire_rows, _all_as_old(timestamps_us, wire_rows), into, counts)

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

    takes_columns = True

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


def _all_as_old(timestamps_us: Sequence[int], rows: Sequence[WireRow]) -> Sequence[int]:
    """The oldest timestamp for each of `rows`."""
    oldest_us = oldest(timestamps_us)
    if isinstance(rows, ColumnRows):
        return Stamps.uniform(oldest_us, len(rows))
    return [oldest_us] * len(rows)


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
