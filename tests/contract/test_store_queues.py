"""Store contract: outputs, inboxes, outboxes, and what moves from one into the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.store_backends import Backend
from penstock.store.port import (
    Answer,
    Append,
    ExternalCursor,
    Intend,
    Moved,
    Outgoing,
    OutgoingTargets,
    ReadOutbox,
    WaitOutgoing,
    WaitReady,
)
from scenes.store_scenario import NOW_US, SMALL, Scene, out, payloads


def work_off(scene: Scene, shard: str, count: int | None = None) -> list[bytes]:
    """Fetch a shard's entries and commit the first `count` of them; answers their payloads."""
    entries = scene.fetch_one(shard)[:count]
    scene.commit(shard, entries=entries)
    return payloads(entries)


# --- append


def test_append_takes_exactly_the_next_number_of_a_pair(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.append("mid/0", 2) is Answer.GAP
    assert scene.append("mid/0", 1, b"a") is Answer.OK
    assert scene.append("mid/0", 1, b"a") is Answer.DUP
    assert scene.append("mid/0", 3) is Answer.GAP
    assert scene.append("mid/0", 2, b"b") is Answer.OK
    assert scene.append("mid/0", 1, b"a") is Answer.DUP
    assert payloads(scene.fetch_one("mid/0")) == [b"a", b"b"]


def test_pairs_are_numbered_apart(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    assert scene.append("mid/0", 1, producer="far/0") is Answer.OK
    assert scene.append("mid/0", 1, producer="far/1") is Answer.OK
    assert scene.append("mid/1", 1, producer="far/0") is Answer.OK
    assert scene.append("mid/1", 2, producer="far/1") is Answer.GAP


def test_duplicates_are_known_after_the_entry_is_worked_off(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.append("mid/0", 1)
    work_off(scene, "mid/0")
    scene.claim("mid/0")
    assert scene.append("mid/0", 1) is Answer.DUP
    assert scene.measure("mid/0").inbox_entries == 0


def test_an_append_keeps_the_producers_time_and_counts_rows(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.store.call(Append("far/0", "mid/0", 1, b"a", 5, 123)) is Answer.OK
    (entry,) = scene.fetch_one("mid/0")
    assert (entry.number, entry.placed_us, entry.payload) == (1, 123, b"a")
    assert scene.measure("mid/0").arrived_rows == 5


def test_an_append_without_room_is_busy(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.fill("mid/0", 1, 1, 1, 1)
    assert scene.append("mid/0", 1) is Answer.BUSY
    scene.fill("mid/1", 90)
    assert scene.append("mid/1", 1, b"x" * 11) is Answer.BUSY
    assert scene.append("mid/1", 1, b"x" * 10) is Answer.OK


def test_a_duplicate_or_a_gap_is_told_before_a_lack_of_room(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    assert scene.append("mid/0", 1, producer="filler/0") is Answer.DUP
    assert scene.append("mid/0", 6, producer="filler/0") is Answer.GAP


def test_an_empty_inbox_takes_an_entry_of_whatever_size(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert scene.append("mid/0", 1, b"x" * 200) is Answer.OK
    assert scene.append("mid/0", 2, b"x") is Answer.BUSY
    work_off(scene, "mid/0")
    assert scene.append("mid/0", 2, b"x") is Answer.OK


def test_a_busy_append_is_taken_after_a_trim(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    assert scene.append("mid/0", 1) is Answer.BUSY
    work_off(scene, "mid/0", 1)
    assert scene.append("mid/0", 1) is Answer.OK


# --- outputs to shards of this store


def test_an_output_goes_straight_into_a_local_inbox(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0", b"a", rows=3), out("mid/0", b"b"), again=True)
    assert scene.outbox("src/0", "mid/0") == []
    assert scene.measure("src/0").outbox_entries == 0
    counters = scene.measure("mid/0")
    assert (counters.inbox_entries, counters.inbox_bytes, counters.arrived_rows) == (2, 2, 4)
    assert scene.append("mid/0", 2, producer="src/0") is Answer.DUP


def test_outputs_for_a_full_inbox_wait_in_the_outbox_in_order(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1, 1, 1)
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(3)], again=True)
    assert scene.outbox("src/0", "mid/0") == [(2, b"1"), (3, b"2")]
    assert scene.outgoing() == []
    counters = scene.measure("src/0")
    assert (counters.outbox_entries, counters.outbox_bytes) == (2, 2)


def test_an_output_that_would_fit_does_not_pass_an_older_one_that_waits(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 60)
    scene.commit("src/0", out("mid/0", b"L" * 50), out("mid/0", b"s"), again=True)
    assert scene.outbox("src/0", "mid/0") == [(1, b"L" * 50), (2, b"s")]
    scene.commit("src/0", out("mid/0", b"t"), again=True)
    work_off(scene, "mid/0")
    assert payloads(scene.fetch_one("mid/0")) == [b"L" * 50, b"s", b"t"]


def test_outputs_of_two_producers_do_not_wait_for_each_other(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.fill("mid/0", 60)
    scene.commit("src/0", out("mid/0", b"L" * 50), again=True)
    scene.commit("src/1", out("mid/0", b"s"), again=True)
    assert scene.outbox("src/1", "mid/0") == []


def test_a_commits_trim_makes_room_for_entries_that_wait_in_this_store(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", out("mid/0", b"a", rows=2), out("mid/0", b"b"), again=True, now_us=55)
    assert work_off(scene, "mid/0", 1) == [b"f"]
    assert scene.outbox("src/0", "mid/0") == [(2, b"b")]
    counters = scene.measure("src/0")
    assert (counters.outbox_entries, counters.outbox_bytes) == (1, 1)
    entries = scene.fetch_one("mid/0")
    assert payloads(entries) == [b"f", b"f", b"f", b"a"]
    assert entries[3].placed_us == 55
    assert scene.measure("mid/0").arrived_rows == 6


def test_waiting_entries_come_in_even_when_the_producer_is_idle(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(10)], finished=True)
    seen: list[bytes] = []
    while len(seen) < 14:
        seen += work_off(scene, "mid/0")
    assert seen == [b"f"] * 4 + [b"%d" % n for n in range(10)]
    assert scene.measure("src/0").outbox_entries == 0
    assert scene.measure("src/0").outbox_bytes == 0


def test_a_commit_pulls_no_more_than_its_drain_entries(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", *[out("mid/0")] * 6, again=True)
    work_off(scene, "mid/0")
    assert scene.measure("mid/0").inbox_entries == 3
    assert scene.measure("src/0").outbox_entries == 3


def test_a_commit_pulls_no_more_than_about_its_drain_bytes(backend: Backend) -> None:
    bounds = replace(SMALL, inbox_entries_max=50, drain_entries_max=50, drain_bytes_max=10)
    scene = Scene(backend.open_store(bounds=bounds)).set_up("src/0", "mid/0")
    scene.fill("mid/0", 99)
    scene.commit("src/0", *[out("mid/0", b"1234")] * 9, again=True)
    work_off(scene, "mid/0")
    assert 2 <= scene.measure("mid/0").inbox_entries <= 3


def test_an_entry_larger_than_the_drain_bytes_is_moved_all_the_same(backend: Backend) -> None:
    bounds = replace(SMALL, drain_bytes_max=10)
    scene = Scene(backend.open_store(bounds=bounds)).set_up("src/0", "mid/0")
    scene.fill("mid/0", 99)
    scene.commit("src/0", out("mid/0", b"x" * 50), again=True)
    work_off(scene, "mid/0")
    assert work_off(scene, "mid/0") == [b"x" * 50]


def test_producers_that_wait_for_one_inbox_all_get_their_turn(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", *[out("mid/0", b"0")] * 20, again=True)
    scene.commit("src/1", *[out("mid/0", b"1")] * 20, again=True)
    seen: list[bytes] = []
    for _ in range(4):
        seen += work_off(scene, "mid/0")
    assert {b"0", b"1"} <= set(seen)


def test_pulling_waiting_entries_releases_a_held_producer(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fetch_one("src/0")
    scene.fill("mid/0", 1, 1, 1, 1)
    scene.commit("src/0", *[out("mid/0")] * 5, again=True)
    assert scene.fetch("src@w1").shards == ()
    work_off(scene, "mid/0")
    assert scene.fetch_names("src@w1") == ["src/0"]


def test_a_commit_drains_its_own_older_outputs_first(scene: Scene, backend: Backend) -> None:
    scene.set_up("src/0", "mid/0")
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", out("mid/0", b"a"), out("mid/0", b"b"), again=True)
    backend.set_status("mid/0", "")
    scene.commit("src/0", out("mid/0", b"c"), again=True)
    assert scene.outbox("src/0", "mid/0") == []
    assert scene.outgoing() == []
    assert payloads(scene.fetch_one("mid/0")) == [b"a", b"b", b"c"]


def test_a_commit_drains_no_more_than_its_bounds_and_the_target_takes_the_rest(
    scene: Scene, backend: Backend
) -> None:
    scene.set_up("src/0", "mid/0")
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(5)], again=True)
    backend.set_status("mid/0", "")
    scene.commit("src/0", out("mid/0", b"5"), again=True)
    assert scene.outbox("src/0", "mid/0") == [(4, b"3"), (5, b"4"), (6, b"5")]
    assert work_off(scene, "mid/0") == [b"0", b"1", b"2"]
    assert work_off(scene, "mid/0") == [b"3", b"4", b"5"]


def test_an_entry_that_was_delivered_but_not_acknowledged_is_not_placed_again(
    scene: Scene, backend: Backend
) -> None:
    scene.set_up("src/0", "mid/0")
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", out("mid/0", b"a"), out("mid/0", b"b"), again=True)
    backend.set_status("mid/0", "")
    assert scene.append("mid/0", 1, b"a", producer="src/0") is Answer.OK
    scene.commit("src/0", again=True)
    assert scene.outbox("src/0", "mid/0") == []
    assert scene.acknowledge("src/0", "mid/0", 1) is Answer.OK
    assert payloads(scene.fetch_one("mid/0")) == [b"a", b"b"]


def test_an_output_to_an_unclaimed_shard_waits_in_its_inbox(scene: Scene) -> None:
    scene.set_up("src/0", unclaimed=["mid/0"])
    scene.commit("src/0", out("mid/0", b"a"), again=True)
    assert scene.measure("mid/0").inbox_entries == 1


# --- outputs for elsewhere


def test_outputs_for_a_shard_that_is_not_here_wait_in_the_outbox(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("mid/0", b"a", rows=2), out("mid/1", b"b"), out("mid/0", b"c"), again=True)
    assert scene.outgoing() == [("src/0", "mid/0"), ("src/0", "mid/1")]
    waiting = scene.store.call(ReadOutbox("src/0", "mid/0", 1000))
    assert waiting == [(1, NOW_US, 2, b"a"), (2, NOW_US, 1, b"c")]


def test_outgoing_answers_no_more_pairs_than_asked(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", *[out(f"far/{n}") for n in range(5)], again=True)
    assert len(scene.store.call(Outgoing(3))) == 3


def test_outgoing_pairs_are_told_by_target_and_page_by_page(scene: Scene) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    for producer in ("src/0", "src/1"):
        scene.commit(producer, out("far/0"), out("far/1"), out("mid/0"), again=True)
    assert scene.store.call(OutgoingTargets()) == ["far/0", "far/1"]
    both = [("src/0", "far/1"), ("src/1", "far/1")]
    assert scene.store.call(Outgoing(10, ("far/1",))) == both
    assert scene.store.call(Outgoing(10, ("mid/0", "far/9", "far/1"))) == both
    assert scene.store.call(Outgoing(3, ("far/1", "far/0"))) == [*both, ("src/0", "far/0")]
    assert scene.store.call(Outgoing(3, ("far/1", "far/0"), skip=1)) == [
        ("src/1", "far/1"), ("src/0", "far/0"), ("src/1", "far/0"),
    ]  # fmt: skip
    scene.create("far/0")
    assert scene.store.call(OutgoingTargets()) == ["far/1"]
    assert scene.store.call(Outgoing(10, ("far/0",))) == []


def test_waiting_for_outgoing_entries_tells_of_those_that_wait(scene: Scene, backend: Backend) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0"), out("files", external=True), again=True)
    assert not scene.store.call(WaitOutgoing(1))
    scene.commit("src/0", out("far/0"), again=True)
    assert scene.store.call(WaitOutgoing(1))
    assert backend.open_store().call(WaitOutgoing(1))
    scene.acknowledge("src/0", "far/0", 1)
    assert not backend.open_store().call(WaitOutgoing(1))


def test_an_outbox_is_read_about_as_many_bytes_at_a_time_as_asked(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", *[out("mid/0", b"x" * 40)] * 4, again=True)
    assert [n for n, _ in scene.outbox("src/0", "mid/0", bytes_max=80)] == [1, 2]
    assert [n for n, _ in scene.outbox("src/0", "mid/0", bytes_max=1)] == [1]
    assert scene.outbox("src/0", "end/0") == []
    assert scene.outbox("no/shard", "mid/0") == []


def test_an_acknowledgement_trims_a_pair_up_to_its_number(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(3)], out("mid/1"), again=True)
    assert scene.acknowledge("src/0", "mid/0", 2) is Answer.OK
    assert scene.outbox("src/0", "mid/0") == [(3, b"2")]
    counters = scene.measure("src/0")
    assert (counters.outbox_entries, counters.outbox_bytes) == (2, 2)
    assert scene.acknowledge("src/0", "mid/0", 3) is Answer.OK
    assert scene.outgoing() == [("src/0", "mid/1")]


def test_an_acknowledgement_may_come_late_and_twice(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(3)], again=True)
    for number in (2, 2, 1):
        assert scene.acknowledge("src/0", "mid/0", number) is Answer.OK
    assert scene.outbox("src/0", "mid/0") == [(3, b"2")]
    assert scene.acknowledge("src/0", "never/sent", 4) is Answer.OK


def test_an_acknowledgement_of_what_was_never_sent_changes_nothing(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("files", b"a", external=True))
    assert scene.acknowledge("mid/0", "files", 2, b"byte 99") is Answer.OK
    assert scene.outbox("mid/0", "files") == [(1, b"a")]
    assert scene.claim("mid/0").external["files"].acknowledged == 0


def test_entries_that_wait_for_a_shard_enter_its_inbox_when_it_is_created(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", *[out("mid/0", b"%d" % n) for n in range(5)], again=True)
    scene.create("mid/0")
    assert scene.outgoing() == []
    assert [n for n, _ in scene.outbox("src/0", "mid/0")] == [4, 5]
    scene.claim("mid/0")
    assert work_off(scene, "mid/0") == [b"0", b"1", b"2"]
    assert work_off(scene, "mid/0") == [b"3", b"4"]


def test_outputs_for_a_frozen_or_moved_shard_are_outgoing(scene: Scene, backend: Backend) -> None:
    scene.set_up("src/0", "mid/0", "mid/1")
    backend.set_status("mid/0", "frozen")
    backend.set_status("mid/1", "moved:s2")
    scene.commit("src/0", out("mid/0"), out("mid/1"), again=True)
    assert scene.outgoing() == [("src/0", "mid/0"), ("src/0", "mid/1")]
    assert scene.append("mid/1", 1, producer="src/0") == Moved("s2")
    assert scene.measure("mid/1").inbox_entries == 0


def test_numbers_of_a_pair_go_on_whether_an_output_was_placed_or_waits(
    scene: Scene, backend: Backend
) -> None:
    scene.set_up("src/0", "mid/0")
    scene.commit("src/0", out("mid/0", b"a"), again=True)
    backend.set_status("mid/0", "frozen")
    scene.commit("src/0", out("mid/0", b"b"), again=True)
    assert scene.outbox("src/0", "mid/0") == [(2, b"b")]


# --- outside sinks


def test_outputs_for_an_outside_sink_always_wait_in_the_outbox(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("files", b"a", external=True))
    scene.commit("mid/0", out("files", b"b", external=True))
    assert scene.outbox("mid/0", "files") == [(1, b"a"), (2, b"b")]
    assert scene.outgoing() == []


def test_an_outside_sinks_position_moves_forward_only(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", *[out("files", external=True)] * 3)
    scene.acknowledge("mid/0", "files", 2, b"byte 20")
    scene.acknowledge("mid/0", "files", 1, b"byte 10")
    scene.acknowledge("mid/0", "files", 2, b"byte 999")
    cursor = scene.claim("mid/0").external["files"]
    assert (cursor.issued, cursor.acknowledged, cursor.position) == (3, 2, b"byte 20")
    scene.acknowledge("mid/0", "files", 3, b"byte 30")
    cursor = scene.claim("mid/0").external["files"]
    assert (cursor.issued, cursor.acknowledged, cursor.position) == (3, 3, b"byte 30")


def test_what_an_owner_intends_is_told_to_the_next_one(scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("files", b"a", external=True), out("wire", b"b", external=True))
    assert scene.intend("mid/0", "files", b"one") is Answer.OK
    assert scene.intend("mid/0", "files", b"two") is Answer.OK
    assert scene.acknowledge("mid/0", "files", 1, b"byte 1") is Answer.OK
    external = scene.claim("mid/0").external
    assert external == {"files": ExternalCursor(1, 1, b"byte 1", b"two"), "wire": ExternalCursor(1, 0, b"")}
    assert scene.intend("mid/0", "files", b"three") is Answer.OK
    assert scene.outbox("mid/0", "wire") == [(1, b"b")]


def test_who_is_no_owner_intends_nothing(scene: Scene, backend: Backend) -> None:
    scene.set_up("mid/0")
    scene.commit("mid/0", out("files", b"a", external=True))
    owned = scene.claims["mid/0"]
    assert scene.intend("mid/0", "files", b"other start", generation=owned.generation + 1) is Answer.FENCED
    scene.claim("mid/0")
    assert scene.intend("mid/0", "files", b"late", epoch=owned.epoch) is Answer.FENCED
    assert scene.claim("mid/0").external["files"].intent == b""
    backend.set_status("mid/0", "frozen")
    assert scene.intend("mid/0", "files", b"frozen") is Answer.FENCED


def test_nothing_is_intended_for_a_sink_or_a_shard_that_is_not_there(scene: Scene) -> None:
    scene.set_up("mid/0", "end/0")
    scene.commit("mid/0", out("end/0"))
    assert scene.intend("mid/0", "files", b"a") is Answer.UNKNOWN
    assert scene.intend("mid/0", "end/0", b"a") is Answer.UNKNOWN
    assert scene.store.call(Intend("far/0", 1, 1, "files", b"a")) is Answer.UNKNOWN


def test_cursors_of_shards_are_not_told_as_those_of_sinks(scene: Scene) -> None:
    scene.set_up("mid/0", "end/0")
    scene.commit("mid/0", out("end/0"), out("far/0"), out("files", external=True), out("wire", external=True))
    assert set(scene.claim("mid/0").external) == {"files", "wire"}


# --- bounds


def test_a_commit_is_never_refused_for_a_full_outbox(scene: Scene) -> None:
    scene.set_up("mid/0")
    for _ in range(5):
        scene.commit("mid/0", *[out("far/0", b"x" * 30)] * 10)
    assert scene.measure("mid/0").outbox_entries == 50


@pytest.mark.parametrize("size", [1, 26, 100])
def test_an_inbox_stays_within_its_bounds_whoever_fills_it(scene: Scene, size: int) -> None:
    scene.set_up("src/0", "src/1", "mid/0")
    for round_ in range(1, 8):
        scene.append("mid/0", round_, b"x" * size)
        for producer in ("src/0", "src/1"):
            scene.commit(producer, *[out("mid/0", b"x" * size)] * 2, again=True)
        counters = scene.measure("mid/0")
        assert counters.inbox_entries <= 4
        assert counters.inbox_bytes <= max(100, size)
        work_off(scene, "mid/0", 1)


def test_nothing_is_left_ready_when_everything_is_worked_off(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fetch_one("src/0")
    scene.commit("src/0", *[out("mid/0", b"x")] * 9, finished=True)
    while scene.measure("mid/0").inbox_entries:
        work_off(scene, "mid/0")
    assert not scene.store.call(WaitReady("mid@w1", 1))
    assert not scene.store.call(WaitReady("src@w1", 1))
    assert scene.measure("mid/0").completed_rows == 9
