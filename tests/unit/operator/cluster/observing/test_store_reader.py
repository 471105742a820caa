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
    WorkerRow,
    pack,
    partitions_row_name,
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
)
from penstock_operator.cluster.observing.store_reader import StoreReader
from scenes.store_scenario import SMALL


class Scene:
    """Two stores; what `faults` names does not answer, what `hanging` names waits for `let_go`."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.now_s = 0.0
        self.nodes = {name: MemoryNode() for name in ("n1", "n2")}
        for name, node in self.nodes.items():
            MemoryStore(node, "t1", SMALL).call(OpenStore(name))
        self.faults: set[str] = set()
        self.hanging: set[str] = set()
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
                if address in scene.hanging:
                    scene.let_go.wait(20)
                if address in scene.faults:
                    raise StoreUnreachable("it is away")
                return super().pipeline(calls)

        return Line(self.nodes[address], topology_uid, SMALL)

    async def read(self, **shards: Sequence[str]) -> dict[str, Any]:
        return await self.reader.read("t1", {"n1": "n1", "n2": "n2"}, shards)


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
