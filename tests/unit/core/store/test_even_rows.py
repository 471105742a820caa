"""Batches whose rows are equally long: msgpack that every reader of batches takes, by columns and back."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.codec import decode_batch, decode_timestamps, encode_batch
from penstock.store.even_rows import (
    ENTRY_BYTES_MIN,
    EvenColumn,
    EvenTexts,
    even_cells,
    even_entry,
    read_even,
    read_even_stamps,
    read_even_together,
    rows_in,
)
from penstock.store.stamps import Stamps, as_array, joined, oldest

ROWS = 300
WHOLE = st.sampled_from(
    [(0, 127), (-1, 127), (0, 128), (-(1 << 15), (1 << 15) - 1), (-(1 << 31), (1 << 31) - 1),
     (-(1 << 63), (1 << 63) - 1)]
)  # fmt: skip


def texts(values: list[str] | list[bytes]) -> EvenTexts:
    data = [value.encode() if isinstance(value, str) else value for value in values]
    cells = np.frombuffer(b"".join(data), np.uint8).reshape(len(data), len(data[0]))
    return EvenTexts(cells, isinstance(values[0], str))


def values_of(column: EvenColumn, rows: int) -> list[Any]:
    if column is None:
        return [None] * rows
    if isinstance(column, EvenTexts):
        found = [row.tobytes() for row in column.cells]
        return [each.decode() for each in found] if column.is_text else list(found)
    return list(column.tolist())


@st.composite
def columns(draw: st.DrawFn, rows: int = ROWS) -> EvenColumn:
    seed = draw(st.integers(0, 1 << 32))
    random = np.random.default_rng(seed)
    match draw(st.sampled_from(["whole", "fraction", "boolean", "text", "bytes", "null"])):
        case "whole":
            least, most = draw(WHOLE)
            return random.integers(least, most, rows, np.int64, endpoint=True)
        case "fraction":
            found = random.normal(0, 1e9, rows)
            found[: rows // 4] = random.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 4.0], rows // 4)
            return found
        case "boolean":
            return random.random(rows) < 0.5
        case "null":
            return None
        case kind:
            length = draw(st.sampled_from([0, 1, 31, 32, 255, 256, 300]))
            if kind == "text":
                return texts(["".join(map(chr, random.integers(0, 128, length))) for _ in range(rows)])
            return texts([random.bytes(length) for _ in range(rows)])


@given(st.lists(columns(), min_size=1, max_size=20), st.integers(-(1 << 62), 1 << 62), WHOLE)
def test_every_reader_of_batches_takes_even_rows_and_columns_come_back(
    given_columns: list[EvenColumn], base_us: int, span: tuple[int, int]
) -> None:
    least, most = span
    within = np.random.default_rng(1).integers(max(least, -(1 << 60)), min(most, 1 << 60), ROWS)
    stamps_us = base_us + within
    payload = even_entry(stamps_us, even_cells(given_columns, ROWS))
    batch = decode_batch(payload)
    assert [batch.base_us + delta for delta in batch.deltas_us] == stamps_us.tolist()
    expected = list(zip(*(values_of(column, ROWS) for column in given_columns), strict=True))
    assert repr(batch.rows) == repr(expected)  # NaN, and what is a boolean
    even = read_even(payload)
    assert even is not None
    assert list(even.stamps) == stamps_us.tolist()
    found = list(zip(*(values_of(column, ROWS) for column in even.columns), strict=True))
    assert repr(found) == repr(expected)
    assert read_even_stamps(payload) == even.stamps
    assert decode_timestamps(payload) == stamps_us.tolist()


def test_fractions_keep_every_bit() -> None:
    bits = np.random.default_rng(3).integers(0, 1 << 63, ROWS, np.int64)
    payload = even_entry(np.zeros(ROWS, np.int64), even_cells([bits.view(np.float64)], ROWS))
    even = read_even(payload)
    assert even is not None
    assert isinstance(even.columns[0], np.ndarray)
    assert even.columns[0].view(np.int64).tolist() == bits.tolist()
    packed = [struct.pack("<d", row[0]) for row in decode_batch(payload).rows]
    assert packed == [struct.pack("<q", each) for each in bits.tolist()]


def test_some_rows_of_a_batch_are_an_entry_of_their_own() -> None:
    numbers = np.arange(1000, 2000)
    cells = even_cells([numbers, texts(["abc"] * 1000)], 1000)
    stamps_us = 10 * np.arange(1000)
    order = np.random.default_rng(5).permutation(1000)
    batch = decode_batch(even_entry(stamps_us[order][20:300], cells[order][20:300]))
    assert batch.rows == [(1000 + at, "abc") for at in order[20:300].tolist()]
    assert [batch.base_us + delta for delta in batch.deltas_us] == [10 * at for at in order[20:300].tolist()]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-40, 140), st.floats(),
    st.text(max_size=40), st.binary(max_size=40), st.lists(st.integers(-9, 9), max_size=2),
)  # fmt: skip


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8), st.integers(1, 80), st.booleans())
def test_what_is_read_by_columns_is_what_the_row_reader_has(
    some: list[tuple[Any, Any]], times: int, initial: bool
) -> None:
    rows = [row for row in some for _ in range(times)]
    payload = encode_batch(list(range(len(rows))), rows, initial=initial)
    even = read_even(payload)
    if even is None:
        return
    assert not initial
    assert len(payload) >= ENTRY_BYTES_MIN
    found = list(zip(*(values_of(column, len(rows)) for column in even.columns), strict=True))
    assert repr(found) == repr(decode_batch(payload).rows)
    assert list(even.stamps) == decode_timestamps(payload)


@given(st.integers(0, 5000), st.integers(0, 255))
def test_damaged_entries_are_read_as_the_row_reader_reads_them_or_not_at_all(at: int, byte: int) -> None:
    numbers = np.arange(ROWS)
    payload = bytearray(even_entry(numbers, even_cells([numbers, numbers * 7.5, numbers > 9], ROWS)))
    payload[at % len(payload)] = byte
    even = read_even(bytes(payload))
    if even is None:
        return
    rows = decode_batch(bytes(payload)).rows
    found = list(zip(*(values_of(column, ROWS) for column in even.columns), strict=True))
    assert repr(found) == repr(rows)


@given(
    st.lists(columns(), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(40, ROWS), st.integers(0, 1 << 50), WHOLE), min_size=1, max_size=5),
)
def test_entries_that_are_alike_are_read_as_one(
    given_columns: list[EvenColumn], cuts: list[tuple[int, int, tuple[int, int]]]
) -> None:
    cells = even_cells(given_columns, ROWS)
    payloads = []
    for rows, base_us, (least, most) in cuts:
        within = np.random.default_rng(rows).integers(max(least, -(1 << 50)), min(most, 1 << 50), rows)
        payloads.append(even_entry(base_us + within, cells[:rows]))
    even = read_even_together(payloads)
    if min(map(len, payloads)) < ENTRY_BYTES_MIN:
        assert even is None
        return
    assert even is not None
    batches = [decode_batch(payload) for payload in payloads]
    assert [rows_in(payload) for payload in payloads] == [len(batch.rows) for batch in batches]
    total = sum(rows for rows, _, _ in cuts)
    found = list(zip(*(values_of(column, total) for column in even.columns), strict=True))
    assert repr(found) == repr([row for batch in batches for row in batch.rows])
    assert list(even.stamps) == [batch.base_us + delta for batch in batches for delta in batch.deltas_us]
    assert read_even_together(payloads, total + 1) is None


def test_entries_that_are_not_alike_are_not_read_as_one() -> None:
    numbers = np.arange(ROWS)
    stamps_us = np.zeros(ROWS, np.int64)

    def entry(*given: EvenColumn) -> bytes:
        return even_entry(stamps_us, even_cells(given, ROWS))

    short, long = numbers % 9 + 1000, numbers + (1 << 20)
    assert read_even_together([entry(short, long), entry(short, long)]) is not None
    for other in (
        entry(long, short),
        entry(short, long, None),
        entry(short),
        entry(short, numbers % 2 == 0, None, None, None, None),
        encode_batch([1] * ROWS, [(n, "x" * (n % 3)) for n in range(ROWS)]),
        encode_batch([1], [(1, 2)]),
    ):
        assert read_even_together([entry(short, long), other]) is None
        assert read_even_together([other, entry(short, long)]) is None
    assert rows_in(encode_batch([1] * ROWS, [(1,)] * ROWS, initial=True)) is None
    assert rows_in(b"\x93") is None


def test_timestamps_are_a_sequence() -> None:
    stamps = Stamps(np.array([3, 1, 2]))
    assert list(stamps) == [3, 1, 2] == stamps
    assert stamps[1] == 1
    assert stamps[1:] == [1, 2]
    assert min(stamps) == oldest(stamps) == oldest([3, 1, 2]) == 1
    assert as_array([4, 5]).tolist() == [4, 5]
    assert stamps.taken(np.array([True, False, True])) == [3, 2]
    assert joined([stamps, Stamps.uniform(7, 2)]) == [3, 1, 2, 7, 7]
    assert joined([stamps, [9]]) == [3, 1, 2, 9]
    assert joined([]) == []
    assert {type(each) for each in stamps} == {int}
