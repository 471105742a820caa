"""What a turn of the agent asks its store, in how few round trips, on the store's twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.store.memory_node import MemoryNode
from penstock.store.memory_store import MemoryStore
from penstock.store.mover import MoveKind
from penstock.store.port import Bounds, Create, OpenStore, Request
from penstock_operator.agent.schedule_feed import ScheduleCache
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import DueMove, StoreSide, Turn
from schedule_objects import UID, item
from task_scene import Between

OPENED = OpenedStore("run", 1)


class Asked(Between):
    """Keeps the calls of each round trip, by name."""

    def __init__(self, store: MemoryStore, sent: list[list[str]]) -> None:
        super().__init__(store)
        self._sent = sent

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self._sent.append([type(call).__name__ for call in calls])
        return super().pipeline(calls)


class Side:
    """The side of store "a", of which the schedules say that it holds mid/0."""

    def __init__(self) -> None:
        self.node = MemoryNode()
        self.store = MemoryStore(self.node, UID, Bounds())
        self.store.call(OpenStore("a"))
        self.store.call(Create("mid/0"))
        self.sent: list[list[str]] = []
        self.cache = ScheduleCache()
        self._side = StoreSide(
            "a", "a", lambda _, uid: Asked(MemoryStore(self.node, uid, Bounds()), self.sent)
        )

    def turn(self, *items: dict[str, Any]) -> Turn:
        self.sent.clear()
        for one in items:
            self.cache.changed(one)
        return self._side.turn(self.cache.snapshot(), OPENED, 0.0)


@pytest.fixture
def side() -> Side:
    side = Side()
    side.cache.listed([item(1)])
    side.turn()
    return side


def test_what_has_to_move_is_known_in_the_round_trip_that_publishes(side: Side) -> None:
    turn = side.turn(item(2, homes={"0": "b", "1": "b"}))
    assert turn.moves == (DueMove(UID, "mid/0", MoveKind.MOVE, "b", 2),)
    assert side.sent == [["Publish", "Measure"]]


def test_who_is_gone_is_looked_for_in_the_turn_after(side: Side) -> None:
    side.turn(item(2))
    assert ["Topologies"] not in side.sent
    assert not side.turn().must_list
    assert ["Topologies"] in side.sent
    assert side.turn().retracted == ()
    side.cache.listed([])
    assert side.turn().must_list
    side.cache.listed([])
    assert side.turn().retracted == (UID,)


def test_records_of_a_topology_with_many_shards_are_asked_for_in_parts(side: Side) -> None:
    turn = side.turn(item(2, homes={str(number): "b" for number in range(600)}))
    assert [move.shard for move in turn.moves] == ["mid/0"]
    assert side.sent[0] == ["Publish"]
    assert side.sent.count(["Measure"]) == 2
