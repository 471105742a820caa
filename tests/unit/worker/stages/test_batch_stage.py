"""Batches of a sink that is a stage: what one has, and what is told where an inbox cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Fanout, KeyedEdge
from penstock.store.codec import encode_batch
from penstock.store.fragments import fragments_of
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claimed, Entry, FetchedShard
from penstock_worker.outputs.output_batch import ENTRY_ROWS_MAX, OutputBatch
from penstock_worker.stages import within
from penstock_worker.stages.batch_stage import BATCH_BYTES_MAX, BatchBounds, BatchStage, batch_of
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.within import Batches, Rows
from penstock_worker.stages.work import WorkFailed
from penstock_worker.task.batch_size import WholeInbox
from penstock_worker.values.held import Held
from scenes.task_scene import TurnedClock

SCHEMA = parse_schema("n bigint")


def entry(number: int, rows: int) -> Entry:
    return Entry(number, 0, encode_batch([0] * rows, [(n,) for n in range(rows)]))


def numbers(*entries: Entry, rows_max: int = 100, bytes_max: int = BATCH_BYTES_MAX) -> list[int]:
    return [one.number for one in batch_of(entries, BatchBounds(rows_max, bytes_max))]


def test_a_batch_is_what_came_up_to_its_rows_and_bytes() -> None:
    entries = [entry(number, 30) for number in range(1, 6)]
    assert numbers(*entries, rows_max=200) == [1, 2, 3, 4, 5]
    assert numbers(*entries, rows_max=100) == [1, 2, 3]
    assert numbers(*entries, bytes_max=2 * len(entries[0].payload)) == [1, 2]


def test_one_entry_is_a_batch_however_large_it_is() -> None:
    assert numbers(entry(1, 300), entry(2, 1), rows_max=256, bytes_max=10) == [1]


def test_a_row_in_fragments_is_a_batch_by_itself() -> None:
    pieces = fragments_of("count/0", entry(0, 1).payload, 40)
    last = Entry(2, 0, pieces[-1])
    assert numbers(entry(1, 1), last, entry(3, 1)) == [1]
    assert numbers(last, entry(3, 1)) == [2]


def test_a_fetch_brings_more_than_an_inbox_holds_and_an_inbox_more_than_a_batch() -> None:
    bounds, whole = Bounds(), WholeInbox()
    whole.observed(60_000_000, 1 << 20, 1)
    assert whole.bytes >= bounds.inbox_bytes_max + bounds.entry_bytes_max
    assert bounds.inbox_bytes_max >= BATCH_BYTES_MAX * 2
    assert ENTRY_ROWS_MAX == 256, "the least that rowsMax may be"


def test_what_is_noted_of_batches_is_read_again_and_other_notes_are_none_of_them() -> None:
    assert within.batches(within.encode(Batches(7, 12))) == Batches(7, 12)
    assert within.batches(b"") == within.batches(within.encode(Rows(3, 4))) == Batches(0, 0)


def test_an_entry_that_cannot_be_read_fails_the_sink_before_anything_is_intended() -> None:
    calls: list[object] = []
    stage = BatchStage("out", SCHEMA, BatchBounds(256), lambda *_: None, calls.append, TurnedClock())
    owned = OwnedShard("out/0", Claimed(1, 1, 0, 0, b"", 1, {}, finished=False))
    with pytest.raises(WorkFailed, match="operator out: in the inbox of out/0, an entry of 2 bytes"):
        stage.work(owned, FetchedShard("out/0", 1, 0, (Entry(1, 0, b"\x01\x02"),)))
    assert calls == []


def test_rows_of_all_kinds_go_to_the_one_shard_of_an_edge_without_key() -> None:
    schema = parse_schema("word string, n bigint")
    fanout = FanoutRunner(Fanout(schema, (), (), (KeyedEdge("out", (), 1),)), Path())
    outputs = OutputBatch(Bounds(), "count/3", Held(Bounds(), alone=False))
    fanout.feed([("a", 1), (None, 2), ("b", None)], [0, 0, 0], outputs)
    assert [(output.target, output.rows, output.external) for output in outputs.drain()] == [
        ("out/0", 3, False)
    ]
