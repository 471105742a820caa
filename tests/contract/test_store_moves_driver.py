"""Who drives a move: the next step from what both stores say, going back, and tidying up."""

from __future__ import annotations

import pytest

from backends.store_backends import Backend, LossyStore
from penstock.store.moving.mover import MoveKind, move_once, moves_due, tidy_once
from penstock.store.moving.progress import MoveObstacle, MoveStep
from penstock.store.port import (
    Answer,
    Claimed,
    Measure,
    Moved,
    ShardStatus,
    StateSnapshot,
)
from penstock.store.port.moves import (
    Activate,
    Chunk,
    Depart,
    Discard,
    Install,
    ReadMove,
    Thaw,
)
from scenes.move_scene import MoveScene
from scenes.moved_shards import NOWHERE, X, clear, departed, fill, finish
from scenes.store_scenario import out


def test_a_thawed_shard_goes_on_where_it_was_for_who_claims_it_anew(moving: MoveScene) -> None:
    fill(moving)
    moving.a.commit("src/0", out(X, b"w" * 60), again=True)
    before = moving.a.measure(X)
    move = moving.freeze(X)
    moving.copy(X, move)
    moving.a.commit("src/1", out(X, b"z"), again=True)
    moving.send_home(X, "s1")
    assert moving.a.store.call(Thaw(X, move)) is Answer.OK
    assert moving.a.store.call(Thaw(X, move)) is Answer.DONE
    assert moving.a.outgoing() == [(X, "far/0")]
    late = moving.a.next_commit(X)
    assert moving.a.store.call(late) is Answer.FENCED
    moving.claim(X)
    assert moving.a.measure(X).epoch == before.epoch + 2
    entries = moving.a.fetch_one(X)
    moving.a.commit(X, entries=entries)
    moving.a.commit(X, entries=moving.a.fetch_one(X))
    assert moving.a.measure(X).completed_rows == 5
    assert moving.a.store.call(Depart(X, move)) is Answer.STALE


def test_there_is_no_way_back_from_a_departure(moving: MoveScene) -> None:
    move = departed(moving)
    assert moving.a.store.call(Thaw(X, move)) == Moved("s2")
    finish(moving, move)
    assert moving.a.store.call(Thaw(X, move)) == Moved("s2")
    assert moving.status(X) == ["moved", "active"]


def test_a_late_thaw_or_discard_of_an_older_move_does_no_harm(moving: MoveScene) -> None:
    fill(moving)
    old = moving.freeze(X)
    moving.copy(X, old)
    moving.a.store.call(Thaw(X, old))
    new = moving.freeze(X)
    assert moving.a.store.call(Thaw(X, old)) is Answer.STALE
    moving.copy(X, new)
    assert moving.b.store.call(Discard(X, old)) is Answer.STALE
    assert moving.a.store.call(Depart(X, new)) is Answer.OK
    finish(moving, new)
    assert moving.b.store.call(Discard(X, old)) is Answer.STALE
    assert moving.b.store.call(Discard(X, new)) is Answer.STALE
    assert moving.status(X) == ["moved", "active"]


def test_a_discarded_copy_leaves_a_tombstone_that_refuses_late_chunks(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    chunks = list(moving.chunks(X, move))
    assert moving.b.store.call(Discard(X, move)) is Answer.UNKNOWN
    moving.copy(X, move)
    moving.a.store.call(Thaw(X, move))
    assert moving.b.store.call(Discard(X, move)) is Answer.MORE
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    assert moving.b.store.call(Activate(X, move)) is Answer.STALE
    clear(moving.b.store, Discard(X, move))
    assert moving.b.store.call(Discard(X, move)) is Answer.OK
    assert moving.install(X, move, chunks[0], 1) is Answer.STALE
    assert moving.status(X) == ["active", "moved"]
    assert moving.b.store.call(StateSnapshot(X)) == {}
    assert moving.b.outgoing() == []
    assert moving.b.append(X, 1) == Moved("s1")
    moving.move(X)
    assert moving.status(X) == ["moved", "active"]


def test_a_move_taken_back_leaves_the_shard_where_it_was(moving: MoveScene) -> None:
    fill(moving)
    moving.send_home(X, "s2")
    assert moving.move_once(X, chunks_max=1).step is MoveStep.PRECOPY
    moving.send_home(X, "s1")
    for _ in range(20):
        progress = moving.go_back(X)
        assert progress.obstacle is None
        if progress.is_over:
            break
    assert progress.step is MoveStep.BACK
    assert moving.status(X)[0] == "active"
    assert moving.go_back(X).step is MoveStep.BACK
    moving.claim(X)


def test_a_departed_move_is_not_taken_back_but_ended(moving: MoveScene) -> None:
    departed(moving)
    moving.send_home(X, "s1")
    assert moving.go_back(X).step is MoveStep.ACTIVATE
    assert moving.move_once(X, target="s1").step is MoveStep.DONE
    assert moving.status(X) == ["moved", "active"]
    moving.move(X, "s1")
    assert moving.status(X) == ["active", "moved"]


def test_a_dead_moves_copy_is_tidied_and_a_living_ones_is_not(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    moving.copy(X, move)

    def tidy() -> MoveObstacle | MoveStep:
        progress = tidy_once(moving.b.store, moving.store_of, X)
        return progress.obstacle or progress.step

    assert tidy() is MoveObstacle.ALIVE
    moving.a.store.call(Thaw(X, move))
    assert tidy() is MoveStep.BACK
    assert moving.status(X) == ["active", "moved"]
    assert tidy() is MoveStep.BACK
    move = departed(moving)
    assert tidy() is MoveObstacle.ALIVE
    finish(moving, move)
    assert tidy() is MoveStep.BACK
    assert moving.status(X) == ["moved", "active"]


def test_what_stands_in_the_way_of_a_move_is_named(moving: MoveScene) -> None:
    assert moving.move_once(X).obstacle is MoveObstacle.STALE
    assert moving.move_once("none/0").obstacle is MoveObstacle.UNKNOWN
    moving.send_home(X, "s2")
    del moving.at["s2"]
    progress = moving.move_once(X)
    assert (progress.step, progress.target, progress.obstacle) == (
        MoveStep.PRECOPY, "s2", MoveObstacle.NO_SUCH_STORE,
    )  # fmt: skip
    assert moving.a.measure(X).status is ShardStatus.ACTIVE


def test_a_shard_is_not_frozen_for_a_target_that_does_not_answer(moving: MoveScene) -> None:
    moving.send_home(X, "s2")
    away = LossyStore(moving.b.store, 0, reply_lost=False)
    progress = move_once(moving.a.store, lambda _: away, X, target_id="s2", version=moving.version)
    assert progress.obstacle is MoveObstacle.TARGET_UNREACHABLE
    assert moving.a.measure(X).status is ShardStatus.ACTIVE
    moving.a.commit(X, out("end/0"))


@pytest.mark.parametrize("failing", ["s1", "s2"])
@pytest.mark.parametrize("reply_lost", [True, False])
def test_a_move_gets_to_its_end_whichever_call_is_lost(
    backend: Backend, failing: str, reply_lost: bool
) -> None:
    moving = MoveScene(backend)
    fill(moving)
    before = moving.a.store.call(StateSnapshot(X))
    for fails_at in range(60):
        source, target = ("s2", "s1") if moving.homes[X] == "s2" else ("s1", "s2")
        moving.send_home(X, target)
        calls = moving.move_with_a_loss(X, source, target, failing, fails_at, reply_lost=reply_lost)
        moving.claim(X)
        assert moving.at[target].store.call(StateSnapshot(X)) == before
        counters = moving.at[target].measure(X)
        assert (counters.inbox_entries, counters.outbox_entries, counters.commit) == (2, 3, 1)
        if calls <= fails_at:
            return
    raise AssertionError("a move takes more calls than were lost")


def test_who_has_to_do_what_follows_from_homes_and_statuses() -> None:
    homes = {"a": "s1", "b": "s2", "c": "s1", "d": "s2", "e": "s1", "f": "s2", "g": "s1"}
    statuses = {
        "a": ShardStatus.ACTIVE,
        "b": ShardStatus.ACTIVE,
        "c": ShardStatus.FROZEN,
        "d": ShardStatus.FROZEN,
        "e": ShardStatus.DEPARTED,
        "f": ShardStatus.INSTALLING,
        "g": ShardStatus.INSTALLING,
        "h": ShardStatus.ACTIVE,
        "i": ShardStatus.MOVED,
    }
    assert moves_due("s1", homes, statuses) == {
        "b": MoveKind.MOVE,
        "c": MoveKind.BACK,
        "d": MoveKind.MOVE,
        "e": MoveKind.MOVE,
        "f": MoveKind.TIDY,
    }


def test_a_move_reads_what_it_is_from_the_stores(moving: MoveScene) -> None:
    assert moving.b.store.call(ReadMove(X)) is None
    state = moving.state(X, "s1")
    assert state is not None
    assert (state.status, state.epoch, state.move, state.installed) == (ShardStatus.ACTIVE, 1, None, None)
    move = departed(moving)
    for store_id, status in (("s1", ShardStatus.DEPARTED), ("s2", ShardStatus.INSTALLING)):
        state = moving.state(X, store_id)
        assert state is not None
        assert (state.status, state.epoch, state.move) == (status, 2, move)
    finish(moving, move)
    state = moving.state(X, "s1")
    assert state is not None
    assert (state.status, state.move, state.installed) == (ShardStatus.MOVED, move, None)
    assert [seen.status if seen else None for seen in moving.b.store.call(Measure((X, "mid/1")))] == [
        ShardStatus.ACTIVE, None,
    ]  # fmt: skip
    assert isinstance(moving.b.try_claim(X, worker="w2", version=moving.version), Claimed)
    assert moving.install(X, move, Chunk(b"", b"", is_last=True), 1) is Answer.STALE
    assert moving.b.store.call(Install("none/0", move, 2, Chunk(b"", b"", is_last=True))) == NOWHERE
