"""Moves of shards between two stores: what each call answers, also twice, late or from an old driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.store_backends import Backend, LossyStore
from penstock.store.moving.mover import MoveKind, move_once, moves_due, tidy_once
from penstock.store.moving.progress import MoveObstacle, MoveStep
from penstock.store.port import (
    Answer,
    Claimed,
    Create,
    Fetch,
    Measure,
    Moved,
    NodeStore,
    Publish,
    Retract,
    SetTasks,
    ShardStatus,
    StateSnapshot,
    StateWrite,
    TimerWrite,
)
from penstock.store.port.moves import (
    Activate,
    Chunk,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Install,
    Installed,
    Move,
    Precopy,
    ReadMove,
    Thaw,
)
from scenes.move_scene import MoveScene
from scenes.store_scenario import Scene, incarnation, out, payloads

X = "mid/0"
NOWHERE = Installed(0, b"", complete=False)


@pytest.fixture
def moving(backend: Backend) -> MoveScene:
    return MoveScene(backend)


def clear(store: NodeStore, call: Drop | Discard) -> int:
    """Call until nothing is left; answers how often there was more."""
    for calls in range(100):
        answer = store.call(call)
        if answer is not Answer.MORE:
            assert answer is Answer.OK
            return calls
    raise AssertionError("there is always more")


def departed(moving: MoveScene, shard: str = X) -> Move:
    """A move up to where its source has given the shard up."""
    move = moving.freeze(shard)
    moving.copy(shard, move)
    assert moving.a.store.call(Depart(shard, move)) is Answer.OK
    return move


def finish(moving: MoveScene, move: Move, shard: str = X) -> None:
    """The rest of a move from s1 to s2, and a claim."""
    assert moving.b.store.call(Activate(shard, move)) is Answer.OK
    clear(moving.a.store, Drop(shard, move))
    moving.claim(shard)


def fill(moving: MoveScene) -> None:
    """Something of everything that a shard can have."""
    a = moving.a
    a.fill(X, 10, 20, 30)
    entries = a.fetch_one(X)
    a.commit(
        X,
        out("end/0", b"local"),
        *[out("far/0", b"%d" % n) for n in range(4)],
        *[out("files", b"file %d" % n, external=True) for n in range(2)],
        entries=entries[:1],
        state=[StateWrite(b"", b"v%d" % n, b"%d" % n) for n in range(9)]
        + [StateWrite(b"c%d" % n, b"f%d" % m, b"x") for n in range(5) for m in range(n + 1)],
        timers=[TimerWrite(b"t%d" % n, 100 + n) for n in range(6)],
    )
    assert a.acknowledge(X, "files", 1, b"at 6") is Answer.OK
    assert a.acknowledge(X, "far/0", 2) is Answer.OK


# --- the whole way ------------------------------------------------------------------------------


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
    assert now == replace(counters, epoch=counters.epoch + 2, executor="mid@w2")
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
    assert moving.a.measure(X) == replace(counters, epoch=counters.epoch + 8)
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


# --- the freeze ---------------------------------------------------------------------------------


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


# --- what waits ---------------------------------------------------------------------------------


def test_what_local_producers_have_for_a_shard_follows_it(moving: MoveScene) -> None:
    """Both those that waited for room before the freeze, and those that came later."""
    moving.a.fill(X, 60, 30)
    moving.a.commit("src/0", out(X, b"a" * 50), again=True)
    assert moving.a.outgoing() == []
    moving.freeze(X)
    moving.a.commit("src/1", out(X, b"b" * 50), again=True)
    assert moving.a.outgoing() == [("src/0", X), ("src/1", X)]
    moving.deliver()
    moving.move(X)
    for _ in range(3):
        moving.deliver()
        fetched = moving.b.fetch("mid@w2").shards
        for one in fetched:
            moving.b.commit(X, entries=one.entries)
    assert moving.a.outgoing() == []
    assert moving.b.measure(X).arrived_rows == moving.b.measure(X).completed_rows == 4


def test_a_producer_that_is_held_for_a_moving_shard_goes_on_afterwards(moving: MoveScene) -> None:
    moving.freeze(X)
    moving.a.commit("src/0", out(X, b"a" * 120), again=True)
    assert moving.a.fetch_names("src@w1") == ["src/1"]
    moving.move(X)
    moving.deliver()
    assert moving.a.fetch_names("src@w1") == ["src/0"]


def test_what_waited_at_the_target_is_local_when_the_shard_is_there(backend: Backend) -> None:
    moving = MoveScene(backend, src_0="s2")
    moving.a.fill(X, 5)
    moving.freeze(X)
    moving.b.commit("src/0", out(X, b"one"), out(X, b"two"), again=True)
    assert moving.b.outgoing() == [("src/0", X)]
    moving.move(X)
    assert moving.b.outgoing() == []
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"f" * 5, b"one", b"two"]
    moving.b.commit("src/0", out(X, b"three"), again=True)
    assert moving.b.measure(X).inbox_entries == 4


def test_an_entry_that_was_delivered_before_the_move_is_not_taken_again_after_it(backend: Backend) -> None:
    moving = MoveScene(backend, src_0="s2")
    moving.b.commit("src/0", out(X, b"one"), again=True)
    assert moving.a.append(X, 1, b"one", producer="src/0") is Answer.OK
    moving.move(X)
    moving.b.commit("src/0", out(X, b"two"), again=True)
    assert payloads(moving.b.fetch_one(X, "w2")) == [b"one", b"two"]
    assert moving.b.outbox("src/0", X) == []


def test_a_moved_shards_outputs_find_targets_at_its_new_home(backend: Backend) -> None:
    """Those in its outbox were on their way to another store; the target has no reason to look for them."""
    moving = MoveScene(backend, end_1="s2")
    moving.a.commit(X, out("end/1", b"one"), out("end/1", b"two"), out("end/0", b"other"))
    assert moving.a.outgoing() == [(X, "end/1")]
    moving.move(X)
    assert payloads(moving.b.fetch_one("end/1", "w2")) == [b"one", b"two"]
    assert moving.a.outgoing() == moving.b.outgoing() == []
    moving.b.commit(X, out("end/1", b"three"), out("end/0", b"more"))
    moving.deliver()
    assert moving.b.measure("end/1").inbox_entries == 3
    assert payloads(moving.a.fetch_one("end/0")) == [b"other", b"more"]


def test_what_waits_for_room_goes_on_waiting_at_the_new_home(backend: Backend) -> None:
    moving = MoveScene(backend, end_1="s2")
    moving.b.fill("end/1", 90)
    moving.a.commit(X, out("end/1", b"a" * 30), out("end/1", b"b" * 30))
    moving.move(X)
    assert moving.b.outgoing() == []
    assert moving.b.measure(X).outbox_entries == 2
    moving.b.commit("end/1", entries=moving.b.fetch_one("end/1", "w2"))
    assert moving.b.measure(X).outbox_entries == 0
    assert payloads(moving.b.fetch_one("end/1", "w2")) == [b"a" * 30, b"b" * 30]


def test_local_targets_of_a_shard_that_leaves_get_what_it_left(moving: MoveScene) -> None:
    moving.a.fill("end/0", 90)
    moving.a.commit(X, out("end/0", b"a" * 30), out("end/0", b"b" * 30))
    moving.move(X)
    assert moving.b.outgoing() == [(X, "end/0")]
    moving.a.commit("end/0", entries=moving.a.fetch_one("end/0"))
    moving.deliver()
    assert payloads(moving.a.fetch_one("end/0")) == [b"a" * 30, b"b" * 30]
    assert moving.b.outgoing() == []


def test_two_shards_that_wait_for_each_other_may_both_move(moving: MoveScene) -> None:
    moving.a.fill("end/0", 90)
    moving.a.commit(X, out("end/0", b"a" * 30))
    x, end = moving.freeze(X), moving.freeze("end/0")
    moving.copy("end/0", end)
    moving.copy(X, x)
    for shard, move in ((X, x), ("end/0", end)):
        assert moving.a.store.call(Depart(shard, move)) is Answer.OK
        finish(moving, move, shard)
    moving.b.commit("end/0", entries=moving.b.fetch_one("end/0", "w2"))
    assert payloads(moving.b.fetch_one("end/0", "w2")) == [b"a" * 30]
    assert moving.a.outgoing() == moving.b.outgoing() == []


@pytest.mark.parametrize("all_of_it", [False, True])
def test_what_is_delivered_while_it_is_copied_leaves_no_hole(moving: MoveScene, all_of_it: bool) -> None:
    moving.a.commit(X, *[out("far/0", b"%d" % n) for n in range(1, 10)])
    move = moving.freeze(X)
    resume, acknowledged = b"", 0
    for number in range(1, 20):
        chunk = moving.a.store.call(Export(X, move, resume))
        assert isinstance(chunk, Chunk)
        resume = chunk.resume
        assert isinstance(moving.install(X, move, chunk, number), Installed)
        copied = moving.b.measure(X).outbox_entries
        if copied and not acknowledged:
            acknowledged = 9 if all_of_it else copied + 2
            assert moving.a.acknowledge(X, "far/0", acknowledged) is Answer.OK
        if chunk.is_last:
            break
    assert acknowledged
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    finish(moving, move)
    waiting = [number for number, _ in moving.b.outbox(X, "far/0")]
    assert waiting == list(range(acknowledged + 1, 10))
    counters = moving.b.measure(X)
    assert (counters.outbox_entries, counters.outbox_bytes) == (len(waiting), len(waiting))
    assert moving.b.outgoing() == ([(X, "far/0")] if waiting else [])
    assert moving.b.acknowledge(X, "far/0", 9) is Answer.OK
    assert moving.b.measure(X).outbox_bytes == 0
    assert moving.b.outgoing() == []


def test_a_sinks_late_acknowledgement_at_the_old_home_does_no_harm(moving: MoveScene) -> None:
    fill(moving)
    move = moving.freeze(X)
    assert moving.a.acknowledge(X, "files", 2, b"at 12") is Answer.OK
    moving.copy(X, move)
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    assert moving.a.acknowledge(X, "files", 2, b"at 12") is Answer.OK
    finish(moving, move)
    assert moving.a.acknowledge(X, "files", 2, b"at 12") is Answer.OK
    assert moving.b.claims[X].external["files"].acknowledged == 1
    assert [number for number, _ in moving.b.outbox(X, "files")] == [2]
    assert moving.b.acknowledge(X, "files", 2, b"at 12") is Answer.OK
    assert moving.b.measure(X).outbox_entries == 2


# --- being installed ----------------------------------------------------------------------------


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


# --- departing, activating, dropping ------------------------------------------------------------


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


# --- going back ---------------------------------------------------------------------------------


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


# --- the driver ---------------------------------------------------------------------------------


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
