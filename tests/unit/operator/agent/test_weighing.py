from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.metrics.rows import HELD_ROW_NAME, HeldRow, unpack
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, Create, NodeStore, OpenStore, ReadMetrics, UnreadableState, Weigh
from penstock_operator.agent.weighing import SHARDS_PER_STEP, Weighing


class Scene:
    """A store with topologies, and what was asked of it."""

    def __init__(self, **shards: int) -> None:
        self.node = MemoryNode()
        self.here: dict[str, list[str]] = {}
        self.weighed: list[tuple[str, int]] = []
        self.now_s = 0.0
        self.unreadable: set[str] = set()
        self.store("nobody").call(OpenStore("a"))
        for uid, count in shards.items():
            self.here[uid] = [f"mid/{number}" for number in range(count)]
            for shard in self.here[uid]:
                self.store(uid).call(Create(shard))
        self.weighing = Weighing("a", self.store, lambda: int(self.now_s * 1e6))

    def store(self, uid: str) -> NodeStore:
        scene = self

        class Counted(MemoryStore):
            def call(self, call: Any) -> Any:
                if uid in scene.unreadable:
                    raise UnreadableState("its workers wrote over it")
                if isinstance(call, Weigh):
                    scene.weighed.append((uid, len(call.shards)))
                return super().call(call)

        return Counted(self.node, uid, Bounds())

    def step(self, seconds: float = 1.0) -> int:
        """How many shards were weighed."""
        self.weighed.clear()
        self.now_s += seconds
        here: Mapping[str, Sequence[str]] = self.here
        self.weighing.step(lambda: here, 1, self.now_s)
        return sum(count for _, count in self.weighed)

    def row(self, uid: str) -> HeldRow | None:
        data = self.store(uid).call(ReadMetrics()).get(HELD_ROW_NAME)
        if data is None:
            return None
        row = unpack(HELD_ROW_NAME, data)
        assert isinstance(row, HeldRow)
        return row

    def known(self, uid: str) -> HeldRow:
        row = self.row(uid)
        assert row is not None
        return row


def test_a_small_topology_is_weighed_as_a_whole_at_each_step() -> None:
    scene = Scene(t1=20, t2=3)
    assert scene.step() == 23
    assert (scene.known("t1").shards, scene.known("t2").shards) == (20, 3)
    (one,) = scene.store("t1").call(Weigh(("mid/0",)))
    assert one is not None
    assert scene.known("t1").held_bytes == 20 * one
    assert scene.weighing.held_bytes == {"t1": 20 * one, "t2": 3 * one}


def test_steps_are_not_closer_than_a_second() -> None:
    scene = Scene(t1=20)
    assert [scene.step(0.3) for _ in range(9)] == [20, 0, 0, 0, 20, 0, 0, 0, 20]


def test_a_large_topology_takes_several_steps_and_is_told_when_all_of_it_is_known() -> None:
    scene = Scene(t1=500)
    told = []
    for _ in range(5):
        assert scene.step() <= SHARDS_PER_STEP
        row = scene.row("t1")
        told.append(None if row is None else row.shards)
    assert told == [None, None, 500, 500, 500]


def test_a_large_neighbour_does_not_keep_a_small_one_waiting_for_ever() -> None:
    scene = Scene(large=500, small=3)
    for _ in range(3):
        scene.step()
    assert scene.known("small").shards == 3


def test_a_shard_that_has_left_weighs_nothing_here_any_more() -> None:
    scene = Scene(t1=20)
    scene.step()
    before = scene.known("t1").held_bytes
    scene.here["t1"] = scene.here["t1"][:10]
    scene.step()
    assert scene.known("t1").held_bytes == before // 2
    scene.here["t1"] = []
    scene.step()
    assert (scene.known("t1").held_bytes, scene.known("t1").shards) == (0, 0)


def test_a_topology_without_shards_here_leaves_nothing_in_the_store() -> None:
    scene = Scene(t1=0)
    assert scene.step() == 0
    assert scene.row("t1") is None


def test_a_topology_that_is_gone_is_forgotten() -> None:
    scene = Scene(t1=300, t2=5)
    scene.step()
    del scene.here["t1"]
    scene.step()
    scene.step()
    assert set(scene.weighing.held_bytes) == {"t2"}


def test_a_row_tells_that_the_store_is_at_its_limit() -> None:
    scene = Scene(t=1)
    full_of = [64 << 20]
    scene.weighing = Weighing("a", scene.store, lambda: int(scene.now_s * 1e6), lambda: full_of[0])
    scene.step()
    assert scene.known("t").limit_bytes == 64 << 20
    full_of[0] = 0
    scene.step()
    assert scene.known("t").limit_bytes == 0


def test_a_topology_that_cannot_be_read_keeps_no_other_one_from_being_weighed() -> None:
    scene = Scene(t1=20, t2=3)
    scene.unreadable = {"t1"}
    scene.step()
    assert scene.known("t2").shards == 3
