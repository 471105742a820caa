"""The text source: lines, positions that a re-read repeats, pace, and files that are not what they were."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files import FilesSource
from penstock.errors import PermanentError
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.file_changes import COMPARED_BYTES, QUIET_US
from penstock_worker.sources.files import CHUNK_BYTES, OPEN_MAX, FilesReader
from penstock_worker.sources.reader import SourceBatch

NOW_US = 1_700_000_000_000_000
MANY = 1 << 20


def reader_of(folder: Path, rate_per_s: float | None = None, **limits: int) -> FilesReader:
    return FilesReader("lines", FilesSource("*.txt", "text", rate_per_s), folder, **limits)


def read_all(
    reader: FilesReader, shard: str, rows_max: int = MANY, bytes_max: int = MANY, position: bytes = b""
) -> list[SourceBatch]:
    batches = []
    while not batches or not batches[-1].finished:
        batches.append(reader.read(shard, position, rows_max, bytes_max, NOW_US))
        position = batches[-1].position
    return batches


def lines_of(batches: list[SourceBatch]) -> list[str]:
    return [value for batch in batches for (value,) in batch.rows]


def opened(folder: Path, content: bytes, rate_per_s: float | None = None, **limits: int) -> FilesReader:
    (folder / "a.txt").write_bytes(content)
    reader = reader_of(folder, rate_per_s, **limits)
    reader.open("lines/a.txt", b"", NOW_US)
    return reader


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\ntwo", ["one", "two"]),
        (b"\n\none\n\n", ["", "", "one", ""]),
        (b"one\r\ntwo\r\nthree\r", ["one", "two", "three"]),
        (b"a\rb\r\r\n", ["a\rb\r"]),
        ("über\u2028sea\x85x\n".encode(), ["über\u2028sea\x85x"]),
        (b"bad \xff\xfe here\n\xe2\x82\nok\n", ["bad \ufffd\ufffd here", "\ufffd", "ok"]),
    ],
)
@pytest.mark.parametrize("rows_max", [1, 2, MANY])
def test_lines_end_with_a_newline_or_the_file(
    tmp_path: Path, content: bytes, lines: list[str], rows_max: int
) -> None:
    batches = read_all(opened(tmp_path, content), "lines/a.txt", rows_max)
    assert lines_of(batches) == lines
    assert all(len(batch.rows) <= rows_max for batch in batches)
    assert all(batch.timestamps_us == [NOW_US] * len(batch.rows) for batch in batches)


contents = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\xff", "ü".encode()]), max_size=40).map(
    b"".join
)


@given(contents, st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), min_size=1))
def test_a_reader_that_starts_at_any_position_goes_on_as_the_first_would(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, budgets: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    reader = opened(folder, content)
    whole = lines_of(read_all(reader, "lines/a.txt"))
    position = b""
    seen: list[str] = []
    finished = False
    while not finished:
        rows_max, bytes_max = budgets[len(seen) % len(budgets)]
        batch = reader.read("lines/a.txt", position, rows_max, bytes_max, NOW_US)
        assert batch == reader.read("lines/a.txt", position, rows_max, bytes_max, NOW_US)
        other = reader_of(folder)
        other.open("lines/a.txt", position, NOW_US)
        rest = lines_of(read_all(other, "lines/a.txt", position=position))
        assert seen + rest == whole
        other.close()
        seen += lines_of([batch])
        position, finished = batch.position, batch.finished
    assert seen == whole


def test_budgets_bound_a_batch_but_one_line_is_always_given(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"12345678\n" * 10)
    batches = read_all(reader, "lines/a.txt", bytes_max=20)
    assert [len(batch.rows) for batch in batches] == [2] * 5
    batches = read_all(reader, "lines/a.txt", bytes_max=1)
    assert [len(batch.rows) for batch in batches] == [1] * 10


def test_files_larger_than_the_cache_are_read_whole(tmp_path: Path) -> None:
    lines = [f"{number} " + "x" * (number % 997) for number in range(1000)]
    lines[500] = "y" * (CHUNK_BYTES + 77)
    reader = opened(tmp_path, "\n".join(lines).encode())
    assert lines_of(read_all(reader, "lines/a.txt", rows_max=64, bytes_max=10_000)) == lines


def test_a_line_at_the_limit_passes_and_one_beyond_is_named(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"a\n" + b"x" * 50 + b"\r\nb\n", line_bytes_max=50)
    assert [len(line) for line in lines_of(read_all(reader, "lines/a.txt"))] == [1, 50, 1]
    reader = opened(tmp_path, b"a\n" + b"x" * 51 + b"\nb\n", line_bytes_max=50)
    with pytest.raises(PermanentError, match=r"a\.txt, line 2: longer than 50 bytes"):
        read_all(reader, "lines/a.txt", rows_max=1)
    with pytest.raises(PermanentError, match="line 2: longer than 50 bytes"):
        read_all(reader, "lines/a.txt")


def test_a_line_without_end_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"ok\n" + b"x" * (20 << 20))
    with pytest.raises(PermanentError, match="line 2"):
        read_all(reader, "lines/a.txt")


def test_replaced_bytes_count_by_their_new_length(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"\xff" * 20 + b"\n", line_bytes_max=50)
    with pytest.raises(PermanentError, match="line 1: longer than 50 bytes"):
        read_all(reader, "lines/a.txt")


# --- files that change ------------------------------------------------------------------------------


def begin(folder: Path) -> tuple[FilesReader, bytes]:
    reader = opened(folder, b"one\ntwo\nthree\n")
    return reader, reader.read("lines/a.txt", b"", 1, MANY, NOW_US).position


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    reader, position = begin(tmp_path)
    os.truncate(tmp_path / "a.txt", 5)
    with pytest.raises(PermanentError, match=r"truncated: it has 5 bytes, and had 14 .* read to line 1"):
        reader.read("lines/a.txt", position, MANY, MANY, NOW_US)


def append(folder: Path, data: bytes) -> None:
    with (folder / "a.txt").open("ab") as file:
        file.write(data)


def read_on(reader: FilesReader, position: bytes) -> tuple[list[str], bytes]:
    """To the end, while time passes."""
    lines = []
    for turn in range(100):
        batch = reader.read("lines/a.txt", position, MANY, MANY, NOW_US + turn * QUIET_US // 4)
        lines += lines_of([batch])
        position = batch.position
        if batch.finished:
            return lines, position
    raise AssertionError("it does not come to an end")


def taken_up(folder: Path, position: bytes) -> FilesReader:
    reader = reader_of(folder)
    reader.open("lines/a.txt", position, NOW_US)
    return reader


def test_what_is_appended_while_a_file_is_read_is_read_on(tmp_path: Path) -> None:
    reader, position = begin(tmp_path)
    append(tmp_path, b"four\nfi")
    read: list[str] = []
    while "four" not in read:
        batch = reader.read("lines/a.txt", position, MANY, MANY, NOW_US)
        read, position = read + lines_of([batch]), batch.position
        assert not batch.finished
    assert read == ["two", "three", "four"]
    append(tmp_path, b"ve\n")
    assert read_on(reader, position)[0] == ["five"]


def test_what_is_appended_to_a_file_that_was_read_to_its_end_is_read_on(tmp_path: Path) -> None:
    reader, position = begin(tmp_path)
    lines, end = read_on(reader, position)
    assert lines == ["two", "three"]
    assert not reader.grew("lines/a.txt", end)
    append(tmp_path, b"four\nfive")
    for again in (reader, taken_up(tmp_path, end)):
        assert again.grew("lines/a.txt", end)
        lines, later = read_on(again, end)
        assert lines == ["four", "five"]
        assert not again.grew("lines/a.txt", later)


def test_a_last_line_without_end_is_left_to_who_appends_to_a_file_that_grows(tmp_path: Path) -> None:
    reader, position = begin(tmp_path)
    append(tmp_path, b"fo")
    batch = reader.read("lines/a.txt", position, MANY, MANY, NOW_US)
    assert lines_of([batch]) == ["two", "three"]
    batch = reader.read("lines/a.txt", batch.position, MANY, MANY, NOW_US)
    assert (batch.rows, batch.next_due_us) == ([], NOW_US + QUIET_US)
    append(tmp_path, b"ur\n")
    assert read_on(reader, batch.position)[0] == ["four"]


def test_a_line_that_was_read_without_its_end_may_get_one_but_not_go_on(tmp_path: Path) -> None:
    for end in (b"\n", b"\r\n"):
        position = read_on(opened(tmp_path, b"one\ntwo"), b"")[1]
        append(tmp_path, end + b"three\n")
        assert read_on(taken_up(tmp_path, position), position)[0] == ["three"]
    position = read_on(opened(tmp_path, b"one\ntwo"), b"")[1]
    append(tmp_path, b"fold\n")
    with pytest.raises(PermanentError, match=r"line 2: it had no end when it was read .* start anew"):
        read_on(taken_up(tmp_path, position), position)


def test_a_file_that_was_changed_before_its_position_is_refused_whatever_its_size(tmp_path: Path) -> None:
    _, position = begin(tmp_path)
    for content in (b"ONE\nTWO\nTHREE\n", b"ONE\ntwo\nthree\nfour\n"):
        (tmp_path / "b").write_bytes(content)
        os.utime(tmp_path / "b", ns=(0, 0))
        (tmp_path / "b").rename(tmp_path / "a.txt")
        with pytest.raises(PermanentError, match=r"changed before line 2, .* first 4 bytes .*appended"):
            taken_up(tmp_path, position).read("lines/a.txt", position, MANY, MANY, NOW_US)


def test_a_file_that_was_put_back_is_read_on_whatever_its_time_of_change(tmp_path: Path) -> None:
    _, position = begin(tmp_path)
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthree\n")
    os.utime(tmp_path / "a.txt", ns=(0, 0))
    assert read_on(taken_up(tmp_path, position), position)[0] == ["two", "three"]


def test_a_file_rewritten_while_it_is_read_is_found_before_it_is_finished(tmp_path: Path) -> None:
    reader, position = begin(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"ONE\ntwo\nthree\n")
    os.utime(tmp_path / "a.txt", ns=(0, 0))
    with pytest.raises(PermanentError, match="was changed before line 4"):
        read_on(reader, position)


def test_what_was_read_is_compared_some_at_a_time(tmp_path: Path) -> None:
    content = b"x" * 99 + b"\n"
    lines = 3 * COMPARED_BYTES // 100
    position = read_all(opened(tmp_path, content * lines), "lines/a.txt")[-1].position
    append(tmp_path, b"more\n")
    reader = taken_up(tmp_path, position)
    looks = 0
    while not (batch := reader.read("lines/a.txt", position, MANY, MANY, NOW_US)).rows:
        looks += 1
        assert batch.position == position
    assert looks == 2
    assert lines_of([batch]) == ["more"]


def test_a_position_of_an_earlier_version_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    stat = (tmp_path / "a.txt").stat()
    position = msgspec.msgpack.encode([4, 1, stat.st_size, stat.st_mtime_ns])
    assert read_on(taken_up(tmp_path, position), position)[0] == ["two"]


def test_a_file_that_is_gone_or_unreadable_is_named(tmp_path: Path) -> None:
    _, position = begin(tmp_path)
    (tmp_path / "a.txt").unlink()
    reader = reader_of(tmp_path)
    reader.open("lines/a.txt", position, NOW_US)
    with pytest.raises(PermanentError, match=r"a\.txt is gone"):
        reader.read("lines/a.txt", position, MANY, MANY, NOW_US)
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(PermanentError, match=r"a\.txt cannot be read: Is a directory"):
        reader.read("lines/a.txt", b"", MANY, MANY, NOW_US)


# --- files open -------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_few_files_stay_open_however_many_are_read_in_turn(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    before = descriptors()
    positions = {}
    for number in range(200):
        (tmp_path / f"{number}.txt").write_bytes(b"a\nb\nc\n")
        reader.open(f"lines/{number}.txt", b"", NOW_US)
        positions[f"lines/{number}.txt"] = b""
    seen = []
    for _ in range(3):
        for shard in positions:
            batch = reader.read(shard, positions[shard], 1, MANY, NOW_US)
            positions[shard] = batch.position
            seen += lines_of([batch])
        assert descriptors() <= before + OPEN_MAX
    assert seen == ["a"] * 200 + ["b"] * 200 + ["c"] * 200
    assert descriptors() == before
    reader.read("lines/7.txt", b"", 1, MANY, NOW_US)
    reader.release("lines/7.txt")
    reader.release("lines/7.txt")
    reader.read("lines/8.txt", b"", 1, MANY, NOW_US)
    reader.close()
    assert descriptors() == before


# --- pace -------------------------------------------------------------------------------------------


def test_a_paced_file_gives_no_line_before_it_is_due(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"a\nb\nc\nd\n", rate_per_s=1000)
    assert reader.paced
    position, seen, stamps = b"", [], []
    for now_us in range(NOW_US, NOW_US + 3001, 250):
        batch = reader.read("lines/a.txt", position, MANY, MANY, now_us)
        assert all(stamp <= now_us for stamp in batch.timestamps_us)
        assert batch.next_due_us is None or batch.next_due_us > now_us
        position = batch.position
        seen += lines_of([batch])
        stamps += batch.timestamps_us
    assert seen == ["a", "b", "c", "d"]
    assert [stamp - NOW_US for stamp in stamps] == [0, 1000, 2000, 3000]
    assert batch.finished


def test_a_late_read_gives_all_that_is_due_with_the_times_it_was_due(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"a\nb\nc\nd\n", rate_per_s=1000)
    batch = reader.read("lines/a.txt", b"", MANY, MANY, NOW_US + 2500)
    assert [stamp - NOW_US for stamp in batch.timestamps_us] == [0, 1000, 2000]
    assert batch.next_due_us == NOW_US + 3000


def test_files_share_the_rate_by_size_and_end_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"line\n" * 300)
    (tmp_path / "b.txt").write_bytes(b"line\n" * 100)
    (tmp_path / "c.txt").write_bytes(b"")
    reader = reader_of(tmp_path, rate_per_s=1000)
    positions = {f"lines/{name}.txt": b"" for name in "abc"}
    for shard in positions:
        reader.open(shard, b"", NOW_US)
    read = dict.fromkeys(positions, 0)
    for shard in positions:
        batch = reader.read(shard, b"", MANY, MANY, NOW_US + 200_000)
        read[shard] = len(batch.rows)
        positions[shard] = batch.position
    assert sum(read.values()) == pytest.approx(200, abs=2)
    assert read["lines/a.txt"] == pytest.approx(150, abs=1)
    ends = [reader.read(s, positions[s], MANY, MANY, NOW_US + 401_000).finished for s in positions]
    assert ends == [True] * 3


def test_pace_counts_from_where_a_new_owner_resumes(tmp_path: Path) -> None:
    reader = opened(tmp_path, b"a\nb\nc\nd\n", rate_per_s=1000)
    position = reader.read("lines/a.txt", b"", 2, MANY, NOW_US + 9000).position
    later = NOW_US + 5_000_000
    reader.open("lines/a.txt", position, later)
    batch = reader.read("lines/a.txt", position, MANY, MANY, later + 500)
    assert lines_of([batch]) == ["c"]
    assert batch.timestamps_us == [later]
    assert batch.next_due_us == later + 1000


def test_the_factory_gives_a_reader_for_files(tmp_path: Path) -> None:
    reader = open_reader("lines", FilesSource("*.txt", "text", None), tmp_path)
    assert isinstance(reader, FilesReader)
    assert not reader.paced
