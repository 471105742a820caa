"""The store that takes a shard: installing, activating, and the copy that is dropped where the shard left."""

from __future__ import annotations

from dataclasses import replace

from penstock.store.port import (
    Answer,
    Create,
    Fetch,
    Moved,
    Retract,
    SetTasks,
    ShardStatus,
    StateSnapshot,
    StateWrite,
)
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Installed,
    Precopy,
    Thaw,
)
from scenes.move_scene import MoveScene
from scenes.moved_shards import NOWHERE, X, clear, departed, fill, finish
from scenes.store_scenario import incarnation


def test_a_shard_that_is_being_installed_has_no_owner_and_takes_no_entry(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    moving.install(X, move, next(moving.chunks(X, move)), 1)
    assert moving.b.try_claim(X, worker="w2", version=moving.version) is Answer.MOVING
    assert moving.b.append(X, 1) is Answer.MOVING
    assert moving.b.measure(X).status is ShardStatus.INSTALLING
    assert moving.b.store.call(Precopy(X, "s1", 99)) is Answer.MOVING
    assert moving.b.store.call(Freeze(X, move, 99, b"")) is Answer.MOVING
    assert moving.b.store.call(Thaw(X, move)) is Answer.STALE
    assert moving.b.store.call(Create(X)) is Answer.EXISTS


def test_a_chunk_counts_once_and_only_in_its_turn(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    chunks = list(moving.chunks(X, move))
    assert len(chunks) > 3
    assert moving.install(X, move, chunks[1], 2) == NOWHERE
    assert moving.status(X)[1] == ""
    first = moving.install(X, move, chunks[0], 1)
    assert first == Installed(1, chunks[0].resume, complete=False, rounds=0)
    assert moving.install(X, move, chunks[0], 1) == first
    assert moving.install(X, move, chunks[2], 3) == first
    moving.copy(X, move)
    state = moving.state(X, "s2")
    assert state is not None
    assert state.installed is not None
    assert state.installed.complete
    assert moving.install(X, move, chunks[0], 1) == state.installed
    assert moving.install(X, move, chunks[0], len(chunks) + 1).complete  # type: ignore[union-attr]


def test_an_older_moves_copy_goes_before_a_newer_one_comes(moving: MoveScene) -> None:
    fill(moving)
    old = moving.freeze(X)
    moving.copy(X, old)
    assert moving.a.store.call(Thaw(X, old)) is Answer.OK
    moving.send_home(X, "s1")
    moving.claim(X)
    moving.a.commit(
        X, entries=moving.a.fetch_one(X), state=[StateWrite(b"c3", None, None), StateWrite(b"", b"v1", None)]
    )
    before = moving.a.store.call(StateSnapshot(X))
    chunk = next(moving.chunks(X, new := moving.freeze(X)))
    assert moving.install(X, new, chunk, 1) == NOWHERE
    moving.move(X)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert moving.b.measure(X).inbox_entries == 0
    assert moving.install(X, old, chunk, 1) is Answer.STALE


def test_a_copy_that_was_not_dropped_goes_when_the_shard_comes_back(moving: MoveScene) -> None:
    fill(moving)
    move = departed(moving)
    assert moving.b.store.call(Activate(X, move)) is Answer.OK
    moving.claim(X)
    moving.b.commit(X, entries=moving.b.fetch_one(X, "w2"), state=[StateWrite(b"c4", None, None)])
    before = moving.b.store.call(StateSnapshot(X))
    moving.move(X, "s1")
    assert moving.a.store.call(StateSnapshot(X)) == before
    assert moving.a.measure(X).inbox_entries == 0
    assert moving.a.measure(X).outbox_entries == 3
    assert moving.a.store.call(Drop(X, move)) is Answer.STALE


def test_late_chunks_of_a_move_that_is_over_are_refused(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    chunks = list(moving.chunks(X, move))
    moving.move(X)
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    back = moving.freeze(X, "s1", "s2")
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    moving.copy(X, back)
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    assert moving.b.store.call(Depart(X, back)) is Answer.OK
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    clear(moving.b.store, Drop(X, back))
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE


def test_nothing_is_installed_for_a_retracted_topology(moving: MoveScene) -> None:
    move = moving.freeze(X)
    chunk = next(moving.chunks(X, move))
    for scene in moving.at.values():
        while scene.store.call(Retract()):
            pass
    assert moving.install(X, move, chunk, 1) is Answer.UNKNOWN
    assert moving.a.store.call(Export(X, move, b"")) is Answer.UNKNOWN
    assert moving.status(X) == ["", ""]
    for call in (Depart, Activate, Drop, Thaw, Discard):
        assert moving.a.store.call(call(X, move)) is Answer.UNKNOWN


def test_a_shard_departs_once_and_only_under_its_move(moving: MoveScene) -> None:
    move = moving.freeze(X)
    assert moving.a.store.call(Depart(X, replace(move, epoch=1))) is Answer.STALE
    assert moving.a.store.call(Depart(X, replace(move, target="s3"))) is Answer.STALE
    assert moving.a.store.call(Depart("mid/1", move)) is Answer.STALE
    assert moving.a.store.call(Depart("none/0", move)) is Answer.UNKNOWN
    moving.copy(X, move)
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    assert moving.a.store.call(Depart(X, move)) is Answer.DONE
    assert moving.status(X) == ["departed", "installing"]
    assert moving.a.append(X, 1) == Moved("s2")
    assert moving.try_precopy(X) == Moved("s2")
    assert moving.try_freeze(X, move) == Moved("s2")
    finish(moving, move)
    assert moving.a.store.call(Depart(X, move)) is Answer.DONE


def test_only_a_complete_copy_of_the_move_is_activated_and_once(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    assert moving.b.store.call(Activate(X, move)) is Answer.UNKNOWN
    moving.install(X, move, next(moving.chunks(X, move)), 1)
    assert moving.b.store.call(Activate(X, move)) is Answer.CONFLICT
    moving.copy(X, move)
    assert moving.b.store.call(Activate(X, replace(move, generation=7))) is Answer.STALE
    assert moving.b.store.call(Activate(X, replace(move, epoch=7))) is Answer.STALE
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    finish(moving, move)
    assert moving.b.store.call(Activate(X, move)) is Answer.DONE


def test_the_task_that_is_to_run_it_is_woken_when_a_shard_is_there(moving: MoveScene) -> None:
    move = departed(moving)
    ready = "mid@w2.0"
    assert moving.b.store.call(SetTasks("w2", incarnation("w2"), "mid@w2", ((X, ready),))) is Answer.OK
    fetch = Fetch(ready, 1000, 8)
    assert [moving.b.store.call(fetch).control for _ in range(2)] == [True, False]
    assert moving.b.store.call(Activate(X, move)) is Answer.OK
    assert [moving.b.store.call(fetch).control for _ in range(2)] == [True, False]


def test_a_late_activation_finds_it_done_wherever_the_shard_went_since(moving: MoveScene) -> None:
    move = departed(moving)
    finish(moving, move)
    back = moving.freeze(X, "s1", "s2")
    assert moving.b.store.call(Activate(X, move)) is Answer.DONE
    moving.move(X, "s1")
    assert moving.b.store.call(Activate(X, move)) is Answer.DONE
    again = moving.freeze(X)
    moving.copy(X, again)
    assert moving.b.store.call(Activate(X, move)) is Answer.DONE
    assert moving.status(X) == ["frozen", "installing"]
    assert moving.a.store.call(Activate(X, back)) is Answer.DONE


def test_a_copy_is_dropped_in_parts_once_it_has_departed(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    assert moving.a.store.call(Drop(X, move)) is Answer.STALE
    moving.copy(X, move)
    moving.a.store.call(Depart(X, move))
    assert moving.a.store.call(Drop(X, replace(move, epoch=1))) is Answer.STALE
    moving.b.store.call(Activate(X, move))
    assert clear(moving.a.store, Drop(X, move)) > 1
    assert moving.a.store.call(Drop(X, move)) is Answer.OK
    assert moving.b.store.call(Drop(X, move)) is Answer.STALE
    assert moving.a.store.call(Drop("none/0", move)) is Answer.UNKNOWN
