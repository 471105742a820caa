"""The files that a source's pattern finds: complete, sorted, and no two of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.files import discover, file_of
from penstock.dataflow.partitions import part_of, shard_name
from penstock.errors import PermanentError


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")


def test_files_are_found_recursively_sorted_and_named_relative(tmp_path: Path) -> None:
    put(tmp_path, "texts/b.txt", "texts/a/c.txt", "texts/a.txt", "texts/d.md", "other/e.txt")
    (tmp_path / "texts/folder.txt").mkdir()
    parts = discover("texts/**/*.txt", tmp_path)
    assert parts == ["texts/a.txt", "texts/a/c.txt", "texts/b.txt"]
    assert [file_of(part, tmp_path) for part in parts] == [tmp_path / part for part in parts]


def test_a_pattern_may_leave_the_folder_or_be_absolute(tmp_path: Path) -> None:
    put(tmp_path, "texts/a.txt", "there/b.txt")
    assert discover("../texts/*.txt", tmp_path / "there") == ["../texts/a.txt"]
    assert discover("././b.txt", tmp_path / "there") == ["b.txt"]
    absolute = discover(f"{tmp_path}/texts/*.txt", tmp_path / "there")
    assert absolute == [f"{tmp_path}/texts/a.txt"]
    assert file_of(absolute[0], tmp_path / "there") == tmp_path / "texts/a.txt"
    assert part_of(shard_name("lines", absolute[0])) == absolute[0]


def test_a_pattern_without_a_file_is_refused_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"no file matches 'texts/\*'"):
        discover("texts/*", tmp_path)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    Path(bytes(tmp_path).decode() + "/bad-\udcff.txt").write_text("x")
    with pytest.raises(PermanentError, match="not UTF-8"):
        discover("*.txt", tmp_path)
