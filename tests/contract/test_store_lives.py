"""Store contract: a shard whose state was lost lives once more, and nothing of before is believed."""

from __future__ import annotations

import pytest

from backends.store_backends import Backend
from penstock.store.lives import LIFE
from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Answer,
    Create,
    NodeStore,
    ReadFacts,
    ShardStatus,
    TakeFacts,
    Watermark,
    WatermarkFact,
)
from scenes.delivery_pass import deliver_once
from scenes.move_scene import MoveScene
from scenes.moved_shards import X, departed, fill, finish
from scenes.store_scenario import Scene, out, payloads


class Survivor:
    """Store s1, where "mid/0" and "src/0" work; what they say to shards of store s2 is delivered to it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.here = Scene(backend.open_store("n1")).set_up("src/0", "mid/0")
        self.there = Scene(backend.open_store("n2"))
        self._open_other(self.there)

    def _open_other(self, scene: Scene) -> None:
        scene.open("s2")
        for operator in ("src", "mid", "end"):
            scene.publish(operator)
        scene.enroll("w1")

    def lose_other(self) -> None:
        """Store s2 is gone for good; another one, with nothing in it, is there."""
        self.there = Scene(self.backend.open_store("n3"))
        self._open_other(self.there)

    def deliver(self, source: Scene, target: Scene) -> None:
        def home_of(_: str) -> NodeStore | None:
            return target.store

        delivered = deliver_once(source.store, home_of)
        assert not delivered.obstacles


@pytest.fixture
def survivor(backend: Backend) -> Survivor:
    return Survivor(backend)


def received(scene: Scene, target: str) -> list[bytes]:
    """What is in the inbox, which is worked off."""
    entries = scene.fetch_one(target)
    scene.commit(target, entries=entries)
    return payloads(entries)


def test_a_shard_that_lives_once_more_has_epochs_above_all_of_before(scene: Scene) -> None:
    scene.set_up()
    assert scene.store.call(Create("mid/0", life=2)) is Answer.OK
    assert scene.claim("mid/0").epoch == 2 * LIFE + 1
    assert scene.store.call(Create("mid/0", life=2)) is Answer.EXISTS
    assert scene.store.call(Create("mid/0", life=3)) is Answer.EXISTS, "it works here: nothing was lost"


def test_what_a_producer_puts_out_in_its_next_life_is_no_repetition(survivor: Survivor) -> None:
    there, here = survivor.there, survivor.here
    there.create("src/1")
    there.claim("src/1")
    for payload in (b"1", b"2", b"3"):
        there.commit("src/1", out("mid/0", payload), again=True)
    survivor.deliver(there, here)
    assert received(here, "mid/0") == [b"1", b"2", b"3"]
    survivor.lose_other()
    again = survivor.there
    assert again.store.call(Create("src/1", source=True, life=1)) is Answer.OK
    again.claim("src/1")
    again.commit("src/1", out("mid/0", b"anew"), again=True)
    assert again.outbox("src/1", "mid/0") == [(LIFE + 1, b"anew")]
    survivor.deliver(again, here)
    assert received(here, "mid/0") == [b"anew"]
    again.commit("src/1", out("mid/0", b"more"), again=True)
    survivor.deliver(again, here)
    assert received(here, "mid/0") == [b"more"]
    late = here.append("mid/0", 4, b"of before", producer="src/1")
    assert late is Answer.DUP, "the store that was taken for lost sends on"


def test_a_target_in_its_next_life_goes_on_from_the_oldest_that_producers_still_have(
    survivor: Survivor,
) -> None:
    here, there = survivor.here, survivor.there
    there.create("end/0")
    there.claim("end/0")
    here.commit("src/0", out("end/0", b"1"), again=True)
    survivor.deliver(here, there)
    here.commit("src/0", out("end/0", b"2"), out("end/0", b"3"), again=True)
    survivor.lose_other()
    again = survivor.there
    assert again.store.call(Create("end/0", life=1)) is Answer.OK
    again.claim("end/0")
    assert again.append("end/0", 3, b"3", producer="src/0") is Answer.GAP, "2 waits before it"
    survivor.deliver(here, again)
    assert received(again, "end/0") == [b"2", b"3"]
    here.commit("src/0", out("end/0", b"4"), again=True)
    survivor.deliver(here, again)
    assert received(again, "end/0") == [b"4"]


def test_pairs_within_one_store_go_on_whichever_of_the_two_lives_once_more(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    scene.append("mid/0", 1, b"of before", producer="src/1")
    scene.commit("src/0", out("end/0", b"went elsewhere"), again=True)
    scene.acknowledge("src/0", "end/0", 1)
    assert received(scene, "mid/0") == [b"of before"]
    for shard, source in (("src/1", True), ("end/0", False)):
        assert scene.store.call(Create(shard, source=source, life=1)) is Answer.OK
        scene.claim(shard)
    scene.commit("src/1", out("mid/0", b"anew"), again=True)
    assert received(scene, "mid/0") == [b"anew"]
    scene.commit("src/0", out("end/0", b"2"), again=True)
    assert received(scene, "end/0") == [b"2"]


def test_what_waits_for_a_target_is_taken_when_it_lives_once_more_beside_it(scene: Scene) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("mid/0", b"1"), again=True)
    scene.acknowledge("src/0", "mid/0", 1)
    scene.commit("src/0", out("mid/0", b"2"), out("mid/0", b"3"), again=True)
    assert scene.store.call(Create("mid/0", life=1)) is Answer.OK
    assert scene.outgoing() == []
    scene.claim("mid/0")
    assert received(scene, "mid/0") == [b"2", b"3"]


def test_sinks_are_numbered_on_in_a_next_life(scene: Scene) -> None:
    scene.set_up()
    assert scene.store.call(Create("mid/0", life=1)) is Answer.OK
    scene.claim("mid/0")
    scene.commit("mid/0", out("file", b"row", external=True))
    assert scene.outbox("mid/0", "file") == [(LIFE + 1, b"row")]
    cursor = scene.claim("mid/0").external["file"]
    assert (cursor.issued, cursor.acknowledged) == (LIFE + 1, LIFE)
    scene.acknowledge("mid/0", "file", LIFE + 1, b"at 4")
    cursor = scene.claim("mid/0").external["file"]
    assert (cursor.issued, cursor.acknowledged, cursor.position) == (LIFE + 1, LIFE + 1, b"at 4")


@pytest.mark.parametrize("life", [0, 1, 2])
def test_an_owner_numbers_what_it_has_for_a_new_sink_as_the_store_does(scene: Scene, life: int) -> None:
    scene.set_up()
    assert scene.store.call(Create("mid/0", life=life)) is Answer.OK
    owned = OwnedShard("mid/0", scene.claim("mid/0"))
    known = owned.cursor("file")
    commit = owned.commit(1, outputs=(out("file", b"row", external=True),))
    placed = owned.settle(commit, scene.store.call(commit))
    assert [(number, payload) for _, number, payload in placed] == scene.outbox("mid/0", "file")
    assert placed == [("file", known.issued + 1, b"row")]
    scene.store.call(owned.written("file", placed[-1][1], b"at 4"))
    assert scene.outbox("mid/0", "file") == []
    assert scene.claim("mid/0").external["file"] == owned.cursor("file")


def test_what_is_told_of_a_watermark_in_a_next_life_is_news_everywhere(scene: Scene) -> None:
    scene.set_up()
    scene.store.call(TakeFacts("src", (WatermarkFact("src/0", 700 << 32, Watermark(9_000)),)))
    assert scene.store.call(Create("src/0", source=True, life=1)) is Answer.OK
    scene.claim("src/0")
    scene.commit("src/0", watermark=Watermark(1_000), again=True)
    (fact,) = scene.store.call(ReadFacts("src"))
    assert fact.watermark == Watermark(1_000)


def test_a_tombstone_gives_way_to_a_next_life(moving: MoveScene) -> None:
    finish(moving, departed(moving))
    assert moving.status(X) == ["moved", "active"]
    assert moving.a.store.call(Create(X)) is Answer.EXISTS, "it is elsewhere"
    assert moving.a.store.call(Create(X, life=1)) is Answer.OK
    counters = moving.a.measure(X)
    assert (counters.status, counters.epoch, counters.completed_rows) == (ShardStatus.ACTIVE, LIFE, 0)


def test_what_had_only_departed_and_what_was_only_half_copied_give_way_too(moving: MoveScene) -> None:
    departed(moving)
    for side in (moving.a, moving.b):
        answers = [side.store.call(Create(X, life=1)) for _ in range(50)]
        assert answers[-1] is Answer.EXISTS
        assert Answer.OK in answers
        assert set(answers[: answers.index(Answer.OK)]) <= {Answer.BUSY}
        assert side.measure(X).epoch == LIFE
    assert moving.status(X) == ["active", "active"]


def test_what_is_stopped_here_for_a_move_was_not_lost(moving: MoveScene) -> None:
    fill(moving)
    moving.freeze(X)
    assert moving.a.store.call(Create(X, life=1)) is Answer.EXISTS
