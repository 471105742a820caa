"""Sinks of users' code: batches have ids without a hole, which are the same when they come again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.data_source import DataSourceSink
from penstock.connectors.foreach import ForeachSink
from penstock.dataflow.ddl import parse_schema
from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock_worker.sinks.data_source import DataSourceSinkWriter
from penstock_worker.sinks.entry_batches import BATCH_BITS, partition_id, shard_number
from penstock_worker.sinks.foreach import ForeachSinkWriter
from penstock_worker.sinks.writer import SinkPlace
from penstock_worker.user_code.data_sources import NoDataSource
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing
from scenes.users_sinks import Notes

WORDS = parse_schema("word string, n bigint")
PLACE = SinkPlace(Path.cwd(), "u", "t", durable=False)
FEEDERS = ("count", "other")


def entries(*batches: list[tuple[Any, ...]], first: int = 1) -> list[tuple[int, bytes]]:
    return [(n, encode_batch([0] * len(rows), rows)) for n, rows in enumerate(batches, first)]


def ledger(folder: Path, schema: str = "word string, n bigint", **options: str) -> DataSourceSinkWriter:
    given = {"folder": str(folder), **options}
    sink = DataSourceSink("out", "scenes.users_sinks:Ledger", tuple(given.items()), FEEDERS)
    return DataSourceSinkWriter(sink, parse_schema(schema), PLACE)


def foreach(
    target: str = "scenes.users_sinks:Notes", schema: str = "word string, n bigint"
) -> ForeachSinkWriter:
    return ForeachSinkWriter(ForeachSink("out", target, FEEDERS), parse_schema(schema), PLACE)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "notes"
    monkeypatch.setattr(Notes, "file", str(file))
    return file


def noted(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# --- numbers ------------------------------------------------------------------------------------------


def test_shards_have_numbers_of_their_own_over_all_that_feed_a_sink() -> None:
    assert shard_number("count/7", FEEDERS) == 7
    assert shard_number("other/7", FEEDERS) == 4096 + 7
    assert shard_number("lines/a.txt", ("lines",)) is None
    assert shard_number("count/4095", FEEDERS) != shard_number("other/0", FEEDERS)


def test_a_shard_with_a_name_has_an_id_above_all_numbers() -> None:
    ids = {partition_id(f"lines/{n}.txt", ("lines",)) for n in range(4096)}
    assert len(ids) == 4096
    assert all(1 << 62 <= each < 1 << 63 for each in ids)


# --- data source ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrow", ["no", "yes"])
def test_each_entry_is_a_batch_with_an_id_that_no_other_shard_has(tmp_path: Path, arrow: str) -> None:
    writer = ledger(tmp_path, arrow=arrow)
    position = writer.write("count/3", b"", entries([("a", 1), ("b", 2)], [("c", 3)]))
    assert position == b"2"
    assert writer.write("count/3", position, entries([("d", 4)], first=3)) == b"3"
    assert writer.write("other/3", b"", entries([("e", 5)])) == b"1"
    first, second = 3 << BATCH_BITS, (4096 + 3) << BATCH_BITS
    found = {int(file.stem): json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert found == {
        first: [{"word": "a", "n": 1}, {"word": "b", "n": 2}],
        first + 1: [{"word": "c", "n": 3}],
        first + 2: [{"word": "d", "n": 4}],
        second: [{"word": "e", "n": 5}],
    }
    assert not list(tmp_path.glob("*.staged"))


def test_what_was_not_acknowledged_comes_again_under_the_same_id(tmp_path: Path) -> None:
    ledger(tmp_path).write("count/3", b"5", entries([("a", 1)], [("b", 2)], first=9))
    ledger(tmp_path).write("count/3", b"5", entries([("a", 1)], [("b", 2)], [("c", 3)], first=9))
    ids = [(3 << BATCH_BITS) + number for number in (5, 6, 7)]
    assert sorted(int(file.stem) for file in tmp_path.glob("*.json")) == ids
    assert noted(tmp_path / "again.log") == ids[:2]


@pytest.mark.parametrize(("step", "messages"), [("write", ["NoneType"]), ("commit", ["Staged"])])
def test_a_writer_that_raises_is_told_and_its_batch_aborted(
    tmp_path: Path, step: str, messages: list[str]
) -> None:
    with pytest.raises(UserCodeError, match="the ledger is closed") as caught:
        ledger(tmp_path / "in", failsAt=step).write("count/0", b"4", entries([("a", 1)]))
    assert f"operator out: LedgerWriter.{step} raised on batch 4" in str(caught.value)
    assert 'users_sinks.py", line' in str(caught.value)
    assert noted(tmp_path / "aborted") == [[4, messages]]


def test_a_shard_without_a_number_has_no_batch_ids(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"shard count/a\.txt has a name and no number"):
        ledger(tmp_path).write("count/a.txt", b"", entries([("a", 1)]))


def test_a_class_without_a_stream_writer_is_told() -> None:
    sink = DataSourceSink("out", "scenes.users_sources:Counter", (), FEEDERS)
    with pytest.raises(NoDataSource, match="Counter has no streamWriter"):
        DataSourceSinkWriter(sink, WORDS, PLACE).write("count/0", b"", entries([("a", 1)]))


# --- foreach --------------------------------------------------------------------------------------------


def test_foreach_opens_processes_and_closes_each_batch(notes: Path) -> None:
    position = foreach().write("count/3", b"7", entries([("a", 1), ("b", 2)], [("c", 3)]))
    assert position == b"9"
    assert noted(notes) == [
        ["open", 3, 7],
        ["process", 3, 7, {"word": "a", "n": 1}],
        ["process", 3, 7, {"word": "b", "n": 2}],
        ["close", 3, 7, None],
        ["open", 3, 8],
        ["process", 3, 8, {"word": "c", "n": 3}],
        ["close", 3, 8, None],
    ]


def test_user_code_of_a_sink_is_noted_as_at_work_on_its_shard(notes: Path) -> None:
    at_work: list[tuple[str, list[Any]]] = []

    @contextmanager
    def noted_work(shard: str) -> Iterator[None]:
        yield
        at_work.append((shard, noted(notes)))

    place = SinkPlace(Path.cwd(), "u", "t", durable=False, at_work=noted_work)
    writer = ForeachSinkWriter(ForeachSink("out", "scenes.users_sinks:Notes", FEEDERS), WORDS, place)
    writer.write("count/3", b"", entries([("a", 1)]))
    assert [(shard, len(calls)) for shard, calls in at_work] == [("count/3", 3)]


def test_a_batch_that_open_refuses_is_closed_and_counts_as_written(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notes, "refuses", frozenset({(3, 0)}))
    assert foreach().write("count/3", b"", entries([("a", 1)])) == b"1"
    assert noted(notes) == [["open", 3, 0], ["close", 3, 0, None]]


def test_what_process_raises_reaches_close_and_is_told_with_the_row(notes: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        foreach().write("count/3", b"", entries([("a", 1), ("bad", 2), ("c", 3)]))
    text = str(caught.value)
    assert "operator out: scenes.users_sinks:Notes, process, raised on Row(word='bad', n=2)" in text
    assert text.endswith("ValueError: a bad word")
    assert noted(notes)[-2:] == [["process", 3, 0, {"word": "a", "n": 1}], ["close", 3, 0, "a bad word"]]


def test_foreach_takes_a_plain_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert foreach("scenes.users_sinks:printed").write("count/0", b"", entries([("a", 1)])) == b"1"
    assert capsys.readouterr().out == "{'word': 'a', 'n': 1}\n"


def test_rows_are_what_foreach_gets_in_spark(capsys: pytest.CaptureFixture[str]) -> None:
    schema = "m map<string,int>, s struct<a:int>, at timestamp, d date"
    row = ([("k", 1)], [5], 0, 1)
    foreach("scenes.users_sinks:printed", schema).write("count/0", b"", entries([row]))
    at, day = datetime.datetime(1970, 1, 1), datetime.date(1970, 1, 2)  # noqa: DTZ001 - without a zone
    assert capsys.readouterr().out == f"{ {'m': {'k': 1}, 's': {'a': 5}, 'at': at, 'd': day} }\n"


@pytest.mark.parametrize("target", ["scenes.users_sinks:Staged", "scenes.users_sinks:nobody"])
def test_what_cannot_be_called_is_told(target: str) -> None:
    with pytest.raises(UserCodeMissing):
        foreach(target)
