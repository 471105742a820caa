"""Which files are not the ones any more that were read to their end."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from penstock.dataflow.file_position import FilePosition
from penstock.store.port import ShardCounters
from penstock_operator.local.kept.grown_files import GrownFiles
from scenes.run_scene import shards_of_word_count, word_count_plan

END = ShardCounters(1, 1, 1, 0, 0, 0, 0, 0, 0, "", finished=True)


def read_to_its_end(file: Path) -> ShardCounters:
    stat = file.stat()
    return replace(END, position=FilePosition(stat.st_size, 1, stat.st_size, stat.st_mtime_ns, 0).packed())


def test_a_finished_file_that_grew_or_was_touched_is_told_and_no_other(tmp_path: Path) -> None:
    shards = shards_of_word_count()
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("one\n")
    known = [read_to_its_end(file) for file in files]
    grown = GrownFiles(word_count_plan(), tmp_path)

    def among(*counters: ShardCounters | None) -> list[str]:
        return grown.among(shards, {"lines": counters})

    assert among(*known) == []
    with files[0].open("a") as file:
        file.write("two\n")
    os.utime(files[1], ns=(0, 0))
    assert among(*known) == ["lines/a.txt", "lines/b.txt"]
    assert among(replace(known[0], finished=False), None) == []
    files[0].unlink()
    assert among(*known) == ["lines/b.txt"]
