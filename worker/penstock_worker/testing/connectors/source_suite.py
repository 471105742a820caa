"""What every source has to hold, on its reader alone: nothing is started but what the source itself reads.

A subclass says what the source is and what stands in it. Neighbours: `reading` are the owners, `source_runs`
is the same by `penstock run`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.source import Source
from penstock.errors import PermanentError
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.reader import SourceReader
from penstock_worker.testing.connectors.reading import (
    BYTES_MAX,
    OPERATOR,
    Owner,
    Partition,
    Patience,
    Readers,
    Row,
)
from penstock_worker.testing.connectors.tested_topology import operator, planned

FEW_ROWS = 3
REOPENED_MAX = 16
"""At so many of a partition's positions another reader begins."""
SEEDS = (1, 2, 3)
FATES = ("goes on", "killed", "less", "killed behind", "away")
"""What becomes of a reader that has given rows, and of these."""


class SourceConformance:
    """To be subclassed in a test's file, by a class whose name begins with Test.

    `topology_source` and `expected` have to be there, `feed` and `spoil` where the source can do that; pytest
    makes a new object for each test, in a folder of its own.
    """

    within_s = 20.0
    """So long the next rows may take to come. Only a failing test waits for it."""

    def topology_source(self, folder: Path) -> Mapping[str, Any]:
        """The field `source` of a manifest in `folder`, with what it reads brought there."""
        raise NotImplementedError("topology_source: say what the source under test is")

    def expected(self, folder: Path) -> Mapping[str, Sequence[Any]]:
        """What stands in each partition by now, in its order: the partition's name (its shard's, behind
        the operator's and a slash) -> rows, as `foreach` would be given them. 20 rows or more in one of
        them."""
        raise NotImplementedError("expected: say which rows the source under test has")

    def feed(self, folder: Path) -> None:
        """Let more rows come, into partitions that are there; `expected` says them from then on."""
        pytest.skip("feed is not given: no rows come later")

    def spoil(self, folder: Path) -> str:
        """Put something behind the rows that the source cannot read. Answers what its error has to say: a
        regular expression."""
        pytest.skip("spoil is not given: this source cannot be spoiled")

    def open_reader(self, operator: str, source: Source, folder: Path) -> SourceReader:
        """The reader that is tested: Penstock's own for this kind of source."""
        return open_reader(operator, source, folder)

    # --- what the tests stand on

    @pytest.fixture
    def readers(self, tmp_path: Path) -> Iterator[Readers]:
        """Makes readers of the source under test."""
        sink = operator("out", OPERATOR, sink={"files": {"path": "out/"}})
        plan = planned(tmp_path, [operator(OPERATOR, source=dict(self.topology_source(tmp_path))), sink])
        stage = plan.stage(OPERATOR)
        assert isinstance(stage.head, Source)
        made = Readers(stage.head, stage.out.schema, tmp_path, self.within_s, self.open_reader)
        yield made
        made.close()

    @pytest.fixture
    def whole(self, readers: Readers, tmp_path: Path) -> dict[str, list[Row]]:
        """Shard -> its rows, as they are expected."""
        return self._expected(readers, tmp_path)

    def _expected(self, readers: Readers, folder: Path) -> dict[str, list[Row]]:
        found = {f"{OPERATOR}/{part}": readers.shaped(rows) for part, rows in self.expected(folder).items()}
        assert sorted(found) == sorted(readers.shards()), "`expected` has to name the partitions there are"
        assert max(map(len, found.values())) >= 20, "`expected` has to have 20 rows or more in a partition"
        return found

    # --- what has to hold

    def test_each_partition_gives_its_rows_once_and_in_order(
        self, readers: Readers, whole: dict[str, list[Row]]
    ) -> None:
        partitions = [Partition(shard) for shard in whole]
        owner = readers.owner(*partitions)
        for partition in partitions:
            owner.finish(partition, len(whole[partition.shard]))
        _assert_same(partitions, whole)

    def test_whoever_goes_on_at_a_committed_position_gives_what_is_left(
        self, readers: Readers, whole: dict[str, list[Row]]
    ) -> None:
        for shard, rows in whole.items():
            first = Partition(shard)
            readers.owner(first).finish(first, len(rows), FEW_ROWS)
            _assert_same([first], whole)
            for position, before in _some(first.history, REOPENED_MAX):
                later = Partition(shard, position)
                readers.owner(later).finish(later, len(rows) - before)
                left = rows[before:]
                assert later.rows == left, f"{shard}: opened behind {before} rows, {_told(later.rows, left)}"

    @pytest.mark.parametrize("seed", SEEDS)
    def test_owners_that_are_killed_at_any_step_lose_and_double_nothing(
        self, readers: Readers, whole: dict[str, list[Row]], seed: int
    ) -> None:
        """Killed before a commit, and behind one; given less than was read; given away and back."""
        generator = random.Random(seed)
        partitions = [Partition(shard) for shard in whole]
        for partition in partitions:
            owner = readers.owner(partition)
            patience = Patience(partition, len(whole[partition.shard]), self.within_s)
            while patience.has_more():
                batch, rows = owner.look(partition, generator.randrange(1, 9))
                if not rows and batch.position == partition.position and not batch.finished:
                    # Who fetches in the background has nothing yet; killed now, it would never have.
                    patience.looked(came=False)
                    owner.rest(batch)
                    continue
                what = generator.choices(FATES, (6, 1, 2, 1, 1))[0]
                if what not in ("killed", "less"):
                    patience.looked(batch.position != partition.position)
                    partition.commit(batch, rows)
                if what in ("killed", "killed behind"):
                    owner = readers.owner(partition)
                elif what == "away":
                    owner.release(partition)
                    owner.open(partition)
        _assert_same(partitions, whole)

    def test_no_more_rows_come_than_are_wanted(self, readers: Readers, whole: dict[str, list[Row]]) -> None:
        """A slow operator behind it asks for one row at a time, then for few bytes."""
        for rows_max, bytes_max in ((1, BYTES_MAX), (BYTES_MAX, 1)):
            partitions = [Partition(shard) for shard in whole]
            owner = readers.owner(*partitions)
            for partition in partitions:
                for _ in range(FEW_ROWS):
                    _come(owner, partition, rows_max, bytes_max)
                few = len(partition.rows)
                most = FEW_ROWS if bytes_max > 1 else len(whole[partition.shard]) // 2 + FEW_ROWS
                assert few <= most, f"{partition.shard}: {few} rows in {FEW_ROWS} reads of one byte"
                owner.finish(partition, len(whole[partition.shard]))
            _assert_same(partitions, whole)

    def test_where_nothing_is_left_no_rows_come_and_nobody_waits(
        self, readers: Readers, whole: dict[str, list[Row]]
    ) -> None:
        partitions = [Partition(shard) for shard in whole]
        owner = readers.owner(*partitions)
        for partition in partitions:
            owner.finish(partition, len(whole[partition.shard]))
        for partition in partitions:
            for one in (owner, readers.owner(partition)):
                batch, rows = one.look(partition)
                assert rows == [], f"{partition.shard}: {rows} came behind the last row"
                assert batch.finished == partition.finished or not batch.finished, (
                    f"{partition.shard}: it had more to come, and is at its end for another owner"
                )
                assert batch.finished or batch.next_due_us is not None, (
                    f"{partition.shard}: a reader that has nothing says when to look again, or that it ended"
                )

    def test_partitions_go_on_with_another_number_of_workers(
        self, readers: Readers, whole: dict[str, list[Row]]
    ) -> None:
        """One worker for each partition, then one for all, then two."""
        partitions = [Partition(shard) for shard in whole]
        alone = [(readers.owner(partition), partition) for partition in partitions]
        one = [(owner, partition) for owner in [readers.owner()] for partition in partitions]
        pair = [readers.owner(), readers.owner()]
        two = [(pair[number % 2], partition) for number, partition in enumerate(partitions)]
        for dealt in (alone, one, two):
            for owner, partition in dealt:
                if dealt is not alone:
                    owner.open(partition)
            for _ in range(FEW_ROWS):
                for owner, partition in dealt:
                    _come(owner, partition, 2)
            if dealt is not two:
                for owner, partition in dealt:
                    owner.release(partition)
        for owner, partition in two:
            owner.finish(partition, len(whole[partition.shard]))
        _assert_same(partitions, whole)

    def test_rows_that_come_later_are_read_on_from_there(
        self, readers: Readers, whole: dict[str, list[Row]], tmp_path: Path
    ) -> None:
        partitions = [Partition(shard) for shard in whole]
        owner = readers.owner(*partitions)
        for partition in partitions:
            owner.finish(partition, len(whole[partition.shard]))
            assert not owner.grew(partition), f"{partition.shard}: it says that it grew, and has nothing more"
        at_rest = {partition.shard: partition.position for partition in partitions}
        self.feed(tmp_path)
        more = self._expected(readers, tmp_path)
        assert sum(map(len, more.values())) > sum(map(len, whole.values())), "`feed` brought no rows"
        for partition in partitions:
            rows = len(more[partition.shard])
            if partition.finished and rows > len(whole[partition.shard]):
                assert owner.grew(partition), (
                    f"{partition.shard}: it grew behind its end, and does not say so"
                )
            partition.finished = False
            owner.finish(partition, rows)
            taken_up = Partition(partition.shard, at_rest[partition.shard])
            readers.owner(taken_up).finish(taken_up, rows - len(whole[partition.shard]))
            left = more[partition.shard][len(whole[partition.shard]) :]
            assert taken_up.rows == left, f"{partition.shard}: taken up, {_told(taken_up.rows, left)}"
        _assert_same(partitions, more)

    def test_bad_input_is_told_in_words_by_each_owner_and_not_passed(
        self, readers: Readers, whole: dict[str, list[Row]], tmp_path: Path
    ) -> None:
        told = self.spoil(tmp_path)
        partitions = [Partition(shard) for shard in whole]
        failed: list[Partition] = []
        for partition in partitions:
            rows = len(whole[partition.shard])
            try:
                readers.owner(partition).finish(partition, rows, FEW_ROWS)
            except PermanentError as error:
                _assert_told(told, error)
                failed.append(partition)
        assert failed, f"no partition said {told!r}"
        for partition in failed:
            at = partition.position
            with pytest.raises(PermanentError) as caught:
                readers.owner(partition).finish(partition, len(whole[partition.shard]), FEW_ROWS)
            _assert_told(told, caught.value)
            assert partition.position == at, f"{partition.shard}: the position passed what cannot be read"
        for partition in partitions:
            rows_there = whole[partition.shard]
            assert partition.rows == rows_there[: len(partition.rows)], _told(partition.rows, rows_there)


def _come(owner: Owner, partition: Partition, rows_max: int, bytes_max: int = BYTES_MAX) -> None:
    """Read until something comes, or it is at its end."""
    before = len(partition.rows)
    for _ in range(1000):
        if partition.finished or len(partition.rows) > before:
            return
        owner.step(partition, rows_max, bytes_max)


def _some(history: Sequence[tuple[bytes, int]], most: int) -> list[tuple[bytes, int]]:
    """All of them, or so many, evenly, with the first and the last."""
    if len(history) <= most:
        return list(history)
    return [history[number * (len(history) - 1) // (most - 1)] for number in range(most)]


def _assert_same(partitions: Iterable[Partition], whole: Mapping[str, list[Row]]) -> None:
    for partition in partitions:
        rows = whole[partition.shard]
        assert partition.rows == rows, f"{partition.shard}: {_told(partition.rows, rows)}"


def _told(came: Sequence[Row], wanted: Sequence[Row]) -> str:
    """Where the two part, in words."""
    for place, (one, other) in enumerate(zip(came, wanted, strict=False)):
        if one != other:
            return f"row {place} is {one}, and has to be {other}"
    if len(came) < len(wanted):
        return f"{len(wanted) - len(came)} rows are missing from {wanted[len(came)]} on"
    return f"{len(came) - len(wanted)} rows are too many from {came[len(wanted)]} on"


def _assert_told(told: str, error: PermanentError) -> None:
    assert re.search(told, str(error), re.DOTALL), f"the error has to say {told!r}; it says: {error}"
