"""Sources that follow a rate trace: rows come with the times that the trace gives them, and a partition that
changed hands goes on at its position."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files import FilesSource
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.rate_trace import parse_rate_trace
from penstock.errors import PermanentError
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.files import FilesReader
from penstock_worker.sources.pace import pace_of
from penstock_worker.sources.reader import SourceReader
from penstock_worker.sources.zipf import ZipfReader

NOW_US = 1_700_000_000_000_000
MANY = 1 << 30
TRACED = ZipfSource(
    keys=100,
    exponent=1.0,
    record_bytes=30,
    service_time_us=0,
    rate_per_s=None,
    records=None,
    shuffles_per_minute=0.0,
    partitions=1,
    seed=7,
    rate_trace="rates.csv",
)
# 1 000 rows in 10 s, 3 000 in the next 10 s, a pause of 5 s, and then 100 a second for good.
PAUSED = "0,100\n10,300\n20,0\n25,100\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rates.csv").write_text(PAUSED)
    return tmp_path


def read_until(reader: SourceReader, shard: str, until_us: int, step_us: int) -> list[int]:
    """Due times, from NOW_US, of all rows that a task gets by then; it looks every `step_us`."""
    reader.open(shard, b"", NOW_US)
    position, stamps = b"", []
    for now_us in range(NOW_US, NOW_US + until_us + 1, step_us):
        batch = reader.read(shard, position, MANY, MANY, now_us)
        assert all(stamp <= now_us for stamp in batch.timestamps_us), "no row comes before it is due"
        assert batch.next_due_us is None or batch.next_due_us > now_us, "all that is due is given"
        position = batch.position
        stamps += [stamp - NOW_US for stamp in batch.timestamps_us]
    return stamps


# --- generators -----------------------------------------------------------------------------------


def test_rows_come_at_the_traces_times(folder: Path) -> None:
    reader = open_reader("gen", TRACED, folder)
    assert reader.paced
    stamps = read_until(reader, "gen/0", 26_000_000, 130_000)
    expected = [row * 10_000 for row in range(1000)]
    expected += [10_000_000 + row * 10**6 // 300 for row in range(3000)]
    expected += [25_000_000 + row * 10_000 for row in range(101)]
    # A third of a microsecond is rounded down, and may stand for one less in floating point.
    assert np.abs(np.array(stamps) - np.array(expected)).max() <= 1


def test_partitions_take_turns_and_give_the_trace_together(folder: Path) -> None:
    whole = read_until(ZipfReader("gen", TRACED, folder), "gen/0", 12_000_000, 250_000)
    thirds = ZipfReader("gen", replace(TRACED, partitions=3), folder)
    parts = [stamp for p in range(3) for stamp in read_until(thirds, f"gen/{p}", 12_000_000, 250_000)]
    assert sorted(parts) == whole


def test_a_row_tells_when_the_next_one_is_due_over_a_pause(folder: Path) -> None:
    reader = ZipfReader("gen", TRACED, folder)
    reader.open("gen/0", b"", NOW_US)
    batch = reader.read("gen/0", b"", MANY, MANY, NOW_US + 21_000_000)
    assert len(batch.rows) == 4000
    assert batch.next_due_us == NOW_US + 25_000_000
    assert reader.read("gen/0", batch.position, MANY, MANY, NOW_US + 24_999_999).rows == []


def test_a_partition_that_changed_hands_goes_on_at_its_position(folder: Path) -> None:
    first = ZipfReader("gen", TRACED, folder)
    first.open("gen/0", b"", NOW_US)
    position = first.read("gen/0", b"", 1200, MANY, NOW_US + 15_000_000).position
    # Row 1 200 is due 200 / 300 s into the second part. It comes at once, and the trace goes on from there.
    later_us = NOW_US + 10**9
    second = ZipfReader("gen", TRACED, folder)
    second.open("gen/0", position, later_us)
    batch = second.read("gen/0", position, MANY, MANY, later_us + 10_000)
    assert [row[3] for row in batch.rows] == [1200, 1201, 1202, 1203]
    assert batch.timestamps_us[0] == later_us
    assert batch.timestamps_us[3] - later_us in (9_999, 10_000)
    rest = second.read("gen/0", batch.position, MANY, MANY, later_us + 9_333_334 + 4_999_990)
    assert len(rest.rows) == 4000 - 1204
    assert rest.next_due_us is not None
    assert rest.next_due_us - later_us == pytest.approx(9_333_333 + 5_000_000, abs=1)


def test_a_pause_in_which_a_partition_changed_hands_begins_anew(folder: Path) -> None:
    first = ZipfReader("gen", TRACED, folder)
    first.open("gen/0", b"", NOW_US)
    position = first.read("gen/0", b"", MANY, MANY, NOW_US + 24_000_000).position
    later_us = NOW_US + 10**9
    second = ZipfReader("gen", TRACED, folder)
    second.open("gen/0", position, later_us)
    batch = second.read("gen/0", position, MANY, MANY, later_us)
    assert (batch.rows, batch.next_due_us) == ([], later_us + 5_000_000)


def test_a_last_rate_of_0_ends_every_partition(folder: Path) -> None:
    (folder / "rates.csv").write_text("0,0.1\n10,0.2\n20,0\n")
    numbers = []
    for partition in (0, 1):
        reader = ZipfReader("gen", replace(TRACED, partitions=2), folder)
        reader.open(f"gen/{partition}", b"", NOW_US)
        batch = reader.read(f"gen/{partition}", b"", MANY, MANY, NOW_US + 19_999_999)
        assert batch.finished
        assert batch.next_due_us is None
        numbers += [row[3] for row in batch.rows]
    assert sorted(numbers) == [0, 1, 2]


def test_records_end_a_source_before_its_trace_does(folder: Path) -> None:
    reader = ZipfReader("gen", replace(TRACED, records=7), folder)
    reader.open("gen/0", b"", NOW_US)
    batch = reader.read("gen/0", b"", MANY, MANY, NOW_US + 60_000)
    assert (len(batch.rows), batch.finished) == (7, True)


def test_a_position_beyond_a_trace_that_was_cut_short_is_the_end(folder: Path) -> None:
    reader = ZipfReader("gen", TRACED, folder)
    reader.open("gen/0", b"", NOW_US)
    position = reader.read("gen/0", b"", 500, MANY, NOW_US + 9_000_000).position
    (folder / "rates.csv").write_text("0,100\n1,0\n")
    shorter = ZipfReader("gen", TRACED, folder)
    shorter.open("gen/0", position, NOW_US)
    assert shorter.read("gen/0", position, MANY, MANY, NOW_US).finished


def test_shuffles_count_minutes_of_the_trace(folder: Path) -> None:
    # Shuffles every 5 s: at rows 500, 1 000, 2 500 and 4 000 (by then 25 s, the pause holds no row).
    source = replace(TRACED, exponent=3.0, shuffles_per_minute=12.0)
    reader = ZipfReader("gen", source, folder)
    reader.open("gen/0", b"", NOW_US)
    rows = reader.read("gen/0", b"", 4400, MANY, NOW_US + 29_000_000).rows
    borders = (0, 500, 1000, 2500, 4000, 4400)
    hot = [
        Counter(row[0] for row in rows[begin:end]).most_common(1)[0][0]
        for begin, end in itertools.pairwise(borders)
    ]
    assert hot[0] == 0
    assert len(set(hot)) == 5
    assert [row[0] for row in rows[:500]].count(0) > 350
    assert [row[0] for row in rows[500:1000]].count(0) < 50


# --- text files -----------------------------------------------------------------------------------


def test_files_share_a_trace_by_their_sizes_and_end_together(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"line\n" * 3000)
    (folder / "b.txt").write_bytes(b"line\n" * 1000)
    source = FilesSource("*.txt", "text", None, "rates.csv")
    reader = FilesReader("lines", source, folder)
    stamps = {name: read_until(reader, f"lines/{name}.txt", 20_000_000, 50_000) for name in "ab"}
    assert {name: len(due_us) for name, due_us in stamps.items()} == {"a": 3000, "b": 1000}
    in_10_s = {name: sum(stamp < 10_000_000 for stamp in due_us) for name, due_us in stamps.items()}
    assert in_10_s == {"a": 750, "b": 250}


def test_a_file_goes_on_in_its_trace_where_a_new_owner_resumes(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"line\n" * 3000)
    reader = FilesReader("lines", FilesSource("*.txt", "text", None, "rates.csv"), folder)
    reader.open("lines/a.txt", b"", NOW_US)
    position = reader.read("lines/a.txt", b"", 1000, MANY, NOW_US + 15_000_000).position
    later_us = NOW_US + 10**9
    reader.open("lines/a.txt", position, later_us)
    batch = reader.read("lines/a.txt", position, MANY, MANY, later_us + 999_999)
    assert len(batch.rows) == 300, "it was at 10 s, where the rate is 300"
    assert batch.timestamps_us[0] == later_us


def test_a_worker_says_what_is_wrong_with_a_trace(folder: Path) -> None:
    with pytest.raises(PermanentError, match=r"^source gen: rate trace absent\.csv: no such file"):
        open_reader("gen", replace(TRACED, rate_trace="absent.csv"), folder)
    (folder / "rates.csv").write_text("0,5\n5,0\n")
    with pytest.raises(PermanentError, match=r"^source lines: rate trace rates\.csv: its last rate is 0"):
        open_reader("lines", FilesSource("*.txt", "text", None, "rates.csv"), folder)


# --- the pace itself ------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 2000)), min_size=1, max_size=5),
    st.sampled_from([1.0, 3, 7.3]),
    st.floats(0, 0.999),
    st.integers(0, 2000),
    st.integers(0, 2000),
    st.integers(-5, 10**8),
)
def test_due_rows_are_exactly_those_whose_time_has_come(
    spans: list[tuple[int, int]], spread: float, phase: float, taken_up: int, ahead: int, passed_us: int
) -> None:
    at_us, lines = 0, []
    for length_us, rate_per_s in spans:
        lines.append(f"{at_us / 1e6:.6f},{rate_per_s}")
        at_us += length_us
    trace = parse_rate_trace("\n".join([*lines, f"{at_us / 1e6:.6f},50"]))
    pace = pace_of(trace, spread, phase * spread, taken_up, NOW_US)
    index, now_us = taken_up + ahead, NOW_US + passed_us
    due = pace.due_rows(index, now_us)
    assert pace.due_us(index + due) > now_us
    if due:
        assert pace.due_us(index + due - 1) <= now_us
    assert pace.timestamps_us(index, 20) == [pace.due_us(index + row) for row in range(20)]
    assert pace.due_us(taken_up) >= NOW_US
