"""Where a shard is, for whoever asks from outside: at home, and wherever a move takes it meanwhile."""

from __future__ import annotations

import pytest

from penstock.store.dead_letters import DeadLetters, Place
from penstock.store.letters import DROP, LetterId, decode_order
from penstock.store.port import Answer, Measure
from penstock.store.port.moves import Depart, Move
from penstock.store.shard_homes import TRIES, ShardHomes, ShardUnsettled
from scenes.move_scene import MoveScene
from scenes.moved_shards import departed, finish

X = "mid/0"
ALL_AT_S1 = {X: "s1", "mid/1": "s1", "end/0": "s1", "mid/9": "s1"}


class Sleeps:
    """Counts the pauses; in one of them something happens."""

    def __init__(self, moving: MoveScene, move: Move | None = None, at: int = 3) -> None:
        self.pauses = 0
        self._moving = moving
        self._move = move
        self._at = at

    def __call__(self, _: float) -> None:
        self.pauses += 1
        if self._move is not None and self.pauses == self._at:
            self._moving.copy(X, self._move)
            assert self._moving.a.store.call(Depart(X, self._move)) is Answer.OK
            finish(self._moving, self._move)


def homes(moving: MoveScene, sleeps: Sleeps) -> ShardHomes:
    return ShardHomes(ALL_AT_S1, {"s1": moving.a.store, "s2": moving.b.store}, sleeps)


def home_of(moving: MoveScene, found: ShardHomes, shard: str) -> str:
    at = found.find(shard)
    assert at is not None
    return "s1" if at.store is moving.a.store else "s2"


def test_a_shard_is_found_at_home_and_one_that_nobody_knows_is_not(moving: MoveScene) -> None:
    found = homes(moving, Sleeps(moving))
    assert home_of(moving, found, X) == "s1"
    assert found.find("mid/9") is None
    assert found.find("nobody/0") is None
    assert [one.shard for one in found.all()] == [X, "mid/1", "end/0"]
    assert found.of_operator("mid") == [X, "mid/1", "mid/9"]


def test_a_shard_that_has_left_its_home_is_found_where_it_is(moving: MoveScene) -> None:
    finish(moving, departed(moving))
    sleeps = Sleeps(moving)
    found = homes(moving, sleeps)
    assert home_of(moving, found, X) == "s2"
    assert {one.shard: one.store is moving.b.store for one in found.all()} == {
        X: True,
        "mid/1": False,
        "end/0": False,
    }
    assert sleeps.pauses == 0


def test_a_shard_on_its_way_is_waited_for(moving: MoveScene) -> None:
    sleeps = Sleeps(moving, moving.freeze(X))
    assert home_of(moving, homes(moving, sleeps), X) == "s2"
    assert sleeps.pauses == 3


def test_a_shard_that_never_arrives_is_not_waited_for_without_end(moving: MoveScene) -> None:
    departed(moving)
    sleeps = Sleeps(moving)
    with pytest.raises(ShardUnsettled, match="on its way from one store to another"):
        homes(moving, sleeps).find(X)
    assert sleeps.pauses == TRIES


def test_an_order_about_a_letter_reaches_its_shard_while_that_moves(moving: MoveScene) -> None:
    sleeps = Sleeps(moving, moving.freeze(X))
    DeadLetters(homes(moving, sleeps), sleeps).order(DROP, Place("mid", X, LetterId(7, 0)))
    (counters,) = moving.b.store.call(Measure((X,)))
    assert counters is not None
    assert counters.inbox_entries == 1
    (entry,) = moving.b.fetch_one(X, "w2")
    doing, order = decode_order(entry.payload)
    assert (doing, order.operator, order.letter) == (DROP, "mid", LetterId(7, 0))
