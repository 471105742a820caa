"""A worker with its executors on one node in memory, for tests of single tasks, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Answer,
    Bounds,
    Create,
    Enroll,
    Measure,
    OpenStore,
    Owner,
    Publish,
    Request,
    SetTasks,
)
from penstock_worker.spark.task_entry import Readers, assemble, open_reader
from penstock_worker.task.launch import Poison, TaskLaunch
from penstock_worker.task.loop import TaskLoop
from penstock_worker.user_code.recent_output import RecentOutput

FILES = "{files: {path: out/, format: jsonl}}"
MANIFEST = f"""
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: counting}}
spec:
  code: {{module: loop_code}}
  operators:
  - name: lines
    source: {{files: {{glob: "*.txt", format: text}}}}
  - name: words
    inputs: [lines]
    map: "loop_code:split"
    outputSchema: "word string"
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: "loop_code:Count"
    outputSchema: "word string, total long"
    shards: 2
  - name: totals
    inputs: [count]
    sink: {FILES}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor


def split(line):
    return line.value.split()


class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timers):
        before = self.total.get()
        total = (before[0] if before else 0) + len(list(rows))
        if key[0] == "poison":
            raise ValueError("this word is poison")
        self.total.update((total,))
        yield (key[0], total)

    def close(self):
        pass
"""
INCARNATION = "u1/5/1"


class TurnedClock:
    """Time stands still but for `sleep_us`, and goes on a little with each look."""

    def __init__(self) -> None:
        self.time_us = 1_000_000_000

    def now_us(self) -> int:
        self.time_us += 10
        return self.time_us

    anchor = None

    def share(self, store: object) -> None:
        """There is no other process."""

    def monotonic_us(self) -> int:
        return self.now_us()

    def wall_us(self) -> int:
        return self.now_us()

    def sleep_us(self, microseconds: int) -> None:
        self.time_us += microseconds


class Between:
    """Stands between a task and the twin; what it meddles with is its subclasses' affair."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def call(self, call: Request[Any]) -> Any:
        return self._store.call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        self._store.close()


class Scene:
    """One worker with the executors lines-w1 and count-w1, on one node in memory."""

    def __init__(
        self,
        folder: Path,
        shards: int = 2,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        sink: str = FILES,
    ) -> None:
        self.folder = folder
        self.bounds = bounds
        self.count_shards = tuple(f"count/{part}" for part in range(shards))
        (folder / "topology.yaml").write_text(
            MANIFEST.replace("shards: 2", f"shards: {shards}").replace(FILES, sink)
        )
        (folder / "loop_code.py").write_text(CODE)
        self.plan = compile_topology(load_topology(folder / "topology.yaml"))
        self.clock = TurnedClock()
        self.node = MemoryNode()
        self.store = MemoryStore(self.node, "t", bounds)
        self.store.call(OpenStore("n1"))

    def publish(self, source_shards: Sequence[str]) -> None:
        workers = (("w1", "n1", "localhost", "u1"),)
        for operator, shards in (("lines", source_shards), ("count", self.count_shards)):
            executor = f"{operator}-w1"
            self.store.call(
                Publish(
                    operator,
                    1,
                    0,
                    workers,
                    ((executor, "w1", 1),),
                    tuple((s, executor, "n1") for s in shards),
                )
            )
            for shard in shards:
                self.store.call(Create(shard, source=operator == "lines"))
        assert self.store.call(Enroll("w1", "u1", 5, 1)) is Answer.OK

    def publish_more(self, shard: str, version: int = 2) -> None:
        """A further file for the source, in a newer schedule."""
        workers = (("w1", "n1", "localhost", "u1"),)
        shards = (("lines/a.txt", "lines-w1", "n1"), (shard, "lines-w1", "n1"))
        self.store.call(Publish("lines", version, 0, workers, (("lines-w1", "w1", 1),), shards))
        self.store.call(Create(shard, source=True))

    def task(
        self,
        operator: str,
        shards: Sequence[str],
        ready: str = "",
        store: Any = None,
        waiter: Any = None,
        *,
        prints: bool = False,
        written: RecentOutput | None = None,
        poison: Sequence[Poison] = (),
        readers: Readers = open_reader,
    ) -> TaskLoop:
        ready = ready or f"{operator}.ready"
        mapping = tuple((shard, ready) for shard in shards)
        assert self.store.call(SetTasks("w1", INCARNATION, f"{operator}-w1", mapping)) is Answer.OK
        launch = TaskLaunch(
            "t", "memory", "w1", Owner(f"{operator}-w1", INCARNATION, ready), 0, self.plan.stage(operator),
            str(self.folder), False, self.bounds, prints=prints, poison=tuple(poison),
        )  # fmt: skip
        return assemble(
            launch, store or self.store, waiter or self.store, self.clock, written=written, readers=readers
        )

    def turns(self, task: TaskLoop, count: int = 12) -> None:
        for _ in range(count):
            if not task.retired:
                task.turn()

    def out(self) -> list[str]:
        return sorted(
            line for path in (self.folder / "out").glob("*.jsonl") for line in path.read_text().splitlines()
        )

    def waiting(self) -> int:
        counters = self.store.call(Measure(("count/0", "count/1")))
        return sum(c.inbox_entries for c in counters if c is not None)
