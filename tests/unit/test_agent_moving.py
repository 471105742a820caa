"""The agent's driver of moves, on stores in memory: whom it tells, and when it lets a shard go."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from move_scene import MoveScene
from penstock.store.move_progress import MoveObstacle, MoveStep
from penstock.store.mover import MoveKind
from penstock.store.moves import Install, Thaw
from penstock.store.port import NodeStore, ShardStatus, StateWrite, StoreUnreachable
from penstock_operator.agent.moving import LET_GO_S, PRECOPY_SHARE, MoveDriver
from penstock_operator.agent.store_side import DueMove
from store_backends import MemoryBackend, StoreMeanwhile

X = "mid/0"
KEY = ("t1", X)
WAIT_S = 20.0


class Scene:
    """A driver whose clock goes on by a second at each look; `away`: the target takes no chunk."""

    def __init__(self) -> None:
        self.moving = MoveScene(MemoryBackend())
        self.moving.send_home(X, "s2")
        self.away = False
        self.tried = 0
        self.tried_when_let_go: Queue[int] = Queue()
        self.arrived: Queue[tuple[str, str, str]] = Queue()
        self.finished = threading.Event()
        self.rests: list[tuple[float, ShardStatus]] = []
        """(seconds, the shard's status at home then), each time that the driver let others work."""
        self.driver = MoveDriver(
            "s1",
            self._open,
            lambda *told: self.arrived.put(told),
            self.finished.set,
            itertools.count().__next__,
            lambda seconds: self.rests.append((seconds, self.moving.a.measure(X).status)),
        )

    def hold(self, keys: int) -> None:
        """Give the shard state, before anything moves."""
        for number in range(keys):
            self.moving.a.commit(X, state=[StateWrite(b"", b"k%d" % number, b"v")])

    def _open(self, store_id: str, _: str) -> NodeStore:
        store = self.moving.at[store_id].store
        if store_id == "s2":
            return StoreMeanwhile(store, Install, self._try)
        return StoreMeanwhile(store, Thaw, lambda: self.tried_when_let_go.put(self.tried))

    def _try(self) -> None:
        self.tried += 1
        if self.away:
            raise StoreUnreachable("gone")

    def begin(self) -> None:
        self.driver.start()
        self.driver.want([DueMove(*KEY, MoveKind.MOVE, "s2", self.moving.version)])


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.driver.stop()
    scene.driver.join(WAIT_S)


def test_who_delivers_hears_of_a_shard_that_has_arrived_and_then_of_the_moves_end(scene: Scene) -> None:
    scene.begin()
    assert scene.arrived.get(timeout=WAIT_S) == (*KEY, "s2")
    assert scene.finished.wait(WAIT_S)
    assert scene.moving.status(X) == ["moved", "active"]
    assert scene.driver.count.finished == 1
    assert scene.driver.progress()[KEY].step is MoveStep.DONE


def test_a_shard_whose_move_is_stuck_is_let_go_and_moves_when_it_can(scene: Scene) -> None:
    scene.away = True
    scene.begin()
    assert 1 < scene.tried_when_let_go.get(timeout=WAIT_S) <= LET_GO_S + 1, "not at once, and not for ever"
    progress = scene.driver.progress()[KEY]
    assert progress.obstacle is MoveObstacle.TARGET_UNREACHABLE
    assert progress.target == "s2"
    assert not scene.finished.is_set()
    scene.away = False
    assert scene.finished.wait(WAIT_S)
    assert scene.moving.b.measure(X).status is ShardStatus.ACTIVE


def test_a_copy_ahead_leaves_most_of_the_time_to_others_and_a_shard_that_stands_still_waits_for_none(
    scene: Scene,
) -> None:
    scene.hold(60)
    scene.begin()
    assert scene.finished.wait(WAIT_S)
    worked_s = 1.0
    assert scene.rests == [(worked_s / PRECOPY_SHARE - worked_s, ShardStatus.COPYING)] * len(scene.rests)
    assert len(scene.rests) > 5


def test_what_is_not_wanted_any_more_is_forgotten(scene: Scene) -> None:
    scene.away = True
    scene.begin()
    scene.tried_when_let_go.get(timeout=WAIT_S)
    scene.driver.want([])
    assert scene.driver.progress() == {}
