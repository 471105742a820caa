"""Micro-batches of a transform: when one is worked out, what it has, and what one commit holds of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.on_error import DEAD_LETTER, FAILS, OnError
from penstock.dataflow.plan import Fanout, Processor, Stage, Tasks, Transform
from penstock.store.codec import decode_batch, decode_timestamps, encode_batch
from penstock.store.letters import DROP, REPLAY, encode_order, letters_in
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, Entry, FetchedShard, Load, Scan
from penstock_worker.stages.batch_stage import BatchBounds
from penstock_worker.stages.letter_box import LetterBox
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.transform_stage import Place, TransformStage
from penstock_worker.stages.work import Rest, Work, WorkFailed
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.arrow_rows import packed_table, unpacked
from scenes.task_scene import TurnedClock

SCHEMA = parse_schema("n bigint")


class Spark:
    """Stands for the main process: doubles what is over 1, and raises on a 13 as long as it is not mended."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.name = "n"
        self.is_mended = False

    def run(self, number: int, rows: int, records: bytes) -> bytes:
        column = unpacked(records)["n"].combine_chunks()
        assert len(column) == rows
        self.batches.append((number, column.to_pylist()))
        if 13 in self.batches[-1][1] and not self.is_mended:
            raise UserCodeError("made", "code:made raised", "ValueError: 13")
        kept = pc.multiply(column.filter(pc.greater(column, 1)), 2)
        return packed_table(pa.table({"n": kept if self.name == "n" else kept.cast(pa.int32())}))


def entry(number: int, placed_us: int, *rows: int) -> Entry:
    return Entry(number, placed_us, encode_batch([10 * n for n in rows], [(n,) for n in rows]))


def fetched(*entries: Entry) -> FetchedShard:
    return FetchedShard("made/0", 1, 0, entries)


class Scene:
    def __init__(self, every_us: int = 0, rows_max: int = 256, on_error: OnError = FAILS) -> None:
        self.spark, self.clock = Spark(), TurnedClock()
        out = Fanout(SCHEMA, (), (ConsoleSink("out"),), ())
        head = Processor("", SCHEMA, (), 1, transform=Transform("code:made"))
        stage = Stage("made", head, Tasks(1, 1, 1), out, on_error=on_error)
        self.kept: dict[bytes, bytes] = {}
        """What commits wrote of letters."""
        self.stage = TransformStage(
            Place("made", SCHEMA, SCHEMA), BatchBounds(rows_max), every_us, self.spark.run,
            FanoutRunner(out, Path()), LetterBox(stage, self._load), Bounds(), lambda request: None,
            self.clock,
        )  # fmt: skip
        self.owned = OwnedShard("made/0", Claimed(1, 1, 0, 0, b"", 1, {}, finished=False))

    def work(self, *entries: Entry) -> Work | Rest:
        return self.stage.work(self.owned, fetched(*entries))

    def settle(self, work: Work) -> None:
        for write in work.commit.state:
            assert write.field is not None
            if write.value is None:
                self.kept.pop(write.field, None)
            else:
                self.kept[write.field] = write.value
        self.owned.settle(work.commit, Answer.OK)
        self.stage.settled(self.owned, work)

    def _load(self, call: Load | Scan) -> object:
        assert isinstance(call, Load)
        return [self.kept.get(field) for field in call.fields]

    @property
    def letters(self) -> list[list[int]]:
        return sorted([row[0] for row in letter.rows] for letter in letters_in(self.kept).values())


def rows_of(work: Work | Rest) -> list[int]:
    assert isinstance(work, Work)
    return [row[0] for output in work.commit.outputs for row in decode_batch(output.payload).rows]


def test_what_waits_is_one_batch_and_its_outputs_are_one_commit_with_its_entries() -> None:
    scene = Scene()
    work = scene.work(entry(1, 0, 1, 2), entry(2, 0, 3))
    assert isinstance(work, Work)
    assert scene.spark.batches == [(1, [1, 2, 3])]
    (output,) = work.commit.outputs
    assert [list(row) for row in decode_batch(output.payload).rows] == [[4], [6]]
    assert decode_timestamps(output.payload) == [10, 10]
    assert (work.rows_out, list(work.timestamps_us)) == ({"made": 2, "out": 2}, [10, 20, 30])
    assert work.commit.offset == 2


def test_rows_gather_for_as_long_as_they_may_and_what_came_meanwhile_is_fetched_first() -> None:
    scene = Scene(every_us=1000)
    now = scene.clock.now_us()
    first = entry(1, now, 2)
    assert scene.work(first) == scene.work(first) == Rest(now + 1000)
    scene.clock.sleep_us(1000)
    looked = scene.work(first)
    assert isinstance(looked, Work)
    assert (looked.commit.outputs, looked.rows_out, scene.spark.batches) == ((), {}, [])
    scene.work(first, entry(2, now + 500, 3))
    assert scene.spark.batches == [(1, [2, 3])]


def test_a_full_batch_does_not_wait() -> None:
    scene = Scene(every_us=10**12, rows_max=3)
    work = scene.work(entry(1, 0, 1, 2), entry(2, 0, 3, 4))
    assert isinstance(work, Work)
    assert scene.spark.batches == [(1, [1, 2])]
    assert work.commit.offset == 1


def test_columns_of_another_type_are_refused_with_the_operator() -> None:
    scene = Scene()
    scene.spark.name = "another"
    with pytest.raises(WorkFailed, match="operator made: in what its transform returned,\ncolumn 'n'"):
        scene.work(entry(1, 0, 2))


def test_an_entry_that_cannot_be_read_fails_before_anything_is_called() -> None:
    scene = Scene()
    with pytest.raises(WorkFailed, match="operator made: in the inbox of made/0, an entry of 2 bytes"):
        scene.work(Entry(1, 0, b"\x01\x02"))
    assert scene.spark.batches == []


def test_rows_that_it_fails_on_alone_are_letters_and_the_others_go_on() -> None:
    scene = Scene(on_error=OnError(DEAD_LETTER))
    work = scene.work(entry(1, 0, 2, 13, 3), entry(2, 0, 4))
    assert rows_of(work) == [4, 6, 8]
    assert isinstance(work, Work)
    assert work.rows_out == {"made": 3, "made/dead": 1, "out": 3}
    scene.settle(work)
    assert (scene.owned.offset, scene.letters) == (2, [[13]])


def test_where_it_fails_on_all_rows_that_is_known_before_each_of_them_was_tried() -> None:
    scene = Scene(on_error=OnError(DEAD_LETTER, keep=2))
    with pytest.raises(WorkFailed, match=r"ValueError: 13\nThere is no room for it as a dead letter"):
        scene.work(entry(1, 0, *[13] * 200))
    assert len(scene.spark.batches) < 20


def test_a_letter_is_replayed_and_dropped_by_orders_in_the_inbox() -> None:
    scene = Scene(on_error=OnError(DEAD_LETTER))
    first = scene.work(entry(1, 0, 13, 13, 2))
    assert isinstance(first, Work)
    scene.settle(first)
    one, other = sorted(letters_in(scene.kept))
    orders = [Entry(2, 0, encode_order(REPLAY, "made", one))]
    orders += [Entry(number, 0, encode_order(doing, "made", of)) for number, (doing, of) in enumerate(
        [(REPLAY, one), (DROP, other)], 3
    )]  # fmt: skip
    again = scene.work(*orders, entry(5, 0, 4))
    assert isinstance(again, Work)
    scene.settle(again)
    assert (rows_of(again), scene.letters) == ([], [[13], [13]])
    scene.spark.is_mended = True
    replayed = scene.work(*orders[1:], entry(5, 0, 4))
    assert isinstance(replayed, Work)
    scene.settle(replayed)
    assert (rows_of(replayed), scene.letters, scene.owned.offset) == ([26], [[13]], 3)
    dropped = scene.work(orders[2], entry(5, 0, 4))
    assert isinstance(dropped, Work)
    scene.settle(dropped)
    assert (rows_of(dropped), scene.letters) == ([], [])
    assert rows_of(scene.work(entry(5, 0, 4))) == [8]


def test_with_retry_its_shard_rests_and_the_batch_is_worked_out_again() -> None:
    scene = Scene(on_error=OnError(attempts=2, backoff_ms=100))
    for wait_us in (100_000, 200_000):
        rest = scene.work(entry(1, 0, 13))
        assert isinstance(rest, Rest)
        assert 0 <= scene.clock.now_us() + wait_us - rest.until_us < 1000
    scene.spark.is_mended = True
    assert rows_of(scene.work(entry(1, 0, 13))) == [26]
    scene.stage.release("made/0")
    scene.spark.is_mended = False
    for _ in range(2):
        assert isinstance(scene.work(entry(1, 0, 13)), Rest)
    with pytest.raises(WorkFailed, match="ValueError: 13"):
        scene.work(entry(1, 0, 13))
