"""Facts about watermarks come to every other store of their topology, and nobody is asked anything else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock.api.schedule_object import to_spec
from penstock.schedule.record import StorePlace
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Bounds,
    NodeStore,
    OpenStore,
    ReadFacts,
    Request,
    StoreUnreachable,
    TakeFacts,
    ToldOperators,
    UnreadableState,
    Watermark,
    WatermarkFact,
)
from penstock_operator.agent.couriers import LOOK_S, Courier, Couriers
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.schedule_feed import ScheduleCache, Snapshot
from penstock_operator.agent.told_facts import ALL_AGAIN_S
from penstock_simulation.twins.no_thread import NoThread
from penstock_simulation.twins.passing_on import PassingOn
from worlds.schedule_objects import UID, item, schedule

HERE = {UID: ["mid/0"]}


def fact(shard: str, version: int) -> WatermarkFact:
    return WatermarkFact(shard, version, Watermark(10 * version))


class Heard(PassingOn):
    """A connection whose calls are counted; to a store that is away there is none."""

    def __init__(self, store: NodeStore, name: str, uid: str, scene: Scene) -> None:
        super().__init__(store)
        self._name, self._uid, self._scene = name, uid, scene

    def call(self, call: Request[Any]) -> Any:
        if self._name in self._scene.away:
            raise StoreUnreachable
        if isinstance(call, TakeFacts) and self._uid in self._scene.unreadable:
            raise UnreadableState("its workers wrote over it")
        self._scene.calls[self._name, type(call)] += 1
        if isinstance(call, TakeFacts):
            self._scene.carried[self._name] += len(call.facts)
        return super().call(call)


class Scene:
    """Stores a, b and c; the agent is that of a. Time passes in steps of 5 ms."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.nodes = {name: MemoryNode() for name in "abc"}
        for name in self.nodes:
            MemoryStore(self.nodes[name], "", Bounds()).call(OpenStore(name))
        self.away: set[str] = set()
        self.unreadable: set[str] = set()
        """Topologies whose facts no other store can take."""
        self.calls: Counter[tuple[str, type]] = Counter()
        self.carried: Counter[str] = Counter()
        self.peers = Peers("a", "a", lambda address: address[len("store-")], self._connect)
        self.couriers = Couriers("a", self.peers, ThreadFaults(), lambda: self.now_s, NoThread)
        self._next_s: dict[object, float] = {}

    def _connect(self, url: str, uid: str) -> NodeStore:
        return Heard(MemoryStore(self.nodes[url], uid, Bounds()), url, uid, self)

    def store(self, name: str) -> MemoryStore:
        return MemoryStore(self.nodes[name], UID, Bounds())

    def route(self, stores: str = "abc", here: dict[str, list[str]] | None = None) -> None:
        self.peers.learn({name: f"store-{name}:6379" for name in "abc"})
        self.couriers.route(snapshot(stores), HERE if here is None else here)

    def tell(self, *facts: WatermarkFact, at: str = "a") -> None:
        self.store(at).call(TakeFacts("mid", facts))

    def known(self, name: str) -> dict[str, int]:
        return {one.shard: one.version for one in self.store(name).call(ReadFacts("mid"))}

    def run(self, for_s: float) -> None:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self._turn(self.couriers, news=False)
            for courier in self.couriers.all():
                self._turn(courier, news=courier.has_news)
            self.now_s += 0.005

    def _turn(self, part: Any, *, news: bool) -> None:
        if news or self.now_s >= self._next_s.get(part, 0.0):
            wait_s = part.turn()
            self._next_s[part] = float("inf") if wait_s is None else self.now_s + wait_s


def snapshot(stores: str) -> Snapshot:
    told = replace(
        schedule(homes={"0": "a", "1": "a"}),
        stores=tuple(StorePlace(name, name, f"store-{name}:6379") for name in stores),
    )
    cache = ScheduleCache()
    return cache.listed([{**item(), "spec": to_spec(told, "words", UID)}])


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.route()
    return scene


def test_what_was_told_here_comes_to_every_other_store(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1))
    scene.run(0.01)
    assert scene.known("b") == scene.known("c") == {"mid/0": 1}


def test_news_follow_within_some_25_ms(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1))
    scene.run(LOOK_S)
    for version in range(2, 6):
        scene.tell(fact("mid/0", version))
        scene.run(0.03)
        assert scene.known("b") == scene.known("c") == {"mid/0": version}


def test_only_news_travel(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1), fact("mid/1", 1))
    scene.run(1.0)
    assert scene.carried == {"b": 2, "c": 2}


def test_what_another_store_told_is_left_to_that_one_but_goes_with_everything_now_and_then(
    scene: Scene,
) -> None:
    scene.tell(fact("mid/0", 1))
    scene.run(0.01)
    scene.tell(fact("mid/1", 7))
    scene.run(1.0)
    assert scene.known("c") == {"mid/0": 1}
    scene.run(ALL_AGAIN_S)
    assert scene.known("c") == {"mid/0": 1, "mid/1": 7}


def test_a_shard_that_has_come_here_is_told_from_here(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1))
    scene.run(0.01)
    scene.route(here={UID: ["mid/0", "mid/1"]})
    scene.tell(fact("mid/1", 7))
    scene.run(0.03)
    assert scene.known("c") == {"mid/0": 1, "mid/1": 7}


def test_where_nothing_was_told_one_question_a_second_is_all(scene: Scene) -> None:
    scene.run(10.0)
    assert set(scene.calls) == {("a", ToldOperators)}
    assert scene.calls["a", ToldOperators] <= 11
    assert scene.couriers.all() == []


def test_a_topology_with_one_store_is_asked_nothing(scene: Scene) -> None:
    scene.route("a")
    scene.tell(fact("mid/0", 1))
    scene.run(3.0)
    assert not scene.calls


def test_an_operator_that_begins_to_tell_is_found_within_a_second(scene: Scene) -> None:
    scene.run(0.5)
    scene.tell(fact("mid/0", 1))
    scene.run(LOOK_S)
    assert scene.known("b") == {"mid/0": 1}


def test_a_store_that_is_away_is_told_the_newest_when_it_is_back_and_holds_up_nobody(scene: Scene) -> None:
    scene.away = {"b"}
    for version in range(1, 20):
        scene.tell(fact("mid/0", version))
        scene.run(0.1)
        assert scene.known("c")["mid/0"] >= version
    scene.away = set()
    scene.run(0.6)
    assert scene.known("b") == {"mid/0": 19}
    assert scene.carried["b"] == 1


def test_a_store_that_was_away_and_has_lost_everything_is_told_all_again(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1), fact("mid/1", 1))
    scene.run(0.1)
    scene.away = {"b"}
    scene.tell(fact("mid/0", 2))
    scene.run(0.1)
    scene.nodes["b"].topologies.clear()
    scene.away = set()
    scene.run(0.6)
    assert scene.known("b") == {"mid/0": 2, "mid/1": 1}


def test_a_store_whose_address_nobody_knows_holds_up_nobody(scene: Scene) -> None:
    scene.peers = Peers("a", "a", lambda address: address[len("store-")], scene._connect)
    scene.couriers = Couriers("a", scene.peers, ThreadFaults(), lambda: scene.now_s, NoThread)
    scene.couriers.route(snapshot("abc"), HERE)
    scene.peers.learn({"c": "store-c:6379"})
    scene.tell(fact("mid/0", 1))
    scene.run(0.1)
    assert (scene.known("b"), scene.known("c")) == ({}, {"mid/0": 1})
    scene.peers.learn({"b": "store-b:6379"})
    scene.run(1.0)
    assert scene.known("b") == {"mid/0": 1}


def test_a_store_that_comes_to_the_topology_is_told_all_and_one_that_left_nothing(scene: Scene) -> None:
    scene.route("ab")
    scene.tell(fact("mid/0", 1), fact("mid/1", 1))
    scene.run(0.5)
    assert scene.known("c") == {}
    scene.route("ac")
    scene.tell(fact("mid/0", 2))
    scene.run(0.1)
    assert (scene.known("b"), scene.known("c")) == ({"mid/0": 1, "mid/1": 1}, {"mid/0": 2, "mid/1": 1})
    assert [courier.peer for courier in scene.couriers.all()] == ["c"]


def test_the_own_store_may_be_away_for_a_while(scene: Scene) -> None:
    scene.away = {"a"}
    scene.tell(fact("mid/0", 1))
    scene.run(1.0)
    scene.away = set()
    scene.run(0.6)
    assert scene.known("b") == {"mid/0": 1}


def test_a_topology_that_is_gone_is_left_alone(scene: Scene) -> None:
    scene.tell(fact("mid/0", 1))
    scene.run(0.1)
    scene.couriers.route(ScheduleCache().listed([]), {})
    scene.tell(fact("mid/0", 2))
    scene.run(2 * LOOK_S)
    assert scene.known("b") == {"mid/0": 1}
    assert scene.couriers.all() == []


def test_a_topology_whose_facts_a_store_cannot_take_keeps_no_other_ones_back(scene: Scene) -> None:
    scene.unreadable = {"state-2"}
    courier = Courier("b", scene.peers, lambda: scene.now_s)
    courier.keep(frozenset({"state-2", UID}))
    for uid in ("state-2", UID):
        courier.offer(uid, "mid", [fact("mid/0", 1)], frozenset({"mid/0"}))
    assert courier.turn() is None
    assert scene.known("b") == {"mid/0": 1}
    assert not courier.has_news
