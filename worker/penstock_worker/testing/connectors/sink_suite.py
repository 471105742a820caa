"""What every sink has to hold, on its writer alone: rows are committed in a store in memory, and a reader of
the real system outside says what became of them.

A subclass says what the sink is and reads it. Neighbours: `writing` are the owners, `killed_at_line` kills,
`sink_runs` is the same by `penstock run`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.errors import PermanentError
from penstock_worker.kinds.sinks import open_batch_writer, open_writer
from penstock_worker.sinks.writer import SinkPlace, SinkWriter
from penstock_worker.stages.work import WorkFailed
from penstock_worker.testing.connectors.killed_at_line import killed_at, lines_of
from penstock_worker.testing.connectors.read_back import ReadBack, Row
from penstock_worker.testing.connectors.tested_topology import planned, sink_operators
from penstock_worker.testing.connectors.writing import (
    OPERATOR,
    AnyWriter,
    CommittedRows,
    Cut,
    SinkOwner,
    is_batched,
)

LINES_KILLED_MAX = 48
"""At so many lines of a writer it is killed: at each, where it has no more."""
CUTS_MAX = 200
COUNT = 360
"""Rows of a test; a batch has `writing.BATCH_ROWS`."""


class SinkConformance(ReadBack):
    """To be subclassed in a test's file, by a class whose name begins with Test.

    `sink` and `read_back` have to be there. pytest makes a new object for each test, in a folder of its own.
    """

    def refused(self) -> tuple[Any, str]:
        """A row of the schema that the sink cannot take, of a key that `rows` has not, and what its error has
        to say: a regular expression."""
        pytest.skip("refused is not given: this sink takes every row")

    def open_writer(self, sink: Sink, schema: Schema, place: SinkPlace) -> AnyWriter:
        """The writer that is tested: Penstock's own for this kind of sink."""
        return open_batch_writer(sink, schema, place) or open_writer(sink, schema, place)

    # --- what the tests stand on

    @pytest.fixture
    def owners(self, tmp_path: Path) -> Iterator[Owners]:
        """Rows for the sink under test, and owners of their shards."""
        made = Owners(self, tmp_path)
        yield made
        made.close()

    # --- what has to hold

    def test_each_row_is_there_once_and_those_of_a_key_in_order(self, owners: Owners, tmp_path: Path) -> None:
        owner = owners.owner()
        owner.take(*owners.shards)
        owner.work()
        owner.check()
        self.assert_written(tmp_path, owners.rows)

    def test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one(
        self, owners: Owners, tmp_path: Path
    ) -> None:
        """Each owner gets one step farther than the one before, and nobody tells anybody. What is cut off
        stays as it was: open files, transactions."""
        for cut_at in range(1, CUTS_MAX):
            owner = owners.owner(cut_at)
            try:
                owner.take(*owners.shards)
                owner.work(upto=min(owners.committed.applied().values()) + 1)
            except Cut:
                self.assert_written(tmp_path, owners.rows, whole=False)
            else:
                break
        last = owners.owner()
        last.take(*owners.shards)
        last.work()
        last.check()
        self.assert_written(tmp_path, owners.rows)

    def test_a_process_that_is_killed_at_any_line_of_its_writer_is_completed_by_the_next_one(
        self, owners: Owners, tmp_path: Path
    ) -> None:
        if is_batched(owners.writer("look")):
            pytest.skip("it is written in a thread, by a library of its own: the runs kill it")
        positions = dict.fromkeys(owners.shards, b"")
        numbers = dict.fromkeys(owners.shards, 0)

        def next_of(shard: str) -> list[tuple[int, bytes]]:
            first = numbers[shard]
            last = min(first + 3, len(owners.committed.batches[shard]))
            return [(at + 1, owners.committed.payload(shard, at)) for at in range(first, last)]

        def written(shard: str) -> bytes:
            writer = cast("SinkWriter", owners.writer("killed"))
            return writer.write(shard, positions[shard], next_of(shard))

        lines = lines_of(lambda: written(owners.shards[0]))
        kills = min(lines, LINES_KILLED_MAX)
        for kill in range(kills):
            shard = owners.shards[kill % len(owners.shards)]
            line = 1 + kill * (lines - 1) // max(1, kills - 1)
            killed_at(line, lambda: written(shard))  # noqa: B023 - called at once
            # The next owner is told less than that one was, and then the rest.
            for _ in range(2):
                if entries := next_of(shard)[:1]:
                    writer = cast("SinkWriter", owners.writer("next"))
                    positions[shard] = writer.write(shard, positions[shard], entries)
                    numbers[shard] += 1
        self.assert_written(tmp_path, owners.rows, whole=False)
        for shard in owners.shards:
            while entries := next_of(shard):
                positions[shard] = written(shard)
                numbers[shard] += len(entries)
        self.assert_written(tmp_path, owners.rows)

    def test_an_owner_that_was_replaced_and_comes_late_changes_nothing(
        self, owners: Owners, tmp_path: Path
    ) -> None:
        late, owner = owners.owner(), owners.owner()
        late.take(*owners.shards)
        late.work(upto=2)
        placed = {shard: late.commit(shard) for shard in owners.shards}
        owner.take(*owners.shards)
        owner.work(upto=3)
        for shard, entries in placed.items():
            late.deliver(shard, entries)
        late.late()
        owner.work()
        owner.check()
        self.assert_written(tmp_path, owners.rows)

    def test_shards_go_on_with_another_number_of_workers(self, owners: Owners, tmp_path: Path) -> None:
        alone = [owners.owner() for _ in owners.shards]
        for owner, shard in zip(alone, owners.shards, strict=True):
            owner.take(shard)
        for owner in alone:
            owner.work(upto=2)
        one = owners.owner()
        one.take(*owners.shards)
        one.work(upto=4)
        pair = [owners.owner() for _ in owners.shards]
        for owner, shard in zip(pair, reversed(owners.shards), strict=True):
            owner.take(shard)
            owner.work()
            owner.check()
        self.assert_written(tmp_path, owners.rows)

    def test_an_owner_that_has_nothing_to_write_changes_nothing(self, owners: Owners, tmp_path: Path) -> None:
        owner = owners.owner()
        owner.take(*owners.shards)
        owner.check()
        owner.late()
        self.assert_written(tmp_path, owners.rows, whole=False)
        owner.work(upto=1)
        first = owners.committed.first_rows(1)
        self.assert_written(tmp_path, first)
        before = list(self.read_back(tmp_path))
        for one in (owner, owners.owner()):
            one.take(*owners.shards)
            one.check()
            one.late()
            assert list(self.read_back(tmp_path)) == before
        one.work()
        self.assert_written(tmp_path, owners.rows)

    def test_a_row_that_is_refused_is_told_in_words_to_each_owner_and_holds_up_what_is_behind(
        self, owners: Owners, tmp_path: Path
    ) -> None:
        bad, told = self.refused()
        spoiled = Owners(self, tmp_path, bad)
        try:
            for _ in range(2):
                with pytest.raises((PermanentError, WorkFailed)) as caught:
                    spoiled.work_all()
                assert re.search(told, str(caught.value), re.DOTALL), (
                    f"it has to say {told!r}: {caught.value}"
                )
            self.assert_written(tmp_path, spoiled.rows, whole=False)
        finally:
            spoiled.close()


class Owners:
    """Makes owners of the shards that feed a sink; all are closed at the end."""

    def __init__(self, suite: SinkConformance, folder: Path, bad: Any = None) -> None:
        given = suite.rows(COUNT)
        rows = given if bad is None else [*given[: COUNT // 2], bad, *given[COUNT // 2 :]]
        plan = planned(folder, sink_operators(suite.schema, suite.sink(folder)))
        if not any(True for _ in plan.stage(OPERATOR).all_sinks()):
            pytest.skip(
                "this sink is a stage of its own, as foreachBatch is, and has no writer: see SinkRuns"
            )
        self.committed = CommittedRows(plan, folder, rows)
        self._open: Callable[[SinkPlace], AnyWriter] = lambda place: suite.open_writer(
            self.committed.sink, self.committed.schema, place
        )
        self._made = 0
        self._writers: list[AnyWriter] = []

    @property
    def shards(self) -> list[str]:
        return list(self.committed.batches)

    @property
    def rows(self) -> list[Row]:
        return self.committed.rows

    def owner(self, cut_at: int | None = None) -> SinkOwner:
        self._made += 1
        return SinkOwner(self.committed, self._kept, f"task-{self._made}", cut_at)

    def work_all(self) -> None:
        owner = self.owner()
        owner.take(*self.shards)
        owner.work()

    def writer(self, task: str) -> AnyWriter:
        """Another one, as it is opened by a task of this name."""
        return self._open(self.committed.place(task))

    def _kept(self, place: SinkPlace) -> AnyWriter:
        writer = self._open(place)
        self._writers.append(writer)
        return writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
