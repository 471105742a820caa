"""The JSONL sink: whoever writes an entry, and however often, the file is the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import JsonlSink
from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock_worker.sinks.jsonl import OPEN_MAX, JsonlSinkWriter, SinkDiskFull

SHARD = "count/17"
ENTRIES = [
    (number, encode_batch([1] * rows, [(f"word {number}", row) for row in range(rows)]))
    for number, rows in enumerate((2, 1, 5, 3), 1)
]
WHOLE = b"".join(
    b'{"word":"word %d","total":%d}\n' % (number, row)
    for number, rows in enumerate((2, 1, 5, 3), 1)
    for row in range(rows)
)


def writer_of(folder: Path, *, durable: bool = False) -> JsonlSinkWriter:
    schema = parse_schema("word string, total bigint")
    return JsonlSinkWriter(JsonlSink("totals", "out/deep"), schema, folder, durable=durable)


def content(folder: Path) -> bytes:
    return (folder / "out/deep/totals-count-17.jsonl").read_bytes()


@pytest.mark.parametrize("durable", [False, True])
def test_rows_are_lines_of_one_file_a_shard(tmp_path: Path, durable: bool) -> None:
    writer = writer_of(tmp_path, durable=durable)
    position = writer.write(SHARD, b"", ENTRIES[:1])
    position = writer.write(SHARD, position, ENTRIES[1:])
    writer.write("lines/docs/a.txt", b"", ENTRIES[:1])
    writer.close()
    assert content(tmp_path) == WHOLE
    assert position == str(len(WHOLE)).encode()
    assert sorted(os.listdir(tmp_path / "out/deep")) == [
        "totals-count-17.jsonl",
        "totals-lines-docs%2Fa.txt.jsonl",
    ]


def test_a_crash_at_any_byte_is_completed_by_the_next_owner(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    acknowledged = writer.write(SHARD, b"", ENTRIES[:2])
    path = writer.path(SHARD)
    before = path.read_bytes()
    for written in range(len(before), len(WHOLE) + 1):
        # The owner was killed when `written` bytes were there; entries 3 and 4 still wait in the outbox.
        path.write_bytes(WHOLE[:written])
        assert writer_of(tmp_path).write(SHARD, acknowledged, ENTRIES[2:]) == str(len(WHOLE)).encode()
        assert content(tmp_path) == WHOLE


def test_a_crash_before_the_first_acknowledgement_is_completed_from_the_start(tmp_path: Path) -> None:
    path = writer_of(tmp_path).path(SHARD)
    path.parent.mkdir(parents=True)
    for written in (0, 1, 40, len(WHOLE)):
        path.write_bytes(WHOLE[:written])
        writer_of(tmp_path).write(SHARD, b"", ENTRIES)
        assert content(tmp_path) == WHOLE


def test_a_late_owner_writes_what_is_there_already(tmp_path: Path) -> None:
    late, owner = writer_of(tmp_path), writer_of(tmp_path)
    first = late.write(SHARD, b"", ENTRIES[:1])
    position = owner.write(SHARD, first, ENTRIES[1:])
    assert late.write(SHARD, first, ENTRIES[1:3]) < position
    assert late.write(SHARD, b"", ENTRIES[:1]) == first
    assert content(tmp_path) == WHOLE


def test_entries_taken_together_or_one_by_one_give_the_same_bytes(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    position = b""
    for entry in ENTRIES:
        position = writer.write(SHARD, position, [entry])
    one_by_one = content(tmp_path)
    assert writer_of(tmp_path).write(SHARD, b"", ENTRIES) == position
    assert content(tmp_path) == one_by_one == WHOLE


def test_nothing_behind_the_end_is_cut(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.write(SHARD, b"", ENTRIES)
    writer_of(tmp_path).write(SHARD, b"", ENTRIES[:1])
    assert content(tmp_path) == WHOLE


def test_a_file_that_is_missing_is_refused_by_owner_and_successor(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    position = writer.write(SHARD, b"", ENTRIES[:1])
    writer.path(SHARD).unlink()
    for later in (writer, writer, writer_of(tmp_path)):
        with pytest.raises(PermanentError, match=rf"17\.jsonl is missing, but {int(position)} bytes"):
            later.write(SHARD, position, ENTRIES[1:])
    assert not writer.path(SHARD).exists()


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    position = writer.write(SHARD, b"", ENTRIES[:1])
    os.truncate(writer.path(SHARD), 7)
    for later in (writer, writer_of(tmp_path)):
        with pytest.raises(PermanentError, match="has 7 bytes, but 56 were written"):
            later.write(SHARD, position, ENTRIES[1:])
    assert content(tmp_path) == WHOLE[:7]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.path(SHARD).parent.mkdir(parents=True)
    writer.path(SHARD).symlink_to("/dev/full")
    with pytest.raises(
        SinkDiskFull, match=r"no space is left for .*17\.jsonl: free some; until then it waits"
    ):
        writer.write(SHARD, b"", ENTRIES)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where a folder should be")
    message = r"totals-count-17\.jsonl cannot be written: folder .*out/deep cannot be made \("
    with pytest.raises(PermanentError, match=message):
        writer_of(tmp_path).write(SHARD, b"", ENTRIES)


def test_a_folder_that_the_system_makes_for_nobody_is_not_told_as_a_file_that_went_missing() -> None:
    message = r"folder /proc/out cannot be made \(.*\); mend that, or give sink totals another path"
    with pytest.raises(PermanentError, match=message):
        writer_of(Path("/proc")).write(SHARD, b"", ENTRIES)


def test_few_files_stay_open_however_many_shards_there_are(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = writer_of(tmp_path)
    positions = {f"count/{number}": b"" for number in range(OPEN_MAX + 50)}
    for entry in ENTRIES:
        for shard, position in positions.items():
            positions[shard] = writer.write(shard, position, [entry])
        assert len(os.listdir("/proc/self/fd")) <= before + OPEN_MAX
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(writer.path(shard).read_bytes() == WHOLE for shard in positions)
