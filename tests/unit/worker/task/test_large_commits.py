"""Commits in parts: whatever happens between two of their calls, state and outputs count once and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from penstock.errors import PermanentError
from penstock.store.ownership import OwnedShard
from penstock.store.port import ClearFailure, Commit, Failures, StateWrite
from penstock_worker.sinks.jsonl import JsonlSinkWriter
from penstock_worker.stages import within
from penstock_worker.stages.within import Decided, Rows, Written
from penstock_worker.state.encoding import LARGE_COMMIT, chunk_field
from penstock_worker.task.large_commit import Chunk, LargeCommits, Placed
from scenes.large_scene import Counted, LargeScene, NotYet

WORDS = "ash sea ash\nash\n"
ROWS = {"ash": 3, "sea": 1}
LARGE_LINES = "many ash\n" + "w" * 2_000 + "\n"
"""More rows than a commit takes, some of them larger than an entry."""


class Scenes:
    """Makes one scene after the other, each in a folder of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch, self._made = folder, patch, 0

    def new(self, lines: str = WORDS) -> LargeScene:
        self._made += 1
        folder = self._folder / f"scene{self._made}"
        folder.mkdir()
        return LargeScene(folder, self._patch, lines)

    def fed(self, lines: str = WORDS) -> LargeScene:
        scene = self.new(lines)
        scene.run(scene.task("lines", ["lines/a.txt"]), rounds=30)
        return scene


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    return Scenes(tmp_path, monkeypatch)


def test_rows_that_take_many_commits_are_worked_on_once_and_leave_nothing_behind(scenes: Scenes) -> None:
    scene = scenes.fed()
    scene.run(scene.task("count", scene.count_shards))
    scene.check(ROWS)
    assert scene.left() == []


def killed_at_each_call(scenes: Scenes, step: int = 1) -> Iterator[int]:
    """Kill the owner before each of its calls; the next one goes on."""
    at = 0
    while True:
        scene = scenes.fed()
        died = scene.dying("count", scene.count_shards, "first", at)
        scene.run(scene.task("count", scene.count_shards, "second"))
        scene.check(ROWS)
        assert scene.left() == []
        if not died:
            return
        yield at
        at += step


def test_an_owner_that_dies_between_two_calls_loses_and_doubles_nothing(scenes: Scenes) -> None:
    assert len(list(killed_at_each_call(scenes))) > 80


def test_what_comes_along_with_a_claim_is_not_worked_on_again_after_what_the_last_owner_left(
    scenes: Scenes,
) -> None:
    died, at = True, 0
    while died:
        scene = scenes.fed()
        died = scene.dying("count", scene.count_shards, "first", at)
        scene.run(scene.task("count", scene.count_shards, "second", store=NotYet(scene.store)))
        scene.check(ROWS)
        assert scene.left() == []
        at += 1
    assert at > 80


def test_a_partition_that_comes_along_with_its_claim_is_read_on_after_what_the_last_owner_left(
    scenes: Scenes,
) -> None:
    died, at = True, 0
    while died:
        scene = scenes.new(LARGE_LINES)
        died = scene.dying("lines", ["lines/a.txt"], "first", at)
        second = scene.task("lines", ["lines/a.txt"], "second", store=NotYet(scene.store))
        scene.run(second, scene.task("count", scene.count_shards, "counting"))
        scene.check({"ash": 1, "many": 1}, 2 * 19 + 1)
        assert scene.left() == []
        at += 1
    assert at > 30


def test_what_an_owner_wrote_down_and_did_not_decide_goes_with_the_next_claim(scenes: Scenes) -> None:
    seen = 0
    for at in range(13):
        scene = scenes.fed()
        assert scene.dying("count", scene.count_shards, "first", at)
        written = set(scene.left())
        notes = [within.decode(record.within) for record in scene.node.topology("t").shards.values()]
        undecided = [note for note in notes if isinstance(note, Written)]
        assert bool(written) == any(note is not None for note in notes)
        seen += bool(undecided)
        scene.task("count", scene.count_shards, "second").refresh()
        assert scene.left() == []
    assert seen > 1


def test_owners_that_die_one_after_the_other_lose_and_double_nothing(scenes: Scenes) -> None:
    for every in (12, 17, 29, 40):
        scene = scenes.fed()
        died = 0
        while scene.dying("count", scene.count_shards, f"r{died}", every) and died < 25:
            died += 1
        scene.run(scene.task("count", scene.count_shards, "last"))
        scene.check(ROWS)
        assert scene.left() == []


def test_an_owner_that_lost_its_shard_in_the_middle_changes_nothing_more(scenes: Scenes) -> None:
    for at in range(0, 120, 3):
        scene = scenes.fed()

        def before(number: int, scene: LargeScene = scene, at: int = at) -> None:
            if number == at:
                for shard in scene.count_shards:
                    scene.steal(shard)

        late = scene.task("count", scene.count_shards, "late", store=Counted(scene.store, before))
        for _ in range(3):
            late.turn()
        scene.run(late, scene.task("count", scene.count_shards, "new"))
        scene.check(ROWS)
        assert scene.left() == []


def test_a_source_that_dies_between_two_calls_reads_each_line_once(scenes: Scenes) -> None:
    at = 0
    while True:
        scene = scenes.new(LARGE_LINES)
        died = scene.dying("lines", ["lines/a.txt"], "first", at)
        tasks = [
            scene.task("lines", ["lines/a.txt"], "second"),
            scene.task("count", scene.count_shards, "counting"),
        ]
        scene.run(*tasks)
        scene.check({"ash": 1, "many": 1}, 2 * 19 + 1)
        assert scene.left() == []
        if not died:
            break
        at += 1
    assert at > 30


@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_a_shard_may_move_between_any_two_calls(scenes: Scenes, chunks: int) -> None:
    """From a certain call of its owner on the move goes on by so many chunks before each."""
    at, was_reached = 2, True
    while was_reached:
        scene = scenes.fed()
        over = was_reached = False

        def before(number: int, scene: LargeScene = scene, at: int = at) -> None:
            nonlocal over, was_reached
            if number == at:
                was_reached = True
                scene.leave("count/0")
            if number >= at and not over:
                over = scene.move_on("count/0", chunks)

        here = scene.task("count", scene.count_shards, "here", store=Counted(scene.store, before))
        scene.run(here, rounds=8)
        if was_reached:
            for _ in range(1_000):
                if over:
                    break
                here.turn()
            assert over
            scene.run(here, scene.task_at_n2("count", ["count/0"], "there"))
        scene.check(ROWS)
        assert scene.left() == []
        at += 1 if chunks == 1000 else 7
    assert at > 50


def test_a_sink_that_fails_in_the_middle_is_gone_on_with_by_the_next_owner(
    scenes: Scenes,
) -> None:
    write = JsonlSinkWriter.write
    for fails_at in range(0, 40, 3):
        scene = scenes.fed()
        writes = 0

        def failing(
            self: JsonlSinkWriter,
            shard: str,
            position: bytes,
            entries: Sequence[tuple[int, bytes]],
            fails_at: int = fails_at,
        ) -> bytes:
            nonlocal writes
            writes += 1
            if writes == fails_at + 1:
                raise PermanentError("no space is left")
            return write(self, shard, position, entries)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JsonlSinkWriter, "write", failing)
            scene.run(scene.task("count", scene.count_shards, "first"), rounds=40)
        if writes > fails_at:
            assert list(scene.store.call(Failures())) == ["count"]
            scene.store.call(ClearFailure("count"))
        scene.run(scene.task("count", scene.count_shards, "second"))
        scene.check(ROWS)
        assert scene.left() == []


# --- bugs that these would catch


def decides_first(self: LargeCommits, owned: OwnedShard, commit: Commit, chunks: Sequence[Chunk]) -> Decided:
    """The decision comes with the first chunk, not the last."""
    decided = decide(self, owned, replace(commit), chunks[:1])
    decided = msgspec.structs.replace(decided, chunks=len(chunks))
    write = [
        StateWrite(LARGE_COMMIT, chunk_field(number), msgspec.msgpack.encode(chunk))
        for number, chunk in enumerate(chunks)
    ]
    for one in write:
        self._send(owned, [owned.commit(0, state=(one,), within=within.encode(decided))])
    return decided


decide = LargeCommits._decide
applying = LargeCommits._applying


def finishes_nothing(self: LargeCommits, owned: OwnedShard) -> Iterator[Placed]:
    """What an earlier owner decided is left as it lies."""
    return iter(())


def decides_nothing(self: LargeCommits, owned: OwnedShard) -> Iterator[Placed]:
    """What an earlier owner decided is dropped, like what it did not decide."""
    note = within.decode(owned.within)
    if note is not None and not isinstance(note, Rows):
        drop = StateWrite(LARGE_COMMIT, None, None)
        yield self._send(owned, [owned.commit(0, within=b"", state=(drop,))])


def notes_nothing(
    self: LargeCommits, owned: OwnedShard, decided: Decided, number: int, chunk: Chunk, now_us: int
) -> Commit:
    """What is carried out is not noted with it."""
    made = applying(self, owned, decided, number, chunk, now_us)
    return made if number + 1 == decided.chunks else replace(made, within=None)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("_decide", decides_first),
        ("finish", finishes_nothing),
        ("finish", decides_nothing),
        ("_applying", notes_nothing),
    ],
)
def test_a_planted_bug_is_caught(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(LargeCommits, name, bug)
    with pytest.raises((AssertionError, RuntimeError, IndexError, TypeError)):
        list(killed_at_each_call(scenes, step=3))


def test_a_row_that_is_worked_on_twice_is_caught(scenes: Scenes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_worker.stages.within.rows_done", lambda note, entry: 0)
    with pytest.raises(AssertionError):
        list(killed_at_each_call(scenes, step=3))
