"""A shard that moves between two stores: all of it comes, and goes on there; each call also twice or late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from penstock.store.port import (
    Answer,
    Create,
    Moved,
    Publish,
    ShardStatus,
    StateSnapshot,
    TimerWrite,
)
from penstock.store.port.moves import (
    Chunk,
    Depart,
    Export,
    Freeze,
    Move,
    Precopy,
    Thaw,
)
from scenes.move_scene import MoveScene
from scenes.moved_shards import NOWHERE, X, fill, finish
from scenes.store_scenario import Scene, out, payloads


@pytest.mark.parametrize("chunks_max", [1, 16])
def test_a_shard_comes_to_another_store_with_all_that_it_has(moving: MoveScene, chunks_max: int) -> None:
    fill(moving)
    before, counters = moving.a.store.call(StateSnapshot(X)), moving.a.measure(X)
    outbox = [moving.a.outbox(X, target) for target in ("far/0", "files")]
    assert moving.move(X, chunks_max=chunks_max) > 0
    assert moving.status(X) == ["moved", "active"]
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert [moving.b.outbox(X, target) for target in ("far/0", "files")] == outbox
    now = moving.b.measure(X)
    assert now == structs.replace(counters, epoch=counters.epoch + 2, executor="mid@w2")
    claimed = moving.b.claims[X]
    assert (claimed.commit, claimed.offset, claimed.table_version) == (1, 1, 0)
    cursor = claimed.external["files"]
    assert (cursor.issued, cursor.acknowledged, cursor.position) == (2, 1, b"at 6")
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"f" * 20, b"f" * 30]


def test_nothing_of_a_shard_is_left_behind_but_its_tombstone(moving: MoveScene) -> None:
    fill(moving)
    moving.move(X)
    assert moving.a.store.call(StateSnapshot(X)) == {}
    assert moving.a.outgoing() == []
    assert [moving.a.outbox(X, target) for target in ("far/0", "files")] == [[], []]
    left = moving.a.measure(X)
    assert (left.inbox_entries, left.outbox_entries, left.arrived_rows, left.executor) == (0, 0, 0, "")
    assert left.status is ShardStatus.MOVED
    assert moving.a.try_claim(X, version=moving.version) == Moved("s2")
    assert moving.a.append(X, 1) == Moved("s2")
    assert moving.a.store.call(Create(X)) is Answer.EXISTS


def test_a_shard_goes_there_and_back_again_and_again(moving: MoveScene) -> None:
    fill(moving)
    counters = moving.a.measure(X)
    before = moving.a.store.call(StateSnapshot(X))
    for _ in range(2):
        moving.move(X, "s2")
        moving.move(X, "s1")
    assert moving.status(X) == ["active", "moved"]
    assert moving.a.store.call(StateSnapshot(X)) == before
    assert moving.a.measure(X) == structs.replace(counters, epoch=counters.epoch + 8)
    assert payloads(moving.a.fetch_one(X)) == [b"f" * 20, b"f" * 30]


def test_a_source_shard_moves_with_its_position(moving: MoveScene) -> None:
    moving.a.commit("src/0", out(X), position=b"line 7", again=True)
    moving.move("src/0")
    assert moving.b.claims["src/0"].position == b"line 7"
    assert moving.b.fetch_names("src@w2") == ["src/0"]
    moving.b.commit("src/0", position=b"end", finished=True)
    moving.move("src/0", "s1")
    assert moving.a.claims["src/0"].finished
    assert moving.a.claims["src/0"].position == b"end"


def test_timers_that_moved_come_back_where_they_are_deleted(moving: MoveScene) -> None:
    moving.a.commit(X, timers=[TimerWrite(b"t", 5), TimerWrite(b"u", 6)])
    moving.move(X)
    moving.b.commit(X, timers=[TimerWrite(b"t", None)])
    moving.move(X, "s1")
    assert moving.status(X) == ["active", "moved"]


def test_timers_fire_where_their_shard_is_and_nowhere_else(moving: MoveScene) -> None:
    def due(scene: Scene, ready: str) -> dict[str, list[bytes]]:
        fetched = scene.fetch(ready, now_ms=9, timers_max=100)
        return {one.shard: [timer.name for timer in one.timers] for one in fetched.shards}

    here, there = f"{X.split('/')[0]}@w1", f"{X.split('/')[0]}@w2"
    moving.a.commit(X, timers=[TimerWrite(b"t", 5), TimerWrite(b"u", 6)])
    assert due(moving.a, here) == {X: [b"t", b"u"]}
    moving.freeze(X)
    assert due(moving.a, here) == {}
    moving.move(X)
    assert due(moving.a, here) == {}
    assert due(moving.b, there) == {X: [b"t", b"u"]}
    moving.b.commit(X, timers=[TimerWrite(b"t", None)])
    moving.move(X, "s1")
    assert due(moving.b, there) == {}
    assert due(moving.a, here) == {X: [b"u"]}


def test_the_epoch_goes_on_at_the_target(moving: MoveScene) -> None:
    for _ in range(3):
        moving.a.claim(X)
    move = moving.freeze(X)
    assert move.epoch == 5
    moving.copy(X, move)
    moving.move(X)
    assert moving.b.claims[X].epoch == 6


def test_a_frozen_shard_takes_no_claim_no_commit_and_no_entry(moving: MoveScene) -> None:
    moving.a.fill(X, 5)
    late = moving.a.next_commit(X)
    moving.freeze(X)
    assert moving.a.store.call(late) is Answer.FENCED
    assert moving.a.try_claim(X, version=moving.version) is Answer.MOVING
    assert moving.a.append(X, 2, producer="filler/0") is Answer.MOVING
    assert moving.a.fetch_names("mid@w1") == []
    assert moving.a.measure(X).status is ShardStatus.FROZEN


def test_freezing_again_gives_the_same_chunk(moving: MoveScene) -> None:
    fill(moving)
    move = moving.precopy(X)
    assert move == Move("s1", "s2", epoch=2, generation=1)
    assert moving.try_freeze(X, move) == moving.try_freeze(X, move) == next(moving.chunks(X, move))
    assert moving.try_precopy(X) is Answer.MOVING


def test_a_start_of_the_source_makes_a_move_void(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    first = next(moving.chunks(X, move))
    assert moving.install(X, move, first, 1) != NOWHERE
    moving.a.open("s1")
    assert moving.a.store.call(Export(X, move, first.resume)) is Answer.STALE
    assert moving.a.store.call(Depart(X, move)) is Answer.STALE
    assert moving.try_freeze(X, move, first.resume) is Answer.STALE
    assert moving.a.store.call(Thaw(X, move)) is Answer.OK
    anew = moving.precopy(X)
    assert anew == replace(move, epoch=3, generation=2)
    assert moving.install(X, anew, first, 2) == NOWHERE
    moving.try_freeze(X, anew)
    moving.copy(X, anew)
    assert moving.install(X, move, first, 1) is Answer.STALE
    assert moving.a.store.call(Depart(X, anew)) is Answer.OK
    finish(moving, anew)
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"f" * 20, b"f" * 30]


def test_a_late_move_of_an_old_schedule_is_refused(moving: MoveScene) -> None:
    move = moving.precopy(X)
    old = moving.version
    moving.send_home(X, "s1")
    for call in (Precopy(X, "s2", old), Precopy(X, "s2", moving.version), Precopy(X, "s1", moving.version)):
        assert moving.a.store.call(call) is Answer.STALE
    assert moving.a.store.call(Freeze(X, move, old, b"")) is Answer.STALE
    assert moving.a.store.call(Freeze(X, move, moving.version, b"")) is Answer.STALE
    assert moving.status(X) == ["copying", ""]


def test_a_move_needs_a_schedule_and_a_record(moving: MoveScene) -> None:
    moving.send_home(X, "s2")
    assert moving.b.store.call(Precopy(X, "s1", 99)) is Answer.UNKNOWN
    assert moving.a.store.call(Precopy("none/0", "s2", 99)) is Answer.UNKNOWN
    moving.a.create("other/0")
    assert moving.a.store.call(Precopy("other/0", "s2", 99)) is Answer.STALE


def test_another_target_makes_the_first_move_void(moving: MoveScene) -> None:
    first = moving.precopy(X)
    moving.copy_round(X, first)
    moving.homes[X] = "s3"
    moving.version += 1
    moving.a.store.call(
        Publish("mid", moving.version, 1, (("w3", "n", "h", "u"),), (("mid@w3", "w3", 1),),
                ((X, "mid@w3", "s3"),))
    )  # fmt: skip
    second = moving.precopy(X, "s3")
    assert second == Move("s1", "s3", first.epoch + 1, 1)
    assert moving.try_freeze(X, first) is Answer.STALE
    assert moving.a.store.call(Thaw(X, first)) is Answer.STALE
    assert isinstance(moving.try_freeze(X, second), Chunk)
    assert moving.a.store.call(Depart(X, first)) is Answer.STALE
