"""Delivery between two stores: every entry arrives once and in order, whatever is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from backends.store_backends import Backend, LossyStore
from penstock.store import sender
from penstock.store.port import Answer, Append, NodeStore, Request, StoreUnreachable
from penstock.store.sender import PAIRS_AT_ONCE, Delivered, Obstacle
from scenes.delivery_pass import deliver_once
from scenes.store_scenario import Scene, out, payloads

MID = ("src/0", "mid/0")


class Pair:
    """Source shards on node n1, targets on node n2."""

    def __init__(self, backend: Backend) -> None:
        self.source = Scene(backend.open_store("n1")).set_up("src/0", "src/1")
        self.target = Scene(backend.open_store("n2"))
        self.target.open("s2")
        for operator in ("mid", "end"):
            self.target.publish(operator)
        self.target.enroll("w1")
        for shard in ("mid/0", "mid/1"):
            self.target.create(shard)
            self.target.claim(shard)

    def home_of(self, _: str) -> NodeStore | None:
        return self.target.store

    def deliver(self, **limits: int) -> Delivered:
        return deliver_once(self.source.store, self.home_of, **limits)

    def send(self, *numbers: int, producer: str = "src/0", target: str = "mid/0") -> None:
        self.source.commit(producer, *[out(target, b"%d" % n) for n in numbers], again=True)

    def received(self, target: str = "mid/0") -> list[bytes]:
        """Everything in the target's inbox, which is worked off."""
        if not self.target.measure(target).inbox_entries:
            return []
        fetched = self.target.fetch("mid@w1")
        for one in fetched.shards:
            self.target.commit(one.shard, entries=one.entries)
        return [p for one in fetched.shards if one.shard == target for p in payloads(one.entries)]


class Away(LossyStore):
    """One that does not answer; `calls` are those that were tried."""

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.calls += 1
        raise StoreUnreachable


@pytest.fixture
def pair(backend: Backend) -> Pair:
    return Pair(backend)


def test_waiting_entries_arrive_in_order_and_leave_the_outbox(pair: Pair) -> None:
    pair.send(1, 2)
    pair.send(3)
    assert pair.deliver() == Delivered(3, True, {})
    assert pair.deliver() == Delivered(0, False, {})
    assert pair.received() == [b"1", b"2", b"3"]
    assert pair.source.outgoing() == []
    assert pair.source.measure("src/0").outbox_entries == 0


def test_producers_time_and_rows_travel_along(pair: Pair) -> None:
    pair.source.commit("src/0", out("mid/0", b"a", rows=4), now_us=99, again=True)
    pair.deliver()
    (entry,) = pair.target.fetch_one("mid/0")
    assert entry.placed_us == 99
    assert pair.target.measure("mid/0").arrived_rows == 4


def test_one_pass_serves_every_pair(pair: Pair) -> None:
    pair.send(1, target="mid/0")
    pair.send(2, target="mid/1")
    pair.send(3, producer="src/1", target="mid/1")
    assert pair.deliver().entries == 3
    assert pair.source.outgoing() == []


def test_a_pass_takes_about_as_many_bytes_of_a_pair_as_told(pair: Pair) -> None:
    pair.send(1, 2, 3)
    assert pair.deliver(bytes_max=2) == Delivered(2, True, {})
    assert pair.deliver(bytes_max=2) == Delivered(1, True, {})
    assert pair.received() == [b"1", b"2", b"3"]


def test_a_pass_that_reached_its_pairs_says_that_there_is_more(pair: Pair) -> None:
    pair.send(1, target="mid/0")
    pair.send(2, target="mid/1")
    assert pair.deliver(pairs_max=1).more
    assert pair.deliver(pairs_max=1).entries == 1
    assert pair.source.outgoing() == []


def test_a_full_inbox_keeps_the_rest_waiting_until_it_has_room(pair: Pair) -> None:
    pair.send(*range(1, 8))
    assert pair.deliver() == Delivered(4, False, {MID: Obstacle.BUSY})
    assert [n for n, _ in pair.source.outbox(*MID)] == [5, 6, 7]
    assert pair.deliver() == Delivered(0, False, {MID: Obstacle.BUSY})
    assert pair.received() == [b"1", b"2", b"3", b"4"]
    assert pair.deliver().entries == 3
    assert pair.received() == [b"5", b"6", b"7"]


def test_a_full_target_does_not_keep_others_waiting(pair: Pair) -> None:
    pair.send(*range(1, 8))
    pair.send(1, producer="src/1", target="mid/1")
    delivered = pair.deliver()
    assert delivered.obstacles == {MID: Obstacle.BUSY}
    assert pair.target.measure("mid/1").inbox_entries == 1


def test_delivery_releases_a_held_producer(pair: Pair) -> None:
    assert pair.source.fetch_names("src@w1") == ["src/0", "src/1"]
    pair.send(*range(1, 6))
    assert pair.source.fetch("src@w1").shards == ()
    pair.deliver()
    assert pair.source.fetch_names("src@w1") == ["src/0"]


def test_a_moving_target_is_left_for_later(pair: Pair, backend: Backend) -> None:
    pair.send(1)
    backend.set_status("mid/0", "frozen", node="n2")
    assert pair.deliver() == Delivered(0, False, {MID: Obstacle.MOVING})
    backend.set_status("mid/0", "", node="n2")
    assert pair.deliver().entries == 1


def test_a_target_without_a_home_or_a_record_is_left_for_later(pair: Pair) -> None:
    pair.send(1, target="end/0")
    unknown = {("src/0", "end/0"): Obstacle.UNKNOWN}
    assert deliver_once(pair.source.store, lambda _: None) == Delivered(0, False, unknown)
    assert pair.deliver() == Delivered(0, False, unknown)
    pair.target.create("end/0")
    assert pair.deliver().entries == 1


def test_a_moved_target_is_looked_up_again(pair: Pair, backend: Backend) -> None:
    third = Scene(backend.open_store("n3"))
    third.open("s3")
    third.create("mid/0")
    pair.send(1)
    backend.set_status("mid/0", "moved:s3", node="n2")
    homes = iter([pair.target.store, third.store])
    assert deliver_once(pair.source.store, lambda _: next(homes)).entries == 1
    assert third.measure("mid/0").inbox_entries == 1


def test_a_look_up_that_lags_behind_a_move_leaves_the_pair_for_later(pair: Pair, backend: Backend) -> None:
    pair.send(1)
    backend.set_status("mid/0", "moved:s3", node="n2")
    assert pair.deliver() == Delivered(0, False, {MID: Obstacle.MOVED})


def test_entries_that_are_at_the_target_already_count_as_delivered(pair: Pair) -> None:
    pair.send(1, 2)
    assert pair.target.append("mid/0", 1, b"1", producer="src/0") is Answer.OK
    assert pair.deliver().entries == 1
    assert pair.source.outgoing() == []
    assert pair.received() == [b"1", b"2"]


def test_an_outbox_that_lost_entries_is_reported(pair: Pair) -> None:
    pair.send(1, 2)
    pair.source.acknowledge("src/0", "mid/0", 1)
    assert pair.deliver() == Delivered(0, False, {MID: Obstacle.GAP})


def test_entries_for_outside_sinks_are_not_touched(pair: Pair) -> None:
    pair.source.commit("src/0", out("files", b"a", external=True), again=True)
    assert pair.deliver() == Delivered(0, False, {})
    assert pair.source.outbox("src/0", "files") == [(1, b"a")]


def test_an_unreachable_home_is_an_obstacle_of_its_pairs_only(pair: Pair) -> None:
    pair.send(1, target="mid/0")
    pair.send(2, target="mid/1")
    away = LossyStore(pair.target.store, 0, reply_lost=False)
    delivered = deliver_once(pair.source.store, lambda t: away if t == "mid/0" else pair.target.store)
    assert delivered == Delivered(1, True, {MID: Obstacle.UNREACHABLE})


def test_an_unreachable_home_is_asked_once_in_a_pass(pair: Pair) -> None:
    """Else a pass takes a connect's time for each few of thousands of pairs."""
    targets = [f"far/{n}" for n in range(2 * PAIRS_AT_ONCE)]
    for target in targets:
        pair.send(1, target=target)
    away = Away(pair.target.store, -1, reply_lost=False)
    delivered = deliver_once(pair.source.store, lambda _: away)
    assert delivered.obstacles == {("src/0", target): Obstacle.UNREACHABLE for target in targets}
    assert away.calls == 1


def test_all_pairs_of_targets_come_page_by_page(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "PAIRS_A_LOOK", 2)
    monkeypatch.setattr(sender, "TARGETS_A_LOOK", 3)
    targets = [f"far/{n}" for n in range(5)]
    for target in targets:
        for producer in ("src/0", "src/1"):
            pair.send(1, producer=producer, target=target)
    pages = list(sender.waiting_pairs(pair.source.store, targets))
    assert max(map(len, pages)) == 2
    assert sorted(p for page in pages for p in page) == pair.source.outgoing()
    alone = list(sender.waiting_pairs(pair.source.store, targets[:1]))
    assert sorted(p for page in alone for p in page) == [("src/0", "far/0"), ("src/1", "far/0")]


@pytest.mark.parametrize("reply_lost", [False, True], ids=["call lost", "reply lost"])
@pytest.mark.parametrize("fails_at", range(6))
@pytest.mark.parametrize("side", ["source", "target"])
def test_whatever_call_is_lost_entries_arrive_once_and_in_order(
    pair: Pair, side: str, fails_at: int, reply_lost: bool
) -> None:
    pair.send(1, 2, target="mid/0")
    pair.send(3, target="mid/1")
    pair.send(4, target="mid/0")
    lossy = LossyStore(
        pair.source.store if side == "source" else pair.target.store, fails_at, reply_lost=reply_lost
    )
    source = lossy if side == "source" else pair.source.store
    target = lossy if side == "target" else pair.target.store
    passes = 0
    while pair.source.outgoing():
        try:
            deliver_once(source, lambda _: target)
        except StoreUnreachable:
            assert side == "source"
        passes += 1
        assert passes < 5
    assert pair.received("mid/0") == [b"1", b"2", b"4"]
    assert pair.target.measure("mid/1").arrived_rows == 1


def test_two_senders_at_once_deliver_each_entry_once(pair: Pair) -> None:
    """Between the second sender's read and its append, the first one does a whole pass."""
    pair.send(1, 2)

    class Overtaken(LossyStore):
        def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
            if any(isinstance(call, Append) for call in calls):
                pair.deliver()
                pair.send(3)
            return super().pipeline(calls)

    late = Overtaken(pair.target.store, -1, reply_lost=False)
    deliver_once(pair.source.store, lambda _: late)
    while pair.deliver().more:
        pass
    assert pair.received() == [b"1", b"2", b"3"]
