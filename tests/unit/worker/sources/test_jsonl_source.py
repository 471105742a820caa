"""JSON lines as a source: rows, lines that hold nothing, and the place of a line that is no row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files import FilesSource
from penstock.dataflow.ddl import parse_schema
from penstock.errors import PermanentError
from penstock_worker.sources.files import CHUNK_BYTES, FilesReader
from penstock_worker.sources.reader import SourceBatch

NOW_US = 1_700_000_000_000_000
MANY = 1 << 20
SHARD = "orders/a.jsonl"


def opened(folder: Path, content: str, rate_per_s: float | None = None) -> FilesReader:
    (folder / "a.jsonl").write_text(content, encoding="utf-8")
    schema = parse_schema("user string, amount long")
    reader = FilesReader("orders", FilesSource("*.jsonl", "jsonl", rate_per_s, None, schema), folder)
    reader.open(SHARD, b"", NOW_US)
    return reader


def read_all(reader: FilesReader, rows_max: int = MANY, now_us: int = NOW_US) -> list[SourceBatch]:
    batches: list[SourceBatch] = []
    while not batches or not batches[-1].finished:
        position = batches[-1].position if batches else b""
        batches.append(reader.read(SHARD, position, rows_max, MANY, now_us))
    return batches


def rows_of(batches: list[SourceBatch]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in batch.rows]


def test_each_line_is_a_row_of_the_schema(tmp_path: Path) -> None:
    reader = opened(tmp_path, '{"amount":3,"user":"ann"}\r\n{"user":"bob","x":[]}\n{"user":{"id": 7}}')
    batches = read_all(reader)
    assert rows_of(batches) == [("ann", 3), ("bob", None), ('{"id": 7}', None)]
    assert [us for batch in batches for us in batch.timestamps_us] == [NOW_US] * 3


@pytest.mark.parametrize("rows_max", [1, 2, MANY])
def test_blank_lines_are_passed_over(tmp_path: Path, rows_max: int) -> None:
    content = '\n  \n{"amount":1}\n\t\n\n{"amount":2}\r\n\r\n'
    batches = read_all(opened(tmp_path, content), rows_max)
    assert rows_of(batches) == [(None, 1), (None, 2)]
    assert all(batch.rows or batch.finished for batch in batches)


def test_more_blank_lines_than_are_read_at_once_do_not_stop_a_file(tmp_path: Path) -> None:
    content = "\n" * (3 * CHUNK_BYTES) + '{"amount":1}\n'
    assert rows_of(read_all(opened(tmp_path, content), rows_max=64)) == [(None, 1)]


def test_rows_are_due_by_their_lines(tmp_path: Path) -> None:
    reader = opened(tmp_path, '{"amount":1}\n\n{"amount":2}\n', rate_per_s=1000)
    assert reader.read(SHARD, b"", MANY, MANY, NOW_US).timestamps_us == [NOW_US]
    batches = read_all(reader, now_us=NOW_US + 10_000)
    assert [us for batch in batches for us in batch.timestamps_us] == [NOW_US, NOW_US + 2000]


@pytest.mark.parametrize("rows_max", [1, 2, MANY])
def test_a_line_that_is_no_row_is_named_with_file_line_and_column(tmp_path: Path, rows_max: int) -> None:
    reader = opened(tmp_path, '{"amount":1}\n\n{"amount":2}\n\n{"amount":"3"}\n{"amount":4}\n')
    with pytest.raises(PermanentError) as refused:
        read_all(reader, rows_max)
    assert str(refused.value) == (
        f'file {tmp_path / "a.jsonl"}, line 5, column amount: expects bigint, found "3"; correct that line'
    )


def test_a_line_that_was_corrected_at_its_length_is_read_on(tmp_path: Path) -> None:
    reader = opened(tmp_path, '{"amount":1}\n{"amount":"2"}\n')
    position = reader.read(SHARD, b"", 1, MANY, NOW_US).position
    with pytest.raises(PermanentError, match="line 2"):
        reader.read(SHARD, position, 1, MANY, NOW_US)
    reader = opened(tmp_path, '{"amount":1}\n{"amount": 2 }\n')
    reader.open(SHARD, position, NOW_US)
    assert reader.read(SHARD, position, MANY, MANY, NOW_US).rows == [(None, 2)]


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        PermanentError, match=r"a\.jsonl, line 2: expects a JSON object, found \[4\]; correct"
    ):
        read_all(opened(tmp_path, "{}\n[4]\n"))


lines = st.lists(
    st.one_of(
        st.sampled_from(["", "  ", "{}"]),
        st.builds(lambda n, u: json.dumps({"amount": n, "user": u}), st.integers(0, 99), st.text(max_size=5)),
    ),
    max_size=12,
)


@given(lines, st.lists(st.integers(1, 4), min_size=1))
def test_a_reader_that_starts_at_any_position_goes_on_as_the_first_would(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], budgets: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    whole = rows_of(read_all(opened(folder, "\n".join(content))))
    found = [json.loads(line) for line in content if line.strip()]
    assert whole == [(row.get("user"), row.get("amount")) for row in found]
    position, finished, seen = b"", False, []
    while not finished:
        for budget in budgets:
            reader = opened(folder, "\n".join(content))
            batch = reader.read(SHARD, position, budget, MANY, NOW_US)
            reader.close()
            seen += batch.rows
            position, finished = batch.position, batch.finished
            if finished:
                break
    assert seen == whole
