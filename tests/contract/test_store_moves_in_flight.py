"""What waits while a shard moves between stores: entries for it, its own outputs, acknowledgements."""

from __future__ import annotations

import pytest

from backends.store_backends import Backend
from penstock.store.port import (
    Answer,
)
from penstock.store.port.moves import (
    Chunk,
    Depart,
    Export,
    Installed,
)
from scenes.move_scene import MoveScene
from scenes.moved_shards import X, fill, finish
from scenes.store_scenario import out, payloads


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
