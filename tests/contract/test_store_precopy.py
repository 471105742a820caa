"""A shard is copied in rounds while its owner works: what is noted, what the rest holds, who may do what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from backends.store_backends import Backend, StoreMeanwhile
from penstock.store.moving.copy import ROUNDS_MAX
from penstock.store.moving.mover import MoveKind, go_back_once, let_go_once, move_once, moves_due, tidy_once
from penstock.store.moving.progress import MoveObstacle, MoveStep
from penstock.store.port import (
    Answer,
    Claimed,
    ExternalCursor,
    Moved,
    ShardStatus,
    StateSnapshot,
    StateWrite,
    StoreUnreachable,
    TimerWrite,
)
from penstock.store.port.moves import Chunk, Discard, Export, Install, NextRound, Thaw
from scenes.move_scene import CHUNKED, MoveScene
from scenes.store_scenario import SMALL, out, payloads

X = "mid/0"


def put(moving: MoveScene, count: int, value: bytes = b"v") -> None:
    """Fields k0, k1, ... of the value hash, and of collection c."""
    for first in range(0, count, 10):
        names = [b"k%d" % n for n in range(first, min(first + 10, count))]
        moving.a.commit(X, state=[StateWrite(c, name, value) for c in (b"", b"c") for name in names])


# --- what is noted --------------------------------------------------------------------------------


def test_an_owner_works_on_while_its_shard_is_copied(moving: MoveScene) -> None:
    moving.precopy(X)
    assert moving.status(X) == ["copying", ""]
    moving.a.fill(X, 5, 6)
    moving.a.commit(X, out("end/0", b"one"), entries=moving.a.fetch_one(X)[:1])
    moving.a.commit("src/0", out(X, b"two"), again=True)
    assert moving.a.measure(X).status is ShardStatus.COPYING
    assert moving.a.measure(X).inbox_entries == 2
    assert payloads(moving.a.fetch_one("end/0")) == [b"one"]
    assert moving.a.outgoing() == []


def test_what_changes_after_the_scan_comes_with_the_next_round(moving: MoveScene) -> None:
    put(moving, 20)
    moving.a.commit(X, timers=[TimerWrite(b"t%d" % n, n) for n in range(9)])
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.a.commit(
        X,
        state=[
            StateWrite(b"", b"k3", b"new"),
            StateWrite(b"", b"k4", None),
            StateWrite(b"d", b"first", b"1"),
            StateWrite(b"c", b"k1", None),
        ],
        timers=[TimerWrite(b"t1", None), TimerWrite(b"t2", 77), TimerWrite(b"late", 5)],
    )
    moving.copy_round(X, move)
    moving.a.commit(X, state=[StateWrite(b"", b"k3", None), StateWrite(b"", b"k5", b"newer")])
    before = moving.a.store.call(StateSnapshot(X))
    moving.rest(X, move)
    assert moving.b.store.call(StateSnapshot(X)) == before
    moving.move(X, "s1")
    assert moving.a.store.call(StateSnapshot(X)) == before


@pytest.mark.parametrize("again", [False, True])
def test_a_collection_that_is_dropped_meanwhile_goes_from_the_copy(moving: MoveScene, again: bool) -> None:
    put(moving, 12)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.a.commit(X, state=[StateWrite(b"c", b"k2", b"soon gone"), StateWrite(b"c", None, None)])
    if again:
        moving.a.commit(X, state=[StateWrite(b"c", b"k7", b"back"), StateWrite(b"c", b"more", b"new")])
    moving.copy_round(X, move)
    before = moving.a.store.call(StateSnapshot(X))
    moving.rest(X, move)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert {name for name, _ in before} == ({b"", b"c"} if again else {b""})


def test_nothing_that_was_noted_is_lost_with_an_owner(moving: MoveScene) -> None:
    put(moving, 12)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"by the first"), StateWrite(b"c", b"k1", None)])
    late = moving.a.next_commit(X)
    moving.a.claim(X, version=moving.version)
    assert moving.a.store.call(late) is Answer.FENCED
    moving.a.commit(X, state=[StateWrite(b"", b"k2", b"by the second")])
    assert moving.a.claims[X].epoch == move.epoch == 2
    before = moving.a.store.call(StateSnapshot(X))
    moving.copy_round(X, move)
    moving.rest(X, move)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert moving.b.claims[X].epoch == 4


def test_the_rest_is_small_however_large_the_state_is(moving: MoveScene) -> None:
    sizes = []
    for count in (10, 200):
        put(moving, count, b"v" * 20)
        move = moving.precopy(X)
        moving.copy_round(X, move)
        moving.a.commit(X, state=[StateWrite(b"", b"k3", b"new")])
        moving.copy_round(X, move)
        moving.a.commit(X, state=[StateWrite(b"", b"k4", b"new")])
        sizes.append(moving.rest(X, move))
        moving.move(X, "s1")
    assert sizes[1] <= sizes[0] + 20


def test_noting_ends_when_nobody_drives_the_copy(backend: Backend) -> None:
    moving = MoveScene(backend, bounds=replace(CHUNKED, noted_entries_max=30))
    move = moving.precopy(X)
    for _ in range(3):
        put(moving, 10)
    assert moving.status(X)[0] == "copying"
    put(moving, 20)
    assert moving.status(X)[0] == "active"
    assert moving.a.store.call(Export(X, move, b"")) is Answer.STALE
    assert moving.next_round(X, move, b"") is Answer.STALE
    assert moving.precopy(X).epoch == move.epoch + 1


# --- inbox and outbox -----------------------------------------------------------------------------


def test_inbox_and_outbox_go_ahead_and_what_was_worked_off_since_goes_from_the_copy(
    moving: MoveScene,
) -> None:
    moving.a.fill(X, 10, 20, 30)
    entries = moving.a.fetch_one(X)
    moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(1, 6)])
    moving.a.commit(X, *[out("files", b"file %d" % n, external=True) for n in (1, 2, 3)])
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.copy_round(X, move)
    assert moving.b.outgoing() == [], "a copy is delivered from before the freeze"
    moving.a.commit(X, out("far/0", b"6"), entries=entries[:2])
    assert moving.a.acknowledge(X, "far/0", 3) is Answer.OK
    assert moving.a.acknowledge(X, "files", 2, b"at 12") is Answer.OK
    assert moving.a.append(X, 4, b"late", producer="filler/0") is Answer.OK
    counters = moving.a.measure(X)
    outbox = [moving.a.outbox(X, target) for target in ("far/0", "files")]
    assert moving.a.intend(X, "files", b"to 3") is Answer.OK
    moving.rest(X, move)
    assert [moving.b.outbox(X, target) for target in ("far/0", "files")] == outbox
    now = moving.b.measure(X)
    assert now == structs.replace(counters, epoch=now.epoch, executor="mid@w2", status=ShardStatus.ACTIVE)
    assert moving.b.claims[X].external["files"] == ExternalCursor(3, 2, b"at 12", b"to 3")
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"f" * 30, b"late"]
    assert moving.b.outgoing() == [(X, "far/0")]


@pytest.mark.parametrize("more", [0, 2])
def test_an_outbox_that_was_delivered_since_it_was_copied_leaves_no_hole(
    moving: MoveScene, more: int
) -> None:
    moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(1, 5)])
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.copy_round(X, move)
    moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(5, 8)])
    assert moving.a.acknowledge(X, "far/0", 7) is Answer.OK
    if more:
        moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(8, 8 + more)])
    moving.rest(X, move)
    assert [number for number, _ in moving.b.outbox(X, "far/0")] == list(range(8, 8 + more))
    counters = moving.b.measure(X)
    assert (counters.outbox_entries, counters.outbox_bytes) == (more, more)
    assert moving.b.outgoing() == ([(X, "far/0")] if more else [])


def test_whoever_asks_the_target_is_sent_to_the_source_until_the_rest_comes(moving: MoveScene) -> None:
    put(moving, 5)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    assert moving.b.append(X, 1) == Moved("s1")
    assert moving.b.try_claim(X, worker="w2", version=moving.version) == Moved("s1")
    assert moving.a.append(X, 1) is Answer.OK
    chunk = moving.try_freeze(X, move, moving.held(X, move).resume)
    assert isinstance(chunk, Chunk)
    moving.install(X, move, chunk, moving.held(X, move).chunks + 1)
    assert moving.b.append(X, 2) is Answer.MOVING
    assert moving.a.append(X, 2) is Answer.MOVING


# --- little shards --------------------------------------------------------------------------------

ROOMY = replace(
    SMALL,
    chunk_bytes_max=16 << 10,
    chunk_entries_max=60,
    commit_bytes_max=1 << 20,
    outputs_per_commit_max=100,
)


def test_a_shard_that_fits_into_one_chunk_is_not_copied_ahead(backend: Backend) -> None:
    moving = MoveScene(backend, bounds=ROOMY)
    put(moving, 10)
    moving.a.fill(X, 5, 6)
    moving.a.commit(X, out("far/0", b"one"), timers=[TimerWrite(b"t", 7)])
    before = moving.a.store.call(StateSnapshot(X))
    moving.send_home(X, "s2")
    progress = moving.move_once(X)
    assert (progress.step, progress.round, progress.paused_chunks) == (MoveStep.DROP, 0, 1)
    assert moving.status(X) == ["departed", "active"]
    assert moving.move_once(X).step is MoveStep.DONE
    moving.claim(X)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"f" * 5, b"f" * 6]
    assert moving.b.outgoing() == [(X, "far/0")]


@pytest.mark.parametrize("what", ["fields", "bytes", "entries"])
def test_a_shard_that_does_not_is(backend: Backend, what: str) -> None:
    moving = MoveScene(backend, bounds=ROOMY)
    if what == "fields":
        put(moving, 40)
    elif what == "bytes":
        put(moving, 10, b"v" * 1000)
    else:
        moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(1, 100)])
    moving.send_home(X, "s2")
    progress = moving.move_once(X)
    assert progress.round >= 2
    assert progress.step is MoveStep.DROP


def test_a_little_shard_is_copied_ahead_where_an_older_copy_has_to_go_first(backend: Backend) -> None:
    moving = MoveScene(backend, bounds=ROOMY)
    put(moving, 10)
    dead = moving.precopy(X)
    moving.copy_round(X, dead)
    assert moving.a.store.call(Thaw(X, dead)) is Answer.OK
    progress = moving.move_once(X)
    assert progress.round >= 2
    assert progress.step is MoveStep.DROP


def test_a_driver_that_died_after_the_freeze_of_a_little_shard_is_followed_by_the_next(
    backend: Backend,
) -> None:
    moving = MoveScene(backend, bounds=ROOMY)
    put(moving, 10)
    before = moving.a.store.call(StateSnapshot(X))
    move = moving.precopy(X)
    assert isinstance(moving.try_freeze(X, move, b""), Chunk)
    assert moving.move_once(X).step is MoveStep.DROP, "it is not thawed and copied anew"
    moving.claim(X)
    assert moving.b.store.call(StateSnapshot(X)) == before


# --- tokens and rounds ----------------------------------------------------------------------------


def test_beginning_again_gives_the_same_token_and_after_a_start_a_new_one(moving: MoveScene) -> None:
    put(moving, 9)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    assert moving.precopy(X) == move
    moving.a.open("s1")
    assert moving.next_round(X, move, moving.held(X, move).resume) is Answer.STALE
    anew = moving.precopy(X)
    assert anew == replace(move, epoch=move.epoch + 1, generation=2)
    assert moving.try_freeze(X, move, moving.held(X, move).resume) is Answer.STALE


def test_a_round_is_turned_once_and_only_at_its_end(moving: MoveScene) -> None:
    put(moving, 20)
    move = moving.precopy(X)
    assert moving.a.store.call(Export(X, move, b"")) is Answer.STALE
    assert moving.next_round(X, move, b"") is Answer.OK
    assert moving.next_round(X, move, b"") is Answer.DONE
    moving.copy_on(X, move, until=1)
    first_end = moving.held(X, move).resume
    chunk = moving.a.store.call(Export(X, move, b""))
    assert isinstance(chunk, Chunk)
    assert moving.next_round(X, move, chunk.resume) is Answer.STALE
    assert moving.try_freeze(X, move, chunk.resume) is Answer.STALE
    assert moving.try_freeze(X, move, b"") is Answer.STALE
    assert moving.a.store.call(Export(X, move, first_end)) is Answer.STALE
    assert moving.next_round(X, move, first_end) is Answer.OK
    assert moving.next_round(X, move, b"") is Answer.STALE
    assert moving.next_round(X, move, first_end) is Answer.DONE
    assert moving.a.store.call(Export(X, move, chunk.resume)) is Answer.STALE
    assert moving.try_freeze(X, move, first_end) is Answer.STALE
    moving.copy_on(X, move, until=2)
    moving.rest(X, move)
    assert moving.a.store.call(NextRound(X, move, first_end)) is Answer.STALE


def test_a_move_given_up_is_void_and_the_next_one_is_newer(moving: MoveScene) -> None:
    put(moving, 9)
    old = moving.precopy(X)
    moving.copy_round(X, old)
    assert moving.a.store.call(Thaw(X, old)) is Answer.OK
    assert moving.a.store.call(Thaw(X, old)) is Answer.DONE
    assert moving.status(X)[0] == "active"
    resume = moving.held(X, old).resume
    for answer in (moving.next_round(X, old, resume), moving.try_freeze(X, old, resume)):
        assert answer is Answer.STALE
    moving.a.commit(X, state=[StateWrite(b"", b"k1", None)])
    new = moving.precopy(X)
    assert new.epoch == old.epoch + 1
    assert moving.a.store.call(Thaw(X, old)) is Answer.STALE
    before = moving.a.store.call(StateSnapshot(X))
    moving.move(X)
    assert moving.b.store.call(StateSnapshot(X)) == before
    assert moving.install(X, old, Chunk(b"", b"", is_last=True), 1) is Answer.STALE


def test_a_frozen_shard_whose_move_is_given_up_goes_on_and_moves_later(moving: MoveScene) -> None:
    put(moving, 9)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    moving.try_freeze(X, move, moving.held(X, move).resume)
    assert let_go_once(moving.a.store, X).step is MoveStep.BACK
    assert isinstance(moving.a.try_claim(X, version=moving.version), Claimed)
    moving.a.claim(X, version=moving.version)
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"later")])
    before = moving.a.store.call(StateSnapshot(X))
    moving.move(X)
    assert moving.b.store.call(StateSnapshot(X)) == before


# --- the driver -----------------------------------------------------------------------------------


def test_the_owner_commits_between_any_two_calls_of_a_driver(moving: MoveScene) -> None:
    put(moving, 30)
    moving.send_home(X, "s2")
    commits = 0

    def commit() -> None:
        nonlocal commits
        commits += 1
        call = moving.a.next_commit(
            X,
            state=(StateWrite(b"", b"k%d" % (commits % 30), b"%d" % commits), StateWrite(b"c", b"k1", None)),
        )
        if moving.a.store.call(call) is Answer.OK:
            moving.a.numbers[X] += 1
            snapshots.append(moving.a.store.call(StateSnapshot(X)))

    snapshots: list[object] = []
    source = StoreMeanwhile(moving.a.store, Export, commit)
    rounds = set()
    for _ in range(500):
        progress = move_once(source, moving.store_of, X, target_id="s2", version=moving.version, chunks_max=4)
        assert progress.obstacle is None
        rounds.add(progress.round)
        if progress.is_over:
            break
    assert progress.step is MoveStep.DONE
    assert len(snapshots) >= 4
    assert 2 <= max(rounds) <= ROUNDS_MAX
    assert moving.b.store.call(StateSnapshot(X)) == snapshots[-1]


def test_a_bound_on_what_is_copied_ahead_leaves_the_rest_to_one_turn(moving: MoveScene) -> None:
    moving.a.commit(X, *[out(f"far/{n}", b"o") for n in range(12)])
    moving.send_home(X, "s2")
    ahead = 0
    for _ in range(100):
        progress = move_once(
            moving.a.store, moving.store_of, X, target_id="s2", version=moving.version, chunks_ahead_max=1
        )
        if progress.step is not MoveStep.PRECOPY:
            break
        ahead += 1
    assert ahead > 2
    assert progress.step is MoveStep.DROP, "it has departed, and is active at the target"
    assert progress.paused_chunks > 2


def test_the_rounds_end_though_the_writes_do_not_shrink(moving: MoveScene) -> None:
    put(moving, 40)
    moving.send_home(X, "s2")
    number = 0

    def write_all() -> None:
        nonlocal number
        number += 1
        call = moving.a.next_commit(
            X, state=tuple(StateWrite(b"", b"k%d" % n, b"%d" % number) for n in range(40))
        )
        if moving.a.store.call(call) is Answer.OK:
            moving.a.numbers[X] += 1

    source = StoreMeanwhile(moving.a.store, Export, write_all)
    for _ in range(200):
        progress = move_once(source, moving.store_of, X, target_id="s2", version=moving.version)
        if progress.is_over:
            break
    assert progress.step is MoveStep.DONE


def test_a_move_is_taken_back_while_it_is_copied(moving: MoveScene) -> None:
    put(moving, 30)
    moving.send_home(X, "s2")
    assert moving.move_once(X, chunks_max=2).step is MoveStep.PRECOPY
    assert moving.status(X) == ["copying", "installing"]
    moving.send_home(X, "s1")
    homes = {X: "s1"}
    assert moves_due("s1", homes, {X: ShardStatus.COPYING}) == {X: MoveKind.BACK}
    assert moves_due("s1", {X: "s2"}, {X: ShardStatus.COPYING}) == {X: MoveKind.MOVE}
    for _ in range(50):
        progress = go_back_once(moving.a.store, moving.store_of, X)
        if progress.is_over:
            break
    assert progress.step is MoveStep.BACK
    assert moving.status(X) == ["active", "moved"]
    assert moving.b.store.call(StateSnapshot(X)) == {}
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"went on")])


def test_a_copy_is_tidied_when_its_move_was_given_up_and_not_before(moving: MoveScene) -> None:
    put(moving, 9)
    move = moving.precopy(X)
    moving.copy_round(X, move)
    assert tidy_once(moving.b.store, moving.store_of, X).obstacle is MoveObstacle.ALIVE
    assert let_go_once(moving.a.store, X).step is MoveStep.BACK
    for _ in range(20):
        progress = tidy_once(moving.b.store, moving.store_of, X)
        if progress.is_over:
            break
    assert moving.status(X) == ["active", "moved"]
    assert moving.b.append(X, 1) == Moved("s1")


def test_a_target_that_lost_its_copy_is_copied_to_anew(moving: MoveScene) -> None:
    put(moving, 9)
    move = moving.precopy(X)
    for _ in range(3):
        moving.copy_round(X, move)
    while moving.b.store.call(Discard(X, move)) is not Answer.OK:
        pass
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"meanwhile")])
    before = moving.a.store.call(StateSnapshot(X))
    moving.move(X)
    assert moving.b.store.call(StateSnapshot(X)) == before


def test_a_shard_works_on_when_its_target_goes_away_in_the_middle(moving: MoveScene) -> None:
    put(moving, 30)
    moving.send_home(X, "s2")

    def away() -> None:
        raise StoreUnreachable("gone")

    target = StoreMeanwhile(moving.b.store, Install, away)
    progress = move_once(moving.a.store, lambda _: target, X, target_id="s2", version=moving.version)
    assert (progress.step, progress.obstacle) == (MoveStep.PRECOPY, MoveObstacle.TARGET_UNREACHABLE)
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"went on")])
    assert moving.status(X)[0] == "copying"
    assert let_go_once(moving.a.store, X).step is MoveStep.BACK
    assert moving.status(X)[0] == "active"
