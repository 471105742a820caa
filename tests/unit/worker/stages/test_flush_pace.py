"""When a paced source flushes: by itself, and in its stage on the store's twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Fanout, KeyedEdge
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, FetchedShard
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.sources.zipf import ZipfReader
from penstock_worker.stages.flush_pace import GATHER_US_MAX, GATHER_US_MIN, FlushPace
from penstock_worker.stages.part_size import QUICK_US, QuickRows
from penstock_worker.stages.source_stage import READ_COLUMNS_MAX, READ_ROWS_MAX, SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Work
from penstock_worker.values.column_rows import ColumnRows
from scenes.task_scene import TurnedClock

SHARD = "records/0"
AT_START = FetchedShard(SHARD, 1, 0, ())
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: paced}
spec:
  code: {module: unused}
  operators:
  - name: records
    source: {zipf: {keys: 10, recordBytes: 0, ratePerSecond: 100000, seed: 1}}
  - name: out
    inputs: [records]
    sink: {files: {path: out/, format: jsonl}}
"""


def paced(round_trip_us: int, flushes: int = 100) -> FlushPace:
    pace = FlushPace()
    for flush in range(flushes):
        pace.flushed(flush * 1_000_000, behind=False)
        pace.answered(flush * 1_000_000 + round_trip_us)
    pace.flushed(0, behind=False)
    return pace


def test_the_first_flush_is_due_at_once() -> None:
    assert FlushPace().due_us == 0


@pytest.mark.parametrize(
    ("round_trip_us", "gathers_us"),
    [(100, GATHER_US_MIN), (300, GATHER_US_MIN), (2_000, 8_000), (9_000, GATHER_US_MAX)],
)
def test_a_slower_store_is_gathered_for_longer_within_bounds(round_trip_us: int, gathers_us: int) -> None:
    assert paced(round_trip_us).due_us == pytest.approx(gathers_us, abs=10)


def test_one_slow_answer_changes_little_and_a_clock_that_is_set_back_or_forth_no_more() -> None:
    for answered_us in (50_000, -3_600_000_000, 3_600_000_000):
        pace = paced(1_000)
        pace.answered(answered_us)
        pace.flushed(0, behind=False)
        assert GATHER_US_MIN <= pace.due_us <= 9_000


def test_a_source_that_is_behind_does_not_gather() -> None:
    pace = paced(5_000)
    pace.flushed(123, behind=True)
    assert pace.due_us == 0
    pace.flushed(123, behind=False)
    assert pace.due_us > 0


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
def source(tmp_path: Path, clock: TurnedClock) -> SourceStage:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    stage = compile_topology(load_topology(tmp_path / "topology.yaml")).stage("records")
    assert isinstance(stage.head, ZipfSource)
    reader = ZipfReader("records", stage.head)
    return SourceStage(stage, reader, FanoutRunner(stage.out, tmp_path), Bounds(), clock)


@pytest.fixture
def owned(source: SourceStage) -> OwnedShard:
    shard = OwnedShard(SHARD, Claimed(1, 1, 0, 0, b"", 0, {}, False))
    source.adopt(shard)
    return shard


def test_a_stage_reads_full_batches_until_it_has_caught_up_and_then_rests(
    source: SourceStage, owned: OwnedShard, clock: TurnedClock
) -> None:
    clock.sleep_us(200_000)  # 20 000 records are due
    rows = []
    while isinstance(worked := source.work(owned, AT_START), Work):
        rows.append(worked.commit.consumed_rows)
        owned.settle(worked.commit, Answer.OK)
        source.settled(owned, worked)
    assert rows[:3] == [READ_ROWS_MAX, 4 * READ_ROWS_MAX, READ_COLUMNS_MAX]
    assert sum(rows) == pytest.approx(20_000, abs=20)
    assert 0 < worked.until_us - clock.time_us <= GATHER_US_MIN


class _Watched(ZipfReader):
    """Notes how many rows came, and whether as columns."""

    def read(self, *asked: Any) -> SourceBatch:
        found = super().read(*asked)
        self.came = (len(found.rows), isinstance(found.rows, ColumnRows))
        return found


def test_a_stage_is_given_columns_from_as_many_rows_on_as_the_edges_behind_it_cut(
    tmp_path: Path, clock: TurnedClock
) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    stage = compile_topology(load_topology(tmp_path / "topology.yaml")).stage("records")
    assert isinstance(stage.head, ZipfSource)
    reader = _Watched("records", stage.head)
    behind = Fanout(stage.head.schema, (), (), (KeyedEdge("count", (0,), 64),))
    source = SourceStage(stage, reader, FanoutRunner(behind, tmp_path), Bounds(), clock)
    owned = OwnedShard(SHARD, Claimed(1, 1, 0, 0, b"", 0, {}, False))
    source.adopt(owned)
    clock.sleep_us(200_000)
    came = []
    for _ in range(2):
        worked = source.work(owned, AT_START)
        assert isinstance(worked, Work)
        owned.settle(worked.commit, Answer.OK)
        source.settled(owned, worked)
        came.append(reader.came)
    assert came == [(READ_ROWS_MAX, False), (4 * READ_ROWS_MAX, True)]


def test_an_answer_that_comes_when_the_shard_is_gone_is_no_error(
    source: SourceStage, owned: OwnedShard, clock: TurnedClock
) -> None:
    clock.sleep_us(1_000)
    worked = source.work(owned, AT_START)
    assert isinstance(worked, Work)
    source.release(SHARD)
    source.settled(owned, worked)
    source.adopt(owned)
    assert isinstance(source.work(owned, AT_START), Work), "a new owner begins at once"


LIMIT_NS = 1000 * QUICK_US // 8192
"""What a row may take where parts are the largest."""


def took(quick: QuickRows, rows: int, row_ns: int) -> None:
    quick.took(rows, rows * row_ns // 1000)


def quickest() -> QuickRows:
    quick = QuickRows(1024, 8192)
    for _ in range(3):
        took(quick, quick.rows, LIMIT_NS // 2)
    return quick


def test_columns_are_read_in_larger_parts_only_while_these_are_quick() -> None:
    quick = QuickRows(1024, 8192)
    sizes = [quick.rows]
    for _ in range(3):
        took(quick, quick.rows, LIMIT_NS // 2)
        sizes.append(quick.rows)
    assert sizes == [1024, 4096, 8192, 8192]
    took(quick, 1024, LIMIT_NS)
    assert quick.rows == 8192
    took(quick, 8192, LIMIT_NS)
    assert quick.rows == 8192
    for _ in range(4):
        took(quick, quick.rows, 10 * LIMIT_NS)
    assert quick.rows == 1024
    took(quick, 1024, 7 * LIMIT_NS)
    assert quick.rows == 1024


@pytest.mark.parametrize("row_ns", [LIMIT_NS // 3, LIMIT_NS, 2 * LIMIT_NS, 3 * LIMIT_NS, 5 * LIMIT_NS])
def test_parts_of_rows_that_take_the_same_time_each_come_to_one_size(row_ns: int) -> None:
    quick = QuickRows(1024, 8192)
    sizes = []
    for _ in range(20):
        took(quick, quick.rows, row_ns)
        sizes.append(quick.rows)
    assert len(set(sizes[5:])) == 1
    assert sizes[-1] * row_ns <= 1000 * QUICK_US or sizes[-1] == 1024


def test_a_batch_that_waited_for_a_core_makes_no_other_smaller() -> None:
    quick = quickest()
    for rows in (8192, 300, 8192):
        quick.took(rows, 4 * QUICK_US)
        quick.took(rows, QUICK_US // 4)
    assert quick.rows == 8192


def test_slow_batches_in_succession_make_parts_smaller_however_few_rows_they_have() -> None:
    quick = quickest()
    sizes = []
    for _ in range(5):
        quick.took(300, 4 * QUICK_US)
        sizes.append(quick.rows)
    assert sizes == [8192, 4096, 4096, 1024, 1024]


@pytest.mark.parametrize(("between", "rows"), [(300, 4096), (4095, 4096), (4096, 8192)])
def test_slow_batches_are_in_succession_also_with_ones_less_than_half_as_large_between_them(
    between: int, rows: int
) -> None:
    quick = quickest()
    for _ in range(2):
        quick.took(8192, 4 * QUICK_US)
        quick.took(between, QUICK_US // 4)
    assert quick.rows == rows
