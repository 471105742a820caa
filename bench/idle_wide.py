"""`make bench-idle-wide`: what many tasks cost that have nothing to do: their store, and themselves.

Keyed tasks of a row of operators, each with as many shards as one of 1 000 tasks has of 4 096, stand in this
process (`turned_tasks`) on a redis-server of their own. Time is told: whose wait ends first takes the next
turn, so a minute of a hundred tasks takes seconds, and what they cost is CPU time. A task waits for its list
as ever, and what that costs the store is in it. What main processes cost that have nothing to do is
`bench-idle`, what agents and operator do `bench-operator`.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import machine
from bench.locality.topology import rows_schema
from bench.screen import Screen, scratch, show
from bench.turned_tasks import TurnedClock, TurnedNode
from rich.table import Table

from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import (
    EVENT_TIME,
    NO_TIME,
    PROCESSING_TIME,
    Fanout,
    KeyedEdge,
    Plan,
    Processor,
    Stage,
    Tasks,
)
from penstock.store.port import NodeStore, Request, TakeFacts, WaitReady, Watermark, WatermarkFact
from penstock_worker.spark.task_entry import assemble
from penstock_worker.task.loop import TaskLoop

OPERATORS = 20
TASKS = 100
SHARDS_EACH = 4
"""Of a task: 4 096 of 1 000."""
SETTLE_S, MEASURED_S = 5.0, 20.0
"""Told seconds."""
PORT = 17_464
BEGAN_US = 1_700_000_000_000_000
SOURCE = "source"
KINDS = {"without time": NO_TIME, "processing time": PROCESSING_TIME, "event time": EVENT_TIME}
ROWS = rows_schema(("string", "string"))


@dataclass(frozen=True, slots=True)
class Idle:
    """Of one task: microseconds of CPU a second, and calls a second by name."""

    store_us: float
    task_us: float
    calls: dict[str, float]


class _Line:
    """A task's connection, the store's answers to its waits, and when the last one would have ended."""

    def __init__(self, store: NodeStore, asked: Counter[str], now_us: Callable[[], int]) -> None:
        self._store = store
        self._asked = asked
        self._now_us = now_us
        self.wakes_us = 0

    def call(self, call: Request[Any]) -> Any:
        self._asked[type(call).__name__] += 1
        if not isinstance(call, WaitReady):
            return self._store.call(call)
        has_work = self._store.call(replace(call, timeout_ms=1))
        self.wakes_us = self._now_us() + (0 if has_work else call.timeout_ms * 1000)
        return has_work

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self.post(calls)()

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        self._asked.update(type(call).__name__ for call in calls)
        return self._store.post(calls)

    def close(self) -> None:
        """Others use the connection."""


class _ToldClock(TurnedClock):
    """Durations are told, too: by them tasks know when to ask again."""

    def monotonic_us(self) -> int:
        return self.time_us


def plan(time_mode: str) -> Plan:
    """A source and `OPERATORS` keyed operators in a row."""
    tasks = TASKS // OPERATORS
    shards = tasks * SHARDS_EACH
    names = [f"keyed-{number}" for number in range(OPERATORS)]
    by_event_time = time_mode == EVENT_TIME

    def out(number: int) -> Fanout:
        return Fanout(ROWS, (), (), tuple(KeyedEdge(name, (0,), shards) for name in names[number:][:1]))

    stages = [Stage(SOURCE, ZipfSource(1, 0.0, 0, 0, None, None, 0.0, 1, 0), Tasks(1, 1, 1), out(0))]
    for number, name in enumerate(names):
        before = (names[number - 1] if number else SOURCE,) if by_event_time else ()
        head = Processor(
            "bench.locality.counters:First", ROWS, (0,), shards, time_mode=time_mode, producers=before,
            keyed_producers=before if number else (),
        )  # fmt: skip
        more = by_event_time and number + 1 < OPERATORS
        stages.append(Stage(name, head, Tasks(tasks, tasks, tasks), out(number + 1), tells_watermark=more))
    return Plan("wide", "bench.locality.counters", "Process", shards, 1 << 31, tuple(stages))


class _Tasks:
    """All of them, on one store."""

    def __init__(self, folder: Path, time_mode: str) -> None:
        self.node = TurnedNode(folder, plan(time_mode), PORT, BEGAN_US)
        self.clock = _ToldClock(BEGAN_US)
        self.asked: Counter[str] = Counter()
        self.node.publish(SOURCE, [f"{SOURCE}/0"], source=True)
        for stage in self.node.plan.stages[1:]:
            self.node.publish(stage.operator, _shards(stage), source=False)
        self.node.enroll()
        self._due: list[tuple[int, int]] = []
        self._tasks: list[tuple[TaskLoop, _Line]] = []
        for stage in self.node.plan.stages[1:]:
            lists = [f"{stage.operator}.{number}" for number in range(stage.tasks.initial)]
            shards = _shards(stage)
            self.node.name_tasks(
                stage.operator, {shard: lists[at % len(lists)] for at, shard in enumerate(shards)}
            )
            for number, ready in enumerate(lists):
                launch = self.node.launch(stage.operator, ready, number)
                line = _Line(self.node.store, self.asked, self.clock.now_us)
                heapq.heappush(self._due, (BEGAN_US, len(self._tasks)))
                self._tasks.append((assemble(launch, line, line, self.clock), line))

    def tell(self, ms: int, version: int) -> None:
        """The source is so far."""
        fact = WatermarkFact(f"{SOURCE}/0", version << 60, Watermark(ms))
        self.node.store.call(TakeFacts(SOURCE, (fact,)))

    def until(self, time_us: int) -> None:
        """Have everyone take turns until then."""
        while self._due[0][0] < time_us:
            due_us, at = heapq.heappop(self._due)
            self.clock.time_us = max(self.clock.time_us, due_us)
            task, line = self._tasks[at]
            task.turn()
            heapq.heappush(self._due, (max(line.wakes_us, self.clock.time_us), at))
        self.clock.time_us = max(self.clock.time_us, time_us)


def measured(time_mode: str, folder: Path) -> Idle:
    """What a task costs that has nothing to do."""
    tasks = _Tasks(folder, time_mode)
    try:
        tasks.tell(1_000, 1)
        begin_us = BEGAN_US + int(SETTLE_S * 1e6)
        tasks.until(begin_us)
        tasks.asked.clear()
        store_us, task_us = tasks.node.store_us(), time.process_time_ns() // 1000
        tasks.until(begin_us + int(MEASURED_S * 1e6))
        store_us, task_us = tasks.node.store_us() - store_us, time.process_time_ns() // 1000 - task_us
        of_one = TASKS * MEASURED_S
        calls = {name: round(count / of_one, 2) for name, count in sorted(tasks.asked.items())}
        return Idle(store_us / of_one, task_us / of_one, calls)
    finally:
        tasks.node.stop()


def main() -> None:
    """Measure, show, and print the result as the last line."""
    screen = Screen(len(KINDS))
    table = Table(title=f"A keyed task with nothing to do, of {TASKS} with {SHARDS_EACH} shards each")
    for name in ("", "store, us/s", "task, us/s", "calls/s", "of 1 000 such, a store takes"):
        table.add_column(name, justify="right")
    result: dict[str, Any] = {"bench": "idle-wide", "tasks": {}}
    for name, time_mode in KINDS.items():
        with screen.step(name), scratch("idle-wide") as folder:
            idle = measured(time_mode, folder)
        table.add_row(
            name,
            f"{idle.store_us:,.0f}",
            f"{idle.task_us:,.0f}",
            f"{sum(idle.calls.values()):.1f}",
            f"{idle.store_us / 1000:.1%} of a core",
        )
        result["tasks"][name] = {
            "store_us_per_s": round(idle.store_us, 1),
            "task_us_per_s": round(idle.task_us, 1),
            "calls_per_s": idle.calls,
        }
    result["machine"] = machine.description()
    show(table, result)


def _shards(stage: Stage) -> list[str]:
    assert isinstance(stage.head, Processor)
    return [f"{stage.operator}/{number}" for number in range(stage.head.shards)]


if __name__ == "__main__":
    main()
