"""A data source of PySpark's as a source: ranges are noted before they are read, and what was committed of
one is compared. `tests/contract/test_sources_conform.py` has what holds of every source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

from penstock.connectors.data_source import DataSourceSource
from penstock.dataflow.ddl import parse_schema
from penstock.errors import PermanentError
from penstock_worker.sources.data_source import PAUSE_US_MIN, DataSourceRangeReader
from penstock_worker.sources.range_position import range_position
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.user_code.data_sources import NoDataSource
from penstock_worker.user_code.running import UserCodeError

SHARD = "in/0"
MANY = 1 << 20
NOW_US = 1_700_000_000_000_000
POLL_US = 80_000


def reader_of(
    name: str, schema: str, module: str = "scenes.users_sources", *, bounded: bool = False, **options: object
) -> DataSourceRangeReader:
    given = tuple((key, str(value)) for key, value in options.items())
    source = DataSourceSource(f"{module}:{name}", given, parse_schema(schema), bounded, POLL_US)
    reader = DataSourceRangeReader("in", source, Path.cwd())
    reader.open(SHARD, b"", NOW_US)
    return reader


def ours(name: str, schema: str, **options: object) -> DataSourceRangeReader:
    return reader_of(name, schema, __name__, **options)  # type: ignore[arg-type]


def counter(**options: object) -> DataSourceRangeReader:
    return reader_of("Counter", "number bigint, partition int", **options)  # type: ignore[arg-type]


def table(**options: object) -> DataSourceRangeReader:
    return reader_of("Table", "number bigint, square double", **options)  # type: ignore[arg-type]


def read(reader: DataSourceRangeReader, position: bytes, rows_max: int = MANY) -> SourceBatch:
    return reader.read(SHARD, position, rows_max, MANY, NOW_US)


def read_all(
    reader: DataSourceRangeReader, position: bytes = b"", rows_max: int = MANY
) -> Iterator[SourceBatch]:
    """Batches until nothing is new."""
    while True:
        batch = read(reader, position, rows_max)
        yield batch
        position = batch.position
        if batch.finished or batch.next_due_us is not None:
            return


def rows_of(batches: Iterator[SourceBatch]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in batch.rows]


# --- what is read ---------------------------------------------------------------------------------------


def test_a_simple_reader_is_read_once_where_it_is_not_interrupted(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"a{number}\nb{number}\n")
    log = tmp_path / "log"
    reader = reader_of("FolderLines", "file string, line string", folder=tmp_path, log=log)
    rows = rows_of(read_all(reader, rows_max=3))
    assert rows == [(f"{n}.txt", f"{line}{n}") for n in range(5) for line in "ab"]
    assert log.read_text().split() == ["commit", "1.txt", "commit", "3.txt", "commit", "4.txt"]


def test_a_bounded_reader_is_read_to_its_end_in_arrow() -> None:
    batches = list(read_all(table(rows=50, partitions=4), rows_max=7))
    rows = rows_of(iter(batches))
    assert sorted(rows) == [(n, float(n * n)) for n in range(50)]
    assert [batch.finished for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert max(len(batch.rows) for batch in batches) == 7


def test_a_range_is_noted_before_a_row_of_it_is_read() -> None:
    batches = list(read_all(counter(upTo=10, perRange=10)))
    first, intent, rows, idle = batches
    assert (first.rows, json.loads(range_position(first.position).start)) == ([], {"next": 0})
    assert intent.rows == []
    assert len({b"", first.position, intent.position, rows.position}) == 4, "each is committed"
    assert json.loads(str(range_position(intent.position).end)) == {"next": 10}
    assert len(rows.rows) == 10
    assert range_position(rows.position).end is None
    assert (idle.rows, idle.position) == ([], rows.position)


def test_commit_is_called_when_the_position_behind_the_range_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = counter(upTo=20, perRange=10, log=log)
    position = b""
    for _ in range(3):
        position = read(reader, position).position
    assert log.read_text().split("\n")[:-1] == ["plan 0 10"]
    position = read(reader, position).position
    assert log.read_text().split("\n")[:-1] == ["plan 0 10", "commit 10", "plan 10 20"]
    read(reader, position)
    reader.close()
    assert log.read_text().split("\n")[:-1] == ["plan 0 10", "commit 10", "plan 10 20", "stop"]


def test_a_new_owner_tells_commit_again_for_what_is_durable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    *_, last = read_all(counter(upTo=20, perRange=10))
    reader = counter(upTo=20, perRange=10, log=log)
    read(reader, last.position)
    read(reader, last.position)
    assert log.read_text() == "commit 20\n"


def test_an_idle_reader_is_asked_ever_more_seldom_until_something_comes(tmp_path: Path) -> None:
    reader = reader_of("FolderLines", "file string, line string", folder=tmp_path)
    position = read(reader, b"").position
    pauses = [(read(reader, position).next_due_us or 0) - NOW_US for _ in range(5)]
    assert pauses == [PAUSE_US_MIN, 2 * PAUSE_US_MIN, 4 * PAUSE_US_MIN, POLL_US, POLL_US]
    (tmp_path / "0.txt").write_text("x\n")
    *batches, idle = read_all(reader, position)
    assert rows_of(iter(batches)) == [("0.txt", "x")]
    assert (idle.next_due_us or 0) - NOW_US == PAUSE_US_MIN


# --- going on -------------------------------------------------------------------------------------------


def test_what_was_committed_of_a_range_is_compared_with_what_comes_now() -> None:
    reader = counter(upTo=10, perRange=10, partitions=1)
    position = b""
    for _ in range(3):
        position = read(reader, position, 4).position
    Drifting.offset = 1
    try:
        other = ours("Drifting", "number bigint, partition int")
        with pytest.raises(
            PermanentError, match=r"other rows for the same range from .*4 of them are committed"
        ):
            read(other, position)
    finally:
        Drifting.offset = 0
    assert rows_of(read_all(ours("Drifting", "number bigint, partition int"), position))[0] == (4, 0)


def test_a_range_that_gives_fewer_rows_than_were_committed_is_told() -> None:
    reader = counter(upTo=10, perRange=10, partitions=1)
    position = b""
    for _ in range(3):
        position = read(reader, position, 8).position
    Drifting.rows = 5
    try:
        with pytest.raises(PermanentError, match="other rows for the same range"):
            read(ours("Drifting", "number bigint, partition int"), position)
    finally:
        Drifting.rows = 10


def test_partitions_that_look_different_are_no_fault_where_the_rows_are_the_same() -> None:
    """A ticket or a time in a partition changes with each plan; all of the range is compared then."""
    *_, last = [read(reader := ours("Ticketed", "number bigint"), b"")]
    position = last.position
    for _ in range(3):
        position = read(reader, position, 2).position
    rows = rows_of(read_all(ours("Ticketed", "number bigint"), position))
    assert rows == [(n,) for n in range(4, 9)]


def test_partitions_whose_rows_are_committed_are_not_read_again(tmp_path: Path) -> None:
    reader = table(rows=12, partitions=4)
    position = b""
    for _ in range(2):
        position = read(reader, position).position
    for _ in range(3):
        position = read(reader, position, 3).position
    log = tmp_path / "log"
    again = table(rows=12, partitions=4)
    again._source = replace(again._source, options=(*again._source.options, ("log", str(log))))
    rows = rows_of(read_all(again, position))
    assert rows == [(n, float(n * n)) for n in (3, 7, 11)]
    assert log.read_text().split("\n")[:-1] == ["plan", "read 2", "read 3"]


class Drifting(DataSource):
    """Range 0 to 10 in one partition; what it gives changes."""

    offset = 0
    rows = 10

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - pyspark's
        return DriftingReader()


class DriftingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - as before Spark 4.2
        return {"next": 10}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        yield from ((number + Drifting.offset, 0) for number in range(Drifting.rows))


class Ticketed(DataSource):
    """Nine numbers in three partitions, each with a number of its own at each plan."""

    plans = 0

    def reader(self, schema: Any) -> DataSourceReader:
        return TicketedReader()


class TicketedReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        Ticketed.plans += 1
        return [InputPartition((part, Ticketed.plans)) for part in range(3)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        part, _ = partition.value
        yield from ((number,) for number in range(3 * part, 3 * part + 3))


# --- what rows may be -----------------------------------------------------------------------------------


class Given(DataSource):
    """Gives what `items` holds."""

    items: tuple[Any, ...] = ()

    def reader(self, schema: Any) -> DataSourceReader:
        return GivenReader()


class GivenReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from Given.items


@pytest.mark.parametrize(
    "item",
    [
        (1, "a"),
        [1, "a"],
        Row(name="a", id=1),
        pa.RecordBatch.from_pydict({"id": [1], "name": ["a"]}),
    ],
)
def test_rows_are_tuples_lists_rows_by_name_or_record_batches(item: Any) -> None:
    Given.items = (item,)
    assert rows_of(read_all(ours("Given", "id bigint, name string"))) == [(1, "a")]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ((1,), r"has 1 values; the schema has 2"),
        (("x", "a"), r"column 'id' \(1 of 2\) expects bigint, got str 'x'"),
        (
            pa.RecordBatch.from_pydict({"name": ["a"], "id": [1]}),
            r"columns name, id; its schema has id, name",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_told_with_its_reader(item: Any, told: str) -> None:
    Given.items = (item,)
    with pytest.raises(PermanentError, match=told):
        rows_of(read_all(ours("Given", "id bigint, name string")))


# --- what readers may not ----------------------------------------------------------------------------------


class Raising(DataSource):
    """`at` names the method that raises."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return RaisingReader(self.options["at"])


class RaisingReader(DataSourceStreamReader):
    def __init__(self, at: str) -> None:
        self.at = at

    def _step(self, name: str) -> None:
        if self.at == name:
            raise ValueError(f"no {name} today")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        self._step("initialOffset")
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        self._step("latestOffset")
        return {"n": start["n"] + 2}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._step("partitions")
        return [InputPartition(start["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)
        self._step("read")
        yield (partition.value + 1,)

    def commit(self, end: dict[str, int]) -> None:
        self._step("commit")

    def stop(self) -> None:
        self._step("stop")


@pytest.mark.parametrize("method", ["initialOffset", "latestOffset", "partitions", "read", "commit"])
def test_what_a_reader_raises_is_told_with_operator_method_file_and_line(method: str) -> None:
    reader = ours("Raising", "n bigint", at=method)
    with pytest.raises(UserCodeError) as caught:
        for _, _batch in zip(range(10), read_all(reader), strict=False):
            pass
    text = str(caught.value)
    assert text.startswith(f"operator in: RaisingReader.{method} raised")
    assert 'test_data_source.py", line' in text
    assert text.endswith(f"ValueError: no {method} today")


def test_what_stop_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    reader = ours("Raising", "n bigint", at="stop")
    read(reader, b"")
    reader.release(SHARD)
    assert "no stop today" in caplog.text


class Stuck(DataSource):
    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return StuckReader()


class StuckReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        return iter([(1,)]), start

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[int]]:
        return iter([])


def test_rows_without_a_new_offset_are_refused() -> None:
    with pytest.raises(PermanentError, match="the same offset for their end; they would come again for ever"):
        list(read_all(ours("Stuck", "n bigint")))


class Lacking(DataSource):
    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return LackingReader()


class LackingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([])


class WithoutReader(DataSource):
    pass


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "Lacking",
            "LackingReader, the DataSourceStreamReader of Lacking, lacks latestOffset and partitions",
        ),
        ("WithoutReader", "WithoutReader has no streamReader, no simpleStreamReader and no reader"),
        ("LackingReader", "is no subclass of pyspark.sql.datasource.DataSource"),
    ],
)
def test_a_class_that_cannot_be_read_by_is_told(name: str, told: str) -> None:
    with pytest.raises(NoDataSource, match=told):
        read(ours(name, "n bigint"), b"")
