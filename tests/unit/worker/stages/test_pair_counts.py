"""What a task counts of an edge: keys of rows that came, and of those that were sent of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from clocks.standing_clock import StandingClock
from penstock.control.locality.pairs_row import PairsRow, row_name, unpack_row
from penstock.control.locality.summary_wire import unpack_summary
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Fanout, KeyedEdge, Processor, Stage, Step, Tasks
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, PutPairs, ReadPairs, Request, StoreFull
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.pair_counts import PUBLISH_US, PairCounts, pair_counts
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.values.held import Held

ROWS = parse_schema("tag string, land bigint")
CODE = """
def twice(row):
    return [(row.tag, row.land), (row.tag, row.land + 1)] if row.land else []
"""
EDGE = KeyedEdge("lands", (1,), 4, locality=True)


def stage_of(*, edges: tuple[KeyedEdge, ...] = (EDGE,), steps: tuple[Step, ...] = ()) -> Stage:
    head = Processor("m:Count", ROWS, (0,), 4, locality=True)
    return Stage("tags", head, Tasks(1, 1, 1), Fanout(ROWS, steps, (), edges))


class Counted:
    """One task that counts all of its batches."""

    def __init__(self, stage: Stage, folder: Path = Path(), share: float = 1.0) -> None:
        self.clock = StandingClock()
        self.fanout = FanoutRunner(stage.out, folder)
        self.counts = PairCounts(stage, self.fanout, "tags-w0", 0, self.clock, Random(3), share=share)
        self.store = MemoryStore(MemoryNode(), "t1", Bounds())

    def batch(self, *rows: tuple[str, int], before: int = 0) -> OutputBatch:
        """Rows by the key that they came of, which is the tag; `before` of them are of no known key."""
        outputs = OutputBatch(Bounds(), "tags/2", Held(Bounds(), alone=False))
        origins = [((tag,), 1) for tag, _ in rows[before:]]
        self.counts.feed(before, origins, list(rows), [7] * len(rows), outputs, {})
        self.counts.drained("tags/2", outputs.drain())
        return outputs

    def row(self) -> PairsRow:
        self.clock.us += PUBLISH_US
        self.counts.publish(self.store)
        packed = self.store.call(ReadPairs())
        return unpack_row(packed[row_name("tags", "lands", "tags-w0", 0)])[0]

    def pairs(self) -> dict[tuple[str, int], int]:
        summary = unpack_summary(self.row().summary)
        return {
            (received[0], sent[0]): count
            for (received, sent), count in zip(summary.pairs, summary.counts.tolist(), strict=True)
        }


def test_pairs_are_counted_as_rows_go_to_an_edge() -> None:
    task = Counted(stage_of())
    for _ in range(3):
        task.batch(("jazz", 1), ("rock", 2), ("jazz", 1))
    assert task.pairs() == {("jazz", 1): 6, ("rock", 2): 3}
    row = task.row()
    assert (row.rows, row.versions, row.share) == (9, (0, 0), 1.0)
    assert sum(rows for _, _, rows in row.flows) == 9
    assert {source for source, _, _ in row.flows} == {2}
    assert row.sent_bytes > 9


def test_rows_of_no_known_key_go_on_and_are_not_counted() -> None:
    task = Counted(stage_of())
    for _ in range(2):
        task.batch(("late", 9), ("jazz", 1), before=1)
    assert task.pairs() == {("jazz", 1): 2}
    assert task.row().rows == 4


def test_behind_a_step_pairs_are_of_the_key_that_rows_came_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code_of_pairs.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    step = Step("clean", "code_of_pairs:twice", Fanout(ROWS, (), (), (EDGE,)))
    task = Counted(stage_of(edges=(), steps=(step,)), tmp_path)
    for _ in range(2):
        task.batch(("jazz", 1), ("none", 0), ("rock", 5))
    assert task.pairs() == {("jazz", 1): 2, ("jazz", 2): 2, ("rock", 5): 2, ("rock", 6): 2}


def test_counts_begin_anew_with_each_table_of_either_end() -> None:
    task = Counted(stage_of())
    newest = {"tags": 0, "lands": 0}
    for operator in newest:
        task.batch(("jazz", 1))
        newest[operator] += 1
        task.clock.us += 5
        task.counts.see(newest.__getitem__)
        row = task.row()
        assert row.versions == (newest["tags"], newest["lands"])
        assert (row.rows, row.flows, unpack_summary(row.summary).records) == (0, (), 0)
        assert row.since_us < row.at_us
    assert task.counts.operators == ("tags", "lands")


def test_a_share_of_the_batches_is_counted_by_lot() -> None:
    counts = Counted(stage_of(), share=0.25).counts
    taken = sum(counts.sampled() is not None for _ in range(4000))
    assert 900 < taken < 1100


def test_counts_are_published_at_intervals_and_withdrawn_at_the_end() -> None:
    task = Counted(stage_of())
    task.row()
    task.batch(("jazz", 1))
    task.counts.publish(task.store)
    assert unpack_row(next(iter(task.store.call(ReadPairs()).values())))[0].rows == 0
    assert task.row().rows == 1
    task.counts.withdraw(task.store)
    assert task.store.call(ReadPairs()) == {}


def test_a_store_without_room_gets_none_and_nothing_else_is_the_worse_for_it() -> None:
    class Full(MemoryStore):
        def pipeline(self, calls: list[Request[object]]) -> list[object]:  # type: ignore[override]
            assert all(isinstance(call, PutPairs) for call in calls)
            raise StoreFull("no room")

    task = Counted(stage_of())
    task.store = Full(MemoryNode(), "t1", Bounds())
    task.clock.us += PUBLISH_US
    task.counts.publish(task.store)


def test_nothing_is_counted_where_it_is_not_asked_for() -> None:
    plain = stage_of(edges=(KeyedEdge("lands", (1,), 4),))
    fanout = FanoutRunner(plain.out, Path())
    assert pair_counts(plain, fanout, "tags-w0", 0, StandingClock()) is None
    assert all(edge.tap is None for edge in fanout.keyed_edges())
    asked = stage_of()
    fanout = FanoutRunner(asked.out, Path())
    assert pair_counts(asked, fanout, "tags-w0", 0, StandingClock()) is not None
    assert all(edge.tap is not None for edge in fanout.keyed_edges())
