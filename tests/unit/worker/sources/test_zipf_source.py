"""The generator: the same rows from the same position, zipf's shares, shuffles, pace, and its end."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.zipf import ZipfSource
from penstock.errors import PermanentError
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.pace import Pace
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.sources.zipf import BLOCK_ROWS, ZipfReader
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows

NOW_US = 1_700_000_000_000_000
MANY = 1 << 30
PLAIN = ZipfSource(
    keys=100,
    exponent=1.0,
    record_bytes=30,
    service_time_us=0,
    rate_per_s=None,
    records=None,
    shuffles_per_minute=0.0,
    partitions=1,
    seed=7,
)


def rows_of(
    source: ZipfSource, count: int, partition: int = 0, position: bytes = b""
) -> list[tuple[object, ...]]:
    reader = ZipfReader("gen", source)
    reader.open(f"gen/{partition}", position, NOW_US)
    batch = reader.read(f"gen/{partition}", position, count, MANY, NOW_US + 10**12)
    return [tuple(row) for row in batch.rows]


def test_a_row_is_key_payload_service_time_and_number() -> None:
    key, payload, service_time_us, number = rows_of(PLAIN, 1)[0]
    assert isinstance(key, int)
    assert payload == "abcdefghijklmnopqrstuvwxyzabcd"
    assert (service_time_us, number) == (0, 0)
    assert rows_of(replace(PLAIN, record_bytes=0), 1)[0][1] == ""


def test_a_row_says_when_it_was_due_where_a_column_is_named_for_that() -> None:
    timed = replace(PLAIN, time_column="at")
    paced, unpaced = replace(timed, rate_per_s=1000.0), timed
    for source, times_us in (
        (paced, [NOW_US, NOW_US + 1_000, NOW_US + 2_000]),
        (unpaced, [NOW_US + 5_000] * 3),
    ):
        reader = ZipfReader("gen", source)
        reader.open("gen/0", b"", NOW_US)
        batch = reader.read("gen/0", b"", 3, MANY, NOW_US + 5_000)
        assert [row[4] for row in batch.rows] == batch.timestamps_us == times_us
        assert [row[:4] for row in batch.rows] == rows_of(PLAIN, 3)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8))
def test_rows_do_not_depend_on_how_they_are_read(counts: list[int]) -> None:
    source = replace(PLAIN, rate_per_s=1000.0, shuffles_per_minute=60.0)
    whole = rows_of(source, sum(counts))
    position = b""
    seen: list[Sequence[object]] = []
    for count in counts:
        reader = ZipfReader("gen", source)
        reader.open("gen/0", position, NOW_US)
        batch = reader.read("gen/0", position, count, MANY, NOW_US + 10**12)
        again = reader.read("gen/0", position, count, MANY, NOW_US + 10**12)
        assert again == batch
        position = batch.position
        seen += batch.rows
    assert seen == whole


def test_seeds_and_partitions_give_other_rows() -> None:
    keys = {
        (seed, partition): tuple(
            row[0] for row in rows_of(replace(PLAIN, seed=seed, partitions=2), 50, partition)
        )
        for seed in (1, 2)
        for partition in (0, 1)
    }
    assert len(set(keys.values())) == 4


def test_numbers_count_over_all_partitions_and_end_with_the_records() -> None:
    source = replace(PLAIN, partitions=3, records=20)
    numbers = []
    for partition in range(3):
        reader = ZipfReader("gen", source)
        reader.open(f"gen/{partition}", b"", NOW_US)
        batch = reader.read(f"gen/{partition}", b"", 5, MANY, NOW_US)
        assert not batch.finished
        rest = reader.read(f"gen/{partition}", batch.position, 5, MANY, NOW_US)
        assert rest.finished
        assert reader.read(f"gen/{partition}", rest.position, 5, MANY, NOW_US) == SourceBatch(
            [], [], rest.position, finished=True, next_due_us=None
        )
        numbers += [row[3] for row in (*batch.rows, *rest.rows)]
    assert sorted(numbers) == list(range(20))


def test_a_partition_without_records_is_finished_at_once() -> None:
    source = replace(PLAIN, partitions=3, records=2, rate_per_s=1.0)
    reader = ZipfReader("gen", source)
    reader.open("gen/2", b"", NOW_US)
    assert reader.read("gen/2", b"", 5, MANY, NOW_US).finished


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_keys_come_as_often_as_zipf_says(exponent: float) -> None:
    rows = 40_000
    seen = Counter(row[0] for row in rows_of(replace(PLAIN, exponent=exponent), rows))
    weights = [(rank + 1) ** -exponent for rank in range(100)]
    assert set(seen) <= set(range(100))
    for key in (0, 1, 10, 99):
        expected = rows * weights[key] / sum(weights)
        assert seen[key] == pytest.approx(expected, abs=5 * expected**0.5 + 1)


def test_shuffles_change_the_hot_key_at_the_same_record_in_all_partitions() -> None:
    # 600 records a second, a shuffle every half second: at records 300, 600, ...
    source = replace(PLAIN, exponent=3.0, partitions=2, rate_per_s=600.0, shuffles_per_minute=120.0)
    hot = []
    for partition in (0, 1):
        by_shuffle: dict[int, Counter[object]] = {}
        for key, _, _, number in rows_of(source, 900, partition):
            assert isinstance(number, int)
            by_shuffle.setdefault(number // 300, Counter())[key] += 1
        hot.append([by_shuffle[shuffle].most_common(1)[0][0] for shuffle in range(6)])
    assert hot[0] == hot[1]
    assert hot[0][0] == 0
    assert len(set(hot[0])) > 3


def test_shuffles_without_a_rate_are_refused() -> None:
    with pytest.raises(PermanentError, match="source gen: shufflesPerMinute"):
        ZipfReader("gen", replace(PLAIN, shuffles_per_minute=2.0))


def test_service_times_have_the_mean_and_spread_of_the_paper() -> None:
    times = [row[2] for row in rows_of(replace(PLAIN, service_time_us=1000), 3 * BLOCK_ROWS)]
    assert all(isinstance(time, int) and 0 <= time <= 2000 for time in times)
    numbers = [float(str(time)) for time in times]
    assert statistics.fmean(numbers) == pytest.approx(1000, rel=0.03)
    # sqrt(0.5) ms, less what is cut off at 0 and 2 ms.
    assert 500 < statistics.pstdev(numbers) < 707


def test_a_batch_keeps_to_its_budget_in_bytes() -> None:
    reader = ZipfReader("gen", replace(PLAIN, record_bytes=1000))
    reader.open("gen/0", b"", NOW_US)
    assert len(reader.read("gen/0", b"", 1000, 10_240, NOW_US).rows) == 10
    assert len(reader.read("gen/0", b"", 1000, 1, NOW_US).rows) == 1


def test_nothing_comes_before_it_is_due_and_partitions_take_turns() -> None:
    source = replace(PLAIN, partitions=2, rate_per_s=1000.0)
    reader = open_reader("gen", source, Path())
    assert reader.paced
    stamps = []
    for partition in (0, 1):
        shard = f"gen/{partition}"
        reader.open(shard, b"", NOW_US)
        position = b""
        for now_us in range(NOW_US, NOW_US + 10_000, 300):
            batch = reader.read(shard, position, MANY, MANY, now_us)
            position = batch.position
            assert all(stamp <= now_us for stamp in batch.timestamps_us)
            assert batch.next_due_us is not None
            assert batch.next_due_us > now_us
            stamps += [stamp - NOW_US for stamp in batch.timestamps_us]
    assert sorted(stamps) == list(range(0, 10_000, 1000))


def test_a_resumed_partition_counts_from_the_moment_it_resumes() -> None:
    source = replace(PLAIN, rate_per_s=1000.0)
    reader = ZipfReader("gen", source)
    reader.open("gen/0", b"", NOW_US)
    first = reader.read("gen/0", b"", MANY, MANY, NOW_US + 4500)
    assert len(first.rows) == 5
    reader.release("gen/0")
    reader.open("gen/0", first.position, NOW_US + 10**9)
    second = reader.read("gen/0", first.position, MANY, MANY, NOW_US + 10**9 + 1500)
    assert [row[3] for row in second.rows] == [5, 6]
    assert second.timestamps_us == [NOW_US + 10**9, NOW_US + 10**9 + 1000]
    reader.close()


@given(
    st.integers(0, 10**15),
    st.floats(0.001, 1e9),
    st.floats(0, 0.999),
    st.integers(0, 5000),
    st.floats(0, 5000),
)
def test_due_rows_are_exactly_those_whose_time_has_come(
    anchor_index: int, period_us: float, phase: float, ahead: int, passed: float
) -> None:
    pace = Pace(NOW_US, anchor_index, period_us, phase)
    index = anchor_index + ahead
    now_us = NOW_US + int(passed * period_us)
    due = pace.due_rows(index, now_us)
    assert pace.due_us(index + due) > now_us
    if due:
        assert pace.due_us(index + due - 1) <= now_us
    stamps = pace.timestamps_us(index, min(due, 20))
    assert stamps == [pace.due_us(index + row) for row in range(len(stamps))]
    assert pace.due_rows(index, NOW_US - 5) == 0


@pytest.mark.parametrize(
    "source",
    [
        PLAIN,
        replace(PLAIN, record_bytes=0, partitions=3, records=20_000),
        replace(PLAIN, rate_per_s=1e6, shuffles_per_minute=600.0, time_column="due"),
        replace(PLAIN, time_column="due", service_time_us=2000),
    ],
)
def test_columns_hold_the_rows_that_are_read_without_them(source: ZipfSource) -> None:
    by_rows, by_columns = ZipfReader("gen", source), ZipfReader("gen", source)
    rows_min = COLUMNS_FROM
    assert by_columns.give_columns(lambda: rows_min)
    position = b""
    for reader in (by_rows, by_columns):
        reader.open("gen/1" if source.partitions > 1 else "gen/0", position, NOW_US)
    for rows_min, rows in (
        (512, 8192), (512, 5), (512, 511), (512, 512), (3001, 3000), (3000, 3000), (512, 8192),
    ):  # fmt: skip
        shard = "gen/1" if source.partitions > 1 else "gen/0"
        expected = by_rows.read(shard, position, rows, MANY, NOW_US + 1_000_000)
        found = by_columns.read(shard, position, rows, MANY, NOW_US + 1_000_000)
        assert isinstance(found.rows, ColumnRows) is (len(expected.rows) >= rows_min)
        assert list(found.rows) == expected.rows
        assert list(found.timestamps_us) == expected.timestamps_us
        assert found.position == expected.position
        assert found.finished is expected.finished
        assert found.next_due_us == expected.next_due_us
        position = found.position
