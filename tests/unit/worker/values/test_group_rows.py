"""Rows grouped by a sort of their columns: keys, rows, ages and DataFrames as of rows grouped one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.schema import Schema
from penstock.store.codec import decode_batch, encode_batch
from penstock.store.even_rows import even_cells, even_entry
from penstock_worker.stages import keyed_part
from penstock_worker.stages.keyed_part import EvenRead, Part, are_sorted, keys_getter, read_columns
from penstock_worker.values.arrow_columns import ArrowShape
from penstock_worker.values.arrow_rows import ArrowRows
from penstock_worker.values.column_rows import ColumnRows
from penstock_worker.values.even_columns import even_columns
from penstock_worker.values.frames import FRAME_ROWS_MAX, FrameReader, NoFrame
from penstock_worker.values.group_rows import GroupRows

KEYS = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-2, 2),
    "bigint": st.sampled_from([0, 1, -1, 1 << 62, -(1 << 62), 5]),
    "date": st.integers(0, 3),
    "timestamp": st.integers(0, 3),
    "string": st.sampled_from(["ab", "ac", "b\0", "\0\0", "é"]),
    "binary": st.sampled_from([b"ab", b"\xff\0", b"\0\0", b"\0\1"]),
}
VALUES = KEYS | {
    "double": st.floats(),
    "float": st.floats(width=32),
    "timestamp_ntz": st.integers(0, 1 << 50) | st.integers(-62_135_596_800_000_000, 0),
    "string": st.sampled_from(["abc", "xyz", "é!"]),
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_part, "GROUPED_FROM", 1)


def even_payload(schema: Schema, rows: list[tuple[Any, ...]], stamps_us: list[int]) -> bytes:
    columns = even_columns(ColumnRows(ArrowShape(schema), ArrowRows(schema).arrays(zip(*rows, strict=True))))
    if columns is None:
        return encode_batch(stamps_us, rows)
    return even_entry(np.array(stamps_us), even_cells(columns, len(rows)))


@st.composite
def inboxes(draw: st.DrawFn) -> tuple[Schema, int, list[bytes]]:
    """A schema whose first columns are the key, how many those are, and entries of one inbox."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3))
    values = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
    schema = parse_schema(", ".join(f"c{place} {type_}" for place, type_ in enumerate([*keys, *values])))
    strategy = st.tuples(*(KEYS[type_] for type_ in keys), *(VALUES[type_] for type_ in values))
    payloads = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(strategy, min_size=1, max_size=12)) * draw(st.sampled_from([1, 30]))
        stamps_us = draw(st.lists(st.integers(0, 1 << 40), min_size=len(rows), max_size=len(rows)))
        payloads.append(even_payload(schema, rows, stamps_us))
    return schema, len(keys), payloads


def part_of(schema: Schema, keys: int, payloads: list[bytes], *, by_columns: bool) -> Part:
    part = Part()
    keys_of = keys_getter(range(keys), [column.type for column in schema.columns])
    reads = [read_columns(payload) for payload in payloads]
    if by_columns and all(isinstance(read, EvenRead) for read in reads):
        part.even = [(read.deltas_us, read.rows) for read in reads if isinstance(read, EvenRead)]
        if part.group_columns(range(keys)):
            return part
    part = Part()
    for payload in payloads:
        batch = decode_batch(payload)
        part.add([batch.base_us + delta for delta in batch.deltas_us], keys_of(batch.rows), batch.rows)
    return part


@given(inboxes())
@settings(deadline=None)
def test_groups_are_the_same_by_columns_and_by_rows(inbox: tuple[Schema, int, list[bytes]]) -> None:
    schema, keys, payloads = inbox
    assert are_sorted(range(keys), [column.type for column in schema.columns])
    by_rows = part_of(schema, keys, payloads, by_columns=False)
    by_columns = part_of(schema, keys, payloads, by_columns=True)
    assert repr(list(by_columns.groups)) == repr(list(by_rows.groups))
    assert list(by_columns.timestamps_us) == list(by_rows.timestamps_us)
    for key, group in by_rows.groups.items():
        found = by_columns.groups[key]
        assert repr(list(found.rows)) == repr(group.rows)
        assert found.oldest_us == group.oldest_us
        assert len(found.rows) == len(group.rows)
        assert repr(list(found.rows[1:])) == repr(group.rows[1:])


@given(inboxes())
@settings(deadline=None)
def test_frames_are_the_same_by_columns_and_by_rows(inbox: tuple[Schema, int, list[bytes]]) -> None:
    schema, keys, payloads = inbox
    reader = FrameReader(schema)
    by_rows = [group.rows for group in part_of(schema, keys, payloads, by_columns=False).groups.values()]
    by_columns = [group.rows for group in part_of(schema, keys, payloads, by_columns=True).groups.values()]
    try:
        expected = [list(frames) for frames in reader.each(by_rows)]
    except NoFrame as error:
        with pytest.raises(type(error)):
            [list(frames) for frames in reader.each(by_columns)]
        return
    for frames, found in zip(expected, reader.each(by_columns), strict=True):
        for frame, other in zip(frames, found, strict=True):
            pd.testing.assert_frame_equal(frame, other)


def test_frames_are_the_codes_own() -> None:
    schema = parse_schema("k bigint, x double")
    rows = [(n % 2, float(n)) for n in range(400)]
    part = part_of(schema, 1, [even_payload(schema, rows, list(range(400)))], by_columns=True)
    groups = [group.rows for group in part.groups.values()]
    assert all(isinstance(group, GroupRows) for group in groups)
    first, second = (next(frames) for frames in FrameReader(schema).each(groups))
    first["x"] = -1.0
    first.iloc[:, 0] = 7
    assert second["x"].tolist() == [float(n) for n in range(1, 400, 2)]
    assert [row[1] for row in groups[0]] == [float(n) for n in range(0, 400, 2)]
    assert [row[0] for row in groups[0]] == [0] * 200


def test_very_many_rows_of_a_key_come_in_several_frames() -> None:
    schema = parse_schema("k bigint, x bigint")
    rows = [(n % 2, n) for n in range(2 * FRAME_ROWS_MAX + 6)]
    part = part_of(schema, 1, [even_payload(schema, rows, list(range(len(rows))))], by_columns=True)
    for remainder, frames in enumerate(
        FrameReader(schema).each([group.rows for group in part.groups.values()])
    ):
        first, second = frames
        assert (len(first), len(second)) == (FRAME_ROWS_MAX, 3)
        assert second.index.tolist() == [0, 1, 2]
        assert [*first["x"], *second["x"]] == list(range(remainder, len(rows), 2))


def test_entries_that_are_not_alike_are_rows() -> None:
    schema = parse_schema("k string, n int")
    payloads = [even_payload(schema, [(text, n) for n in range(99)], [1] * 99) for text in ("ab", "abc")]
    part = part_of(schema, 1, payloads, by_columns=True)
    assert {key: len(group.rows) for key, group in part.groups.items()} == {("ab",): 99, ("abc",): 99}
    assert not are_sorted([0], ["double"])
    assert not are_sorted([], [])
