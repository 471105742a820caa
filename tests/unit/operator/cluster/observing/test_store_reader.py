from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from clocks.running import run
from penstock.metrics.rows import (
    HELD_ROW_NAME,
    HeldRow,
    PartitionsRow,
    ShardRow,
    WorkerRow,
    pack,
    partitions_row_name,
    shard_row_name,
    worker_row_name,
)
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Create,
    NodeStore,
    OpenStore,
    PutMetrics,
    ShardCounters,
    ShardStatus,
    StoreUnreachable,
    UnreadableState,
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from scenes.store_scenario import SMALL

STORES = {"n1": "n1", "n2": "n2"}


class Scene:
    """Two stores; what `faults` names does not answer, what `hanging` names waits for `let_go`: a store, or a
    topology at it. Of what `unreadable` names a store has what is none."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.now_s = 0.0
        self.nodes = {name: MemoryNode() for name in ("n1", "n2")}
        for name, node in self.nodes.items():
            MemoryStore(node, "t1", SMALL).call(OpenStore(name))
        self.faults: set[str] = set()
        self.hanging: set[str] = set()
        self.unreadable: set[str] = set()
        self.let_go = threading.Event()
        self.looks = 0
        self.reader = StoreReader(self._open, threads, lambda: self.now_s, lambda: 77, wait_s=20)

    def store(self, node: str) -> NodeStore:
        return MemoryStore(self.nodes[node], "t1", SMALL)

    def _open(self, address: str, topology_uid: str) -> NodeStore:
        scene = self

        class Line(MemoryStore):
            def pipeline(self, calls: Sequence[Any]) -> list[Any]:
                scene.looks += 1
                here = {address, f"{topology_uid} at {address}"}
                if here & scene.hanging:
                    scene.let_go.wait(20)
                if here & scene.faults:
                    raise StoreUnreachable("it is away")
                if here & scene.unreadable:
                    raise UnreadableState("its workers wrote over it")
                return super().pipeline(calls)

        return Line(self.nodes[address], topology_uid, SMALL)

    async def read(self, uid: str = "t1", **shards: Sequence[str]) -> dict[str, Any]:
        return await self.reader.read(uid, STORES, shards)


def tell(story: Callable[[Scene], Any]) -> None:
    threads = ThreadPoolExecutor(4)
    scene = Scene(threads)
    try:
        run(story(scene))
    finally:
        scene.let_go.set()
        threads.shutdown()


def test_a_reading_has_rows_counters_and_partitions() -> None:
    async def story(scene: Scene) -> None:
        store = scene.store("n1")
        store.call(Create("numbers/0", source=True))
        row = WorkerRow("w0", "u-1", 0, 1, "ready", "", 70, {"numbers-w0": 1})
        known = PartitionsRow("numbers", "w0", "u-1", 1, 70, ("numbers/0", "numbers/1"))
        old = PartitionsRow("lines", "w0", "u-1", 0, 70, ("lines/a",))
        none = PartitionsRow("orders", "w0", "u-1", 1, 70, (), "no broker answers")
        held = HeldRow("n1", 1, 70, 4096, 2)
        rows = {
            HELD_ROW_NAME: pack(held),
            worker_row_name("w0"): pack(row),
            partitions_row_name("numbers"): pack(known),
            partitions_row_name("lines"): pack(old),
            partitions_row_name("orders"): pack(none),
            "shard:numbers/0": b"not looked at",
            "novelty:x": b"of a later version",
        }
        store.call(PutMetrics(tuple(rows.items())))
        readings = await scene.read(n1=("numbers/0", "numbers/1"))
        reading = readings["n1"]
        assert (reading.generation, reading.now_us, reading.workers) == (1, 77, {"w0": row})
        assert reading.partitions == {"numbers": ("numbers/0", "numbers/1")}
        assert reading.partition_faults == {"orders": "no broker answers"}
        assert reading.held == held
        assert readings["n2"].held is None
        assert isinstance(reading.shards["numbers/0"], ShardCounters)
        assert reading.shards["numbers/1"] is None
        assert readings["n2"].workers == {}

    tell(story)


@pytest.mark.parametrize(
    "status", [ShardStatus.INSTALLING, ShardStatus.FROZEN, ShardStatus.DEPARTED, ShardStatus.MOVED]
)
def test_what_waits_for_a_shard_that_is_not_at_its_home_is_not_known_and_not_nothing(
    status: ShardStatus,
) -> None:
    async def story(scene: Scene) -> None:
        scene.store("n1").call(Create("count/0"))
        scene.store("n1").call(Create("count/1"))
        shards = scene.nodes["n1"].topology("t1").shards
        shards["count/0"].status, shards["count/1"].status = status, ShardStatus.COPYING
        reading = (await scene.read(n1=("count/0", "count/1")))["n1"]
        assert reading.shards["count/0"] is None
        assert isinstance(reading.shards["count/1"], ShardCounters)

    tell(story)


class AtOnce(Executor):
    """Work is done as soon as it is given; who asked hears of it when their loop comes to it."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given, **named))
        return done


def test_an_answer_that_is_there_is_taken_however_late_the_loop_comes_to_it() -> None:
    async def story(scene: Scene) -> None:
        scene.reader.threads, scene.reader.wait_s = AtOnce(), 0.0
        readings = await scene.read()
        assert None not in readings.values()
        assert None not in (await scene.read()).values()  # and nobody was found to be away

    tell(story)


def test_a_store_that_is_away_has_no_reading_and_is_left_alone_for_a_while() -> None:
    async def story(scene: Scene) -> None:
        scene.faults = {"n2"}
        readings = await scene.read()
        assert readings["n1"] is not None
        assert readings["n2"] is None
        looks = scene.looks
        await scene.read()
        assert scene.looks == looks + 1  # n1 alone
        scene.now_s += 5
        scene.faults = set()
        assert (await scene.read())["n2"] is not None

    tell(story)


def test_a_store_that_hangs_is_waited_for_a_moment_and_asked_by_one_thread_only() -> None:
    async def story(scene: Scene) -> None:
        scene.hanging = {"n2"}
        scene.reader.wait_s = 1.0
        readings = await scene.read()
        assert readings["n1"] is not None
        assert readings["n2"] is None
        looks = scene.looks
        scene.let_go.set()
        scene.hanging = set()
        scene.reader.wait_s = 20
        scene.now_s += 5
        assert (await scene.read())["n2"] is not None
        assert scene.looks <= looks + 2

    tell(story)


def test_lines_that_nobody_needs_are_closed() -> None:
    async def story(scene: Scene) -> None:
        await scene.read()
        scene.reader.keep_only({"n1"}, {"t1"})
        assert [address for address, _ in scene.reader._lines] == ["n1"]
        scene.reader.keep_only({"n1"}, set())
        assert scene.reader._lines == {}

    tell(story)


# --- what one topology's workers write


def test_a_topology_that_cannot_be_read_is_told_of_and_left_alone_and_the_others_are_read() -> None:
    async def story(scene: Scene) -> None:
        await scene.read("t1")
        scene.unreadable = {"t2 at n2"}
        readings = await scene.read("t2")
        assert readings["n1"] is not None
        assert readings["n2"] is None
        assert scene.reader.unreadable("t2", STORES) == {"n2": "its workers wrote over it"}
        assert scene.reader.unreadable("t1", STORES) == {}
        assert (await scene.read("t1"))["n2"] is not None
        looks = scene.looks
        scene.now_s += 29
        await scene.read("t2")
        assert scene.looks == looks + 1  # n1 alone
        scene.now_s += 1
        scene.unreadable = set()
        assert (await scene.read("t2"))["n2"] is not None
        assert scene.reader.unreadable("t2", STORES) == {}

    tell(story)


def test_one_topology_that_a_store_does_not_answer_says_nothing_about_the_store() -> None:
    async def story(scene: Scene) -> None:
        await scene.read("t1")
        scene.faults = {"t2 at n2"}
        assert (await scene.read("t2"))["n2"] is None
        assert (await scene.read("t1"))["n2"] is not None
        looks = scene.looks
        assert (await scene.read("t2"))["n2"] is None
        assert scene.looks == looks + 1, "it is left alone itself"

    tell(story)


def test_two_that_a_store_does_not_answer_in_a_row_are_enough_to_leave_it_alone() -> None:
    async def story(scene: Scene) -> None:
        for uid in ("t1", "t2", "t3"):
            await scene.read(uid)
        scene.faults = {"n2"}
        for uid in ("t1", "t2"):
            await scene.read(uid)
        looks = scene.looks
        assert (await scene.read("t3"))["n2"] is None
        assert scene.looks == looks + 1  # n1 alone

    tell(story)


def test_those_that_were_not_answered_lately_are_no_witnesses_while_there_are_others() -> None:
    async def story(scene: Scene) -> None:
        for uid in ("t1", "t2", "t3", "t4"):
            await scene.read(uid)
        scene.faults = {"t2 at n2", "t3 at n2"}
        unread = 0
        for _ in range(20):
            for uid in ("t2", "t3"):
                assert (await scene.read(uid))["n2"] is None
            unread += sum([(await scene.read(uid))["n2"] is None for uid in ("t1", "t4")])
            scene.now_s += 5
        assert unread <= 2, "the first time alone"
        scene.faults = {"n2"}
        for uid in ("t1", "t2", "t3", "t4"):
            await scene.read(uid)
        for _ in range(2):
            looks = scene.looks
            await scene.read("t4")
            assert scene.looks == looks + 1, "a store that is away is left alone, also when all know it"
            scene.now_s += 6
            for uid in ("t1", "t2"):
                await scene.read(uid)

    tell(story)


def test_topologies_that_hang_take_no_more_than_one_others_place_at_a_store_for_long() -> None:
    async def story(scene: Scene) -> None:
        for uid in ("t1", "t2", "t3", "t4"):
            await scene.read(uid)
        scene.hanging = {"t2 at n2", "t3 at n2"}
        scene.reader.wait_s = 0.1
        for uid in ("t2", "t3"):
            await scene.read(uid)
        scene.let_go.set()
        scene.reader.wait_s = 20
        for uid in ("t2", "t3"):
            scene.now_s += 6
            await scene.read(uid)  # what hung has an end
        scene.let_go.clear()
        scene.reader.wait_s = 0.1
        for uid in ("t2", "t3"):
            await scene.read(uid)
        scene.reader.wait_s = 5
        assert (await scene.read("t1"))["n2"] is not None

    tell(story)


def test_rows_of_more_than_anybody_unpacks_are_not_read() -> None:
    async def story(scene: Scene) -> None:
        row = WorkerRow("w0", "u-1", 0, 1, "failed", "x" * (4 << 20), 70, {})
        scene.store("n1").call(PutMetrics(((worker_row_name("w0"), pack(row)),)))
        assert (await scene.read())["n1"] is None
        assert "at most" in scene.reader.unreadable("t1", STORES)["n1"]

    tell(story)


def test_a_row_of_a_shard_that_is_none_is_left_out() -> None:
    async def story(scene: Scene) -> None:
        scene.reader.with_shard_rows = True
        good = ShardRow(1, 1, 70, 5, 5, 5)
        rows = ((shard_row_name("mid/0"), b"\xc1"), (shard_row_name("mid/1"), pack(good)))
        scene.store("n1").call(PutMetrics(rows))
        reading = (await scene.read(n1=("mid/0", "mid/1")))["n1"]
        assert reading.shard_rows == {"mid/1": good}

    tell(story)
