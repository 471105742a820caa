"""Who runs has the sinks' folders: claimed before anything starts, and taken from nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.dataflow.sink_folder import OWNER_FILE, FolderOwner, FolderTaken, claim_folder, owner_of
from penstock.errors import PermanentError
from penstock_operator.local.kept.sink_folders import SinkFolders
from scenes.run_scene import word_count_plan


def folders(base: Path, state: str, known_uid: str = "") -> SinkFolders:
    return SinkFolders(word_count_plan(), base, base / state, known_uid)


def out(base: Path) -> Path:
    (folder,) = folders(base, "any")._sinks
    return folder


def test_of_two_runs_of_one_manifest_with_other_states_the_second_is_refused(tmp_path: Path) -> None:
    held = folders(tmp_path, "one").claim("uid-1", durable=False, anew=True)
    second = folders(tmp_path, "two")
    with pytest.raises(FolderTaken, match=rf"state uid-1, with the state in {tmp_path}/one"):
        second.refuse_others()
    with pytest.raises(FolderTaken, match="move the folder away or remove it, or give sink"):
        second.claim("uid-2", durable=False, anew=True)
    for descriptor in held:
        os.close(descriptor)
    with pytest.raises(FolderTaken):
        second.refuse_others()


def test_a_run_goes_on_in_its_folder_also_when_its_state_was_carried_elsewhere(tmp_path: Path) -> None:
    for descriptor in folders(tmp_path, "one").claim("uid-1", durable=True, anew=True):
        os.close(descriptor)
    carried = folders(tmp_path, "elsewhere", "uid-1")
    carried.refuse_others()
    for descriptor in carried.claim("uid-1", durable=True, anew=False):
        os.close(descriptor)


def test_fresh_takes_its_own_folder_also_when_its_state_was_removed_by_hand(tmp_path: Path) -> None:
    for descriptor in folders(tmp_path, "one").claim("uid-1", durable=False, anew=True):
        os.close(descriptor)
    again = folders(tmp_path, "one")
    again.refuse_others()
    file = out(tmp_path) / "counts.jsonl"
    assert again.removable([file]) == {file}
    for descriptor in again.claim("uid-2", durable=False, anew=True):
        os.close(descriptor)
    owner = owner_of(out(tmp_path))
    assert owner is not None
    assert owner.uid == "uid-2"


def test_fresh_removes_nothing_of_a_run_that_is_under_way_nor_of_another_state(tmp_path: Path) -> None:
    held = folders(tmp_path, "one").claim("uid-1", durable=False, anew=True)
    file = out(tmp_path) / "counts.jsonl"
    again = folders(tmp_path, "one")
    for attempt in (lambda: again.removable([file]), lambda: again.claim("u", durable=False, anew=True)):
        with pytest.raises(FolderTaken, match="a run that is under way writes into folder"):
            attempt()
    assert folders(tmp_path, "two").removable([file]) == set()
    for descriptor in held:
        os.close(descriptor)


def test_files_from_before_there_were_owners_are_removed_by_fresh_and_kept_by_a_resumed_run(
    tmp_path: Path,
) -> None:
    out(tmp_path).mkdir(parents=True)
    file = out(tmp_path) / "counts.jsonl"
    assert folders(tmp_path, "one", "uid-1").removable([file]) == {file}
    for descriptor in folders(tmp_path, "one", "uid-1").claim("uid-1", durable=False, anew=False):
        os.close(descriptor)
    assert owner_of(out(tmp_path)) is not None


def test_an_owner_file_that_says_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / OWNER_FILE).write_bytes(b"")
    with pytest.raises(FolderTaken, match="cannot be read: remove it if no topology writes"):
        owner_of(tmp_path, sleep=lambda _: None)


def test_a_file_system_without_links_has_owners_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refused)
    claim_folder(tmp_path, FolderOwner("uid-1", "counting", "totals"))
    claim_folder(tmp_path, FolderOwner("uid-1", "counting", "totals"))
    with pytest.raises(FolderTaken):
        claim_folder(tmp_path, FolderOwner("uid-2", "counting", "totals"))
    assert os.listdir(tmp_path) == [OWNER_FILE]


def test_a_folder_that_cannot_be_made_is_told_with_the_sink(tmp_path: Path) -> None:
    out(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    out(tmp_path).write_text("a file")
    with pytest.raises(PermanentError, match=r"cannot be written into .* give sink .* another path"):
        folders(tmp_path, "one").claim("uid-1", durable=False, anew=True)
