"""The JSONL sink: whoever writes an entry, and however often, the file is the same."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from penstock.connectors.files import JsonlSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.sink_folder import OWNER_FILE, FolderTaken, release_folder
from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock.store.lives import LIFE
from penstock_worker.sinks.jsonl import OPEN_MAX, JsonlSinkWriter, SinkDiskFull
from penstock_worker.sinks.writer import SinkPlace

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


def writer_of(folder: Path, *, durable: bool = False, uid: str = "state-1") -> JsonlSinkWriter:
    schema = parse_schema("word string, total bigint")
    sink = JsonlSink("totals", "out/deep")
    return JsonlSinkWriter(sink, schema, SinkPlace(folder, uid, "counting", durable))


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
        OWNER_FILE,
        "totals-count-17.jsonl",
        "totals-lines-docs%2Fa.txt.jsonl",
    ]


def test_a_shard_that_lives_once_more_writes_into_a_file_of_its_own(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.write(SHARD, b"", ENTRIES)
    anew = [(LIFE + number, payload) for number, payload in ENTRIES]
    position = writer.write(SHARD, b"", anew[:1])
    writer.sync(SHARD)
    other = writer_of(tmp_path)
    assert other.write(SHARD, b"", anew[:1]) == position, "its first owner was killed"
    position = other.write(SHARD, position, anew[1:])
    writer_of(tmp_path).check(SHARD, position)
    assert content(tmp_path) == WHOLE
    assert (tmp_path / "out/deep/totals-count-17~1.jsonl").read_bytes() == WHOLE


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


def test_a_second_state_may_not_write_into_the_folder_of_the_first(tmp_path: Path) -> None:
    first = writer_of(tmp_path)
    position = first.write(SHARD, b"", ENTRIES[:2])
    second = writer_of(tmp_path, uid="state-2")
    for shard in (SHARD, "count/18"):
        with pytest.raises(
            FolderTaken, match=r"holds the output of topology counting \(state state-1\).*move"
        ):
            second.write(shard, b"", ENTRIES[:1])
    assert not second.path("count/18").exists()
    assert writer_of(tmp_path).write(SHARD, position, ENTRIES[2:]) == str(len(WHOLE)).encode()
    assert content(tmp_path) == WHOLE


def test_of_many_states_that_begin_together_one_has_the_folder(tmp_path: Path) -> None:
    together = Barrier(8)

    def write(number: int) -> bool:
        writer = writer_of(tmp_path, uid=f"state-{number % 4}")
        together.wait()
        try:
            writer.write(f"count/{number}", b"", ENTRIES)
        except FolderTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        wrote = list(threads.map(write, range(8)))
    winners = {number % 4 for number in range(8) if wrote[number]}
    assert len(winners) == 1
    assert sum(wrote) == 2
    assert len(os.listdir(tmp_path / "out/deep")) == 3


def test_files_from_before_there_were_owners_are_taken_over_by_whose_they_are(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    position = writer.write(SHARD, b"", ENTRIES[:2])
    release_folder(writer.path(SHARD).parent)
    assert writer_of(tmp_path).write(SHARD, position, ENTRIES[2:3]) == b"224"
    release_folder(writer.path(SHARD).parent)
    # Nothing was acknowledged yet, and the bytes are those that wait.
    writer_of(tmp_path).write(SHARD, b"", ENTRIES)
    assert content(tmp_path) == WHOLE


def test_files_of_nobody_are_not_written_over(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.path(SHARD).parent.mkdir(parents=True)
    writer.path(SHARD).write_bytes(b'{"of":"another"}\n')
    with pytest.raises(PermanentError, match="that this topology did not write"):
        writer.write(SHARD, b"", ENTRIES)
    assert content(tmp_path) == b'{"of":"another"}\n'
    assert not (writer.path(SHARD).parent / OWNER_FILE).exists()


def test_lines_that_a_user_appended_are_not_written_over_and_told_before_that(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    position = writer.write(SHARD, b"", ENTRIES[:2])
    writer.check(SHARD, position)
    with writer.path(SHARD).open("ab") as file:
        file.write(b"my own line\n")
    message = rf"behind its first {int(position)} bytes .*truncate -s {int(position)}"
    with pytest.raises(PermanentError, match=message):
        writer.check(SHARD, position)
    for later in (writer, writer_of(tmp_path)):
        with pytest.raises(PermanentError, match=message):
            later.write(SHARD, position, ENTRIES[2:])
    assert content(tmp_path).endswith(b"my own line\n")
    os.truncate(writer.path(SHARD), int(position))
    writer_of(tmp_path).write(SHARD, position, ENTRIES[2:])
    assert content(tmp_path) == WHOLE


def test_a_file_that_was_moved_away_is_noticed_also_when_another_lies_in_its_place(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, durable=True)
    position = writer.write(SHARD, b"", ENTRIES[:2])
    path = writer.path(SHARD)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(PermanentError, match="is missing, but"):
        writer.check(SHARD, position)
    path.write_bytes((tmp_path / "elsewhere").read_bytes())
    for look in (lambda: writer.check(SHARD, position), lambda: writer.sync(SHARD)):
        with pytest.raises(PermanentError, match="is another one than was written to"):
            look()
    (tmp_path / "elsewhere").replace(path)
    writer.check(SHARD, position)


def test_what_never_came_to_disk_before_a_loss_of_power_is_written_again(tmp_path: Path) -> None:
    path = writer_of(tmp_path).path(SHARD)
    writer_of(tmp_path).write(SHARD, b"", ENTRIES)
    path.write_bytes(WHOLE[:30] + bytes(20) + WHOLE[50:80])
    writer_of(tmp_path).write(SHARD, b"", ENTRIES)
    assert content(tmp_path) == WHOLE


def test_in_mode_disk_a_file_that_an_owner_left_unsynced_is_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def fail(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock_worker.sinks.jsonl.sync_folder", fail)
    with pytest.raises(KeyboardInterrupt):
        writer_of(tmp_path, durable=True).write(SHARD, b"", ENTRIES)
    assert (tmp_path / "out/deep/totals-count-17.jsonl").exists()
    monkeypatch.setattr("penstock_worker.sinks.jsonl.sync_folder", synced.append)
    writer_of(tmp_path, durable=True).write(SHARD, b"", ENTRIES)
    assert {tmp_path, tmp_path / "out", tmp_path / "out/deep"} == set(synced)
