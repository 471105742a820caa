"""A store at its memory limit: it says so, takes nothing new, and drains, whatever waits for whom."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from backends.store_backends import Backend
from penstock.store.port import (
    Answer,
    Append,
    DropTable,
    Fetch,
    Fetched,
    Moved,
    NodeStore,
    PairNames,
    PutPairs,
    PutTable,
    ReadTable,
    StoreFull,
    StoreUnreachable,
    TableVersions,
    Wake,
)
from penstock.store.port.moves import Chunk, Install, Move
from penstock.store.sender import Obstacle
from scenes.delivery_pass import deliver_once
from scenes.store_scenario import NOW_US, Scene, out, payloads


def pressed_fetch(scene: Scene, ready: str, *, shards_max: int = 100) -> Fetched:
    return scene.store.call(Fetch(ready, 10_000, shards_max, pressed=True))


def press(scene: Scene, target: str, number: int, payload: bytes = b"x") -> Answer | Moved:
    return scene.store.call(Append("far/0", target, number, payload, 1, NOW_US, pressed=True))


def test_a_full_store_hands_out_nothing_and_says_so_behind_commits_that_it_takes(
    backend: Backend, scene: Scene
) -> None:
    scene.set_up("src/0", "mid/0")
    scene.fill("mid/0", 1)
    commit = scene.next_commit("src/0", out("mid/1"), again=True)
    backend.set_full()
    answers = scene.store.pipeline([commit, Fetch("mid@w1", 100, 10)])
    assert answers == [Answer.OK, Fetched((), control=False, full=True)]
    backend.set_full(full=False)
    assert scene.fetch_names("mid@w1") == ["mid/0"]


def test_a_full_store_hands_out_what_waits_to_whom_asks_all_the_same(backend: Backend, scene: Scene) -> None:
    scene.set_up("mid/0")
    scene.fill("mid/0", 1, 2)
    backend.set_full()
    fetched = pressed_fetch(scene, "mid@w1")
    assert [one.shard for one in fetched.shards] == ["mid/0"]
    assert not fetched.full
    scene.commit("mid/0", entries=fetched.shards[0].entries, in_hand=True)
    assert scene.measure("mid/0").inbox_entries == 0


def test_under_pressure_a_shard_with_anything_in_its_outbox_is_held_until_that_is_gone(
    backend: Backend, scene: Scene
) -> None:
    scene.set_up("mid/0")
    scene.fill("mid/0", 1)
    scene.commit("mid/0", out("far/0", b"1"), out("far/0", b"2"))
    backend.set_full()
    assert pressed_fetch(scene, "mid@w1").shards == ()
    scene.acknowledge("mid/0", "far/0", 1)
    scene.acknowledge("mid/0", "far/0", 2)
    assert [one.shard for one in pressed_fetch(scene, "mid@w1").shards] == ["mid/0"]


def test_under_pressure_an_inbox_takes_an_entry_only_while_it_is_empty(scene: Scene) -> None:
    scene.set_up("src/0", "mid/0")
    commit = replace(
        scene.next_commit("src/0", out("mid/0", b"1"), out("mid/0", b"2"), again=True), pressed=True
    )
    assert scene.store.call(commit) is Answer.OK
    scene.numbers["src/0"] += 1
    assert scene.measure("mid/0").inbox_entries == 1
    assert [payload for _, payload in scene.outbox("src/0", "mid/0")] == [b"2"]
    (entry,) = scene.fetch_one("mid/0")
    worked = replace(scene.next_commit("mid/0", entries=[entry], in_hand=True), pressed=True)
    assert scene.store.call(worked) is Answer.OK
    assert payloads(scene.fetch_one("mid/0")) == [b"2"]
    assert scene.measure("src/0").outbox_entries == 0


def test_a_shard_held_under_pressure_goes_on_when_its_outbox_is_trimmed_under_usual_bounds(
    backend: Backend, scene: Scene
) -> None:
    scene.set_up("mid/0")
    scene.fill("mid/0", 1)
    scene.commit("mid/0", out("far/0", b"1"), out("far/0", b"2"))
    backend.set_full()
    assert pressed_fetch(scene, "mid@w1").shards == ()
    backend.set_full(full=False)
    scene.acknowledge("mid/0", "far/0", 1)
    assert scene.fetch_names("mid@w1") == ["mid/0"]


def test_a_fetch_of_no_shards_takes_a_control_token_and_leaves_the_shards(scene: Scene) -> None:
    scene.set_up("src/0")
    assert pressed_fetch(scene, "src@w1", shards_max=0) == Fetched((), control=False)
    scene.store.call(Wake("src@w1"))
    assert pressed_fetch(scene, "src@w1", shards_max=0) == Fetched((), control=True)
    assert pressed_fetch(scene, "src@w1", shards_max=0) == Fetched((), control=False)
    assert scene.fetch_names("src@w1") == ["src/0"]


def test_a_full_store_takes_an_entry_of_another_store_into_an_empty_inbox_only_and_when_pressed(
    backend: Backend, scene: Scene
) -> None:
    scene.set_up("mid/0")
    backend.set_full()
    assert scene.append("mid/0", 1) is Answer.FULL
    assert press(scene, "mid/0", 1) is Answer.OK
    assert press(scene, "mid/0", 1) is Answer.DUP
    assert press(scene, "mid/0", 2) is Answer.BUSY
    assert scene.append("mid/0", 2) is Answer.FULL
    (fetched,) = pressed_fetch(scene, "mid@w1").shards
    scene.commit("mid/0", entries=fetched.entries, in_hand=True)
    assert press(scene, "mid/0", 2) is Answer.OK


def test_a_full_store_takes_no_shard_of_another_store(backend: Backend, scene: Scene) -> None:
    scene.set_up("mid/0")
    backend.set_full()
    install = Install("mid/1", Move("s2", "s1", 7, 1), 1, Chunk(b"\x90", b"", is_last=False))
    with pytest.raises(StoreFull, match="memory limit"):
        scene.store.call(install)


def test_a_full_store_takes_neither_tables_nor_counts_and_gives_those_that_it_has(
    backend: Backend, scene: Scene
) -> None:
    scene.set_up("mid/0")
    scene.store.call(PutTable("mid", 1, b"one"))
    backend.set_full()
    for call in (PutTable("mid", 2, b"two"), PutPairs("mid:end:e:0", b"row")):
        with pytest.raises(StoreFull, match="memory limit"):
            scene.store.call(call)
    assert scene.store.call(TableVersions("mid")) == (1,)
    assert scene.store.call(ReadTable("mid", 1)) == b"one"
    assert scene.store.call(DropTable("mid", 1)) is Answer.OK
    assert scene.store.call(PairNames()) == ()


class TwoFullStores:
    """Sources of each have filled their outboxes for the other's shards; then both are at their limits."""

    def __init__(self, backend: Backend) -> None:
        self.scenes = {}
        for node, here, there in (("n1", "mid/0", "mid/1"), ("n2", "mid/1", "mid/0")):
            source = "src/0" if node == "n1" else "src/1"
            scene = self.scenes[node] = Scene(backend.open_store(node)).set_up(source, here)
            for number in range(12):
                scene.commit(source, out(there, b"%s %d" % (node.encode(), number)), again=True)
        for node in self.scenes:
            backend.set_full(node)
        self.received: dict[str, list[bytes]] = {"mid/0": [], "mid/1": []}

    def home_of(self, target: str) -> NodeStore:
        return self.scenes["n1" if target == "mid/0" else "n2"].store

    def round(self) -> set[Obstacle]:
        """A pass of each sender, and each consumer's turn. Answers what stood in the way."""
        obstacles: set[Obstacle] = set()
        for scene in self.scenes.values():
            obstacles |= set(deliver_once(scene.store, self.home_of).obstacles.values())
        for scene in self.scenes.values():
            for fetched in pressed_fetch(scene, "mid@w1").shards:
                self.received[fetched.shard] += payloads(fetched.entries)
                scene.commit(fetched.shard, entries=fetched.entries, in_hand=True)
        return obstacles


def test_two_full_stores_that_wait_for_each_other_drain_to_the_last_entry(backend: Backend) -> None:
    stores = TwoFullStores(backend)
    obstacles = [stores.round() for _ in range(12)]
    assert obstacles[:-1] == [{Obstacle.PRESSED}] * 11
    assert obstacles[-1] == set()
    assert stores.received["mid/1"] == [b"n1 %d" % number for number in range(12)]
    assert stores.received["mid/0"] == [b"n2 %d" % number for number in range(12)]
    assert [scene.outgoing() for scene in stores.scenes.values()] == [[], []]


def test_an_entry_whose_pressed_try_was_lost_arrives_once(backend: Backend) -> None:
    class LosesPressed:
        """A store whose replies to pressed entries are lost once."""

        def __init__(self, store: NodeStore) -> None:
            self._store = store
            self.lost = 0

        def pipeline(self, calls: list[Append]) -> list[object]:
            answers = self._store.pipeline(calls)
            if calls[0].pressed and not self.lost:
                self.lost = len(calls)
                raise StoreUnreachable("the reply was lost")
            return answers

    source = Scene(backend.open_store("n1")).set_up("src/0")
    target = Scene(backend.open_store("n2")).set_up("mid/0")
    source.commit("src/0", out("mid/0", b"1"), out("mid/0", b"2"), again=True)
    backend.set_full("n2")
    lossy = LosesPressed(target.store)
    home: NodeStore = lossy  # type: ignore[assignment]
    assert deliver_once(source.store, lambda _: home).obstacles == {("src/0", "mid/0"): Obstacle.UNREACHABLE}
    assert deliver_once(source.store, lambda _: home).obstacles == {("src/0", "mid/0"): Obstacle.PRESSED}
    backend.set_full("n2", full=False)
    deliver_once(source.store, lambda _: home)
    assert payloads(target.fetch_one("mid/0")) == [b"1", b"2"]
    assert lossy.lost == 1
