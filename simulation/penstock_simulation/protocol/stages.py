"""What the simulated tasks' loops work with: the product's stages over rows and files that are not there.

The stages, the cache of state, routing and codec are the product's. What reads a partition, what writes a
file, and how long user code takes is the world's. Neighbours: `hosted_task` puts a task together from these.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pyspark.sql.streaming import StatefulProcessor

from penstock.connectors.console import ConsoleSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import (
    EVENT_TIME,
    NO_TIME,
    PROCESSING_TIME,
    EventTime,
    Fanout,
    KeyedEdge,
    Plan,
    Processor,
    Stage,
    Tasks,
)
from penstock.dataflow.schema import Column, Schema
from penstock.store.codec import decode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, Load
from penstock_simulation.protocol import event_code, user_code
from penstock_simulation.protocol.event_workload import DELAY_MS
from penstock_simulation.protocol.workload import SHARDS, SINK, Partitions
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, StageWork, Work
from penstock_worker.user_code.running import ProcessorRunner

USER_CODE_US_MAX = 12_000
"""A call of user code takes so long now and then; the loop sends what it has by `HELD_US_MAX`."""
REST_US_MAX = 40_000
"""How far off the next row of a paced partition is now and then."""


def _schema(*names: str) -> Schema:
    return Schema(tuple(Column(name, "int") for name in names))


_TASKS = Tasks(1, 1, 1)
_ROWS = _schema("key", "part", "number")
_NO_SOURCE = ZipfSource(1, 1.0, 1, 0, None, None, 0.0, len(SHARDS.src), 0)
"""Only says that it is one: `PartitionReader` reads."""


def _fanout(*, sinks: tuple[ConsoleSink, ...] = (), edges: tuple[KeyedEdge, ...] = ()) -> Fanout:
    return Fanout(_ROWS, (), sinks, edges)


_TIMED_ROWS = _schema("key", "part", "number", "at_us", "of_window", "of_next_window")
_NEVER_MS = 1_000_000
"""No partition is idle before it ends."""


def _by_event_time(plan: Plan) -> Plan:
    """The same stages over rows with event times, which both keyed stages go by."""
    src, mid, end = (replace(stage, out=replace(stage.out, schema=_TIMED_ROWS)) for stage in plan.stages)
    time = EventTime(event_code.AT, DELAY_MS, _NEVER_MS)
    heads = [
        replace(
            stage.head,
            target=f"{event_code.__name__}:{name}",
            input=_TIMED_ROWS,
            time_mode=EVENT_TIME,
            event_column=event_code.AT,
            producers=(producer,),
        )
        for stage, name, producer in ((mid, "Mid", "src"), (end, "End", "mid"))
        if isinstance(stage.head, Processor)
    ]
    return replace(
        plan,
        module=event_code.__name__,
        stages=(
            replace(src, out=replace(src.out, event_time=time), tells_watermark=True),
            replace(mid, head=heads[0], tells_watermark=True),
            replace(end, head=heads[1]),
        ),
    )


PLAN = Plan(
    "simulated",
    user_code.__name__,
    "Process",
    workers_initial=4,
    memory_bytes=0,
    stages=(
        Stage("src", _NO_SOURCE, _TASKS, _fanout(edges=(KeyedEdge("mid", (0,), len(SHARDS.mid)),))),
        Stage(
            "mid",
            Processor(f"{user_code.__name__}:Mid", _ROWS, (0,), len(SHARDS.mid), time_mode=PROCESSING_TIME),
            _TASKS,
            _fanout(edges=(KeyedEdge("end", (0,), len(SHARDS.end)),)),
        ),
        Stage(
            "end",
            Processor(f"{user_code.__name__}:End", _ROWS, (0,), len(SHARDS.end), time_mode=PROCESSING_TIME),
            _TASKS,
            _fanout(sinks=(ConsoleSink(SINK),)),
        ),
    ),
)


@dataclass(frozen=True)
class Topology:
    """A plan, and the user code of its keyed stages."""

    plan: Plan
    processors: Mapping[str, type[StatefulProcessor]]

    @cached_property
    def fanouts(self) -> dict[str, FanoutRunner]:
        return {stage.operator: FanoutRunner(stage.out, Path()) for stage in self.plan.stages}


BY_THE_CLOCK = Topology(PLAN, {"mid": user_code.Mid, "end": user_code.End})
BY_EVENT_TIME = Topology(_by_event_time(PLAN), {"mid": event_code.Mid, "end": event_code.End})


class Runners:
    """User code that was loaded once for all runs: nothing of a run stays in it. Each task has its own."""

    _free: ClassVar[defaultdict[type[StatefulProcessor], list[ProcessorRunner]]] = defaultdict(list)

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._lent: list[tuple[type[StatefulProcessor], ProcessorRunner]] = []

    def lend(self, operator: str) -> ProcessorRunner:
        """One that nobody else has until the run is over."""
        processor = self._topology.processors[operator]
        free = self._free[processor]
        runner = free.pop() if free else self._loaded(operator, processor)
        runner.watermark_ms = min(0, runner.watermark_ms)
        self._lent.append((processor, runner))
        return runner

    def take_back(self) -> None:
        """The run is over."""
        for processor, runner in self._lent:
            self._free[processor].append(runner)
        self._lent.clear()

    def _loaded(self, operator: str, processor: type[StatefulProcessor]) -> ProcessorRunner:
        stage = self._topology.plan.stage(operator)
        mode = stage.head.time_mode if isinstance(stage.head, Processor) else NO_TIME
        schema = stage.out.schema
        return ProcessorRunner(processor, schema, (0,), schema, operator, time_mode=mode)


class PartitionReader:
    """Reads a run's partitions, one to three rows at a time. Keeps the port `SourceReader`."""

    def __init__(self, partitions: Partitions, rng: random.Random, *, paced: bool) -> None:
        self._partitions = partitions
        self._rng = rng
        self._paced = paced

    @property
    def paced(self) -> bool:
        return self._paced

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        """All of it is there."""

    def release(self, shard: str) -> None:
        """Nothing is kept."""

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        rows = self._partitions[shard]
        start = int(position or b"0")
        if self._paced and start < len(rows) and self._rng.random() < 0.2:
            return SourceBatch([], [], position, False, now_us + 1 + int(self._rng.random() * REST_US_MAX))
        end = min(start + 1 + int(self._rng.random() * min(3, rows_max)), len(rows))
        due_us = now_us if self._paced and end < len(rows) else None
        read = list(rows[start:end])
        return SourceBatch(read, [now_us] * len(read), b"%d" % end, end == len(rows), due_us)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class SinkFiles:
    """Writes the rows of the sink, three bytes each, where the run keeps its files. A `SinkWriter`."""

    def __init__(self, write: Callable[[str, int, bytes], None]) -> None:
        self._write = write

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        start = int(position or b"0")
        content = b"".join(bytes(row[:3]) for _, payload in entries for row in decode_batch(payload).rows)
        self._write(shard, start, content)
        return b"%d" % (start + len(content))

    def check(self, shard: str, position: bytes) -> None:
        """Nobody else writes there."""

    def sync(self, shard: str) -> None:
        """There is no disk."""

    def close(self) -> None:
        """Nothing is open."""


class SimulatedSinks(SinkDelivery):
    """The sinks of a task, with the run's files in the place of real ones."""

    def __init__(self, stage: Stage, write: Callable[[str, int, bytes], None]) -> None:
        super().__init__({SINK: SinkFiles(write)} if SINK in stage.out.fused else {})


class HostedStage:
    """Around a product's stage: user code takes its time, and `resting` says until when handed out shards are
    kept. Keeps the port `StageWork`."""

    def __init__(
        self,
        stage: StageWork,
        rng: random.Random,
        take_time: Callable[[int], None],
        is_hot: Callable[[str], bool],
    ) -> None:
        self._stage = stage
        self._is_hot = is_hot
        self._rng = rng
        self._take_time = take_time
        self.resting: dict[str, int] = {}
        self.adopt = stage.adopt
        self.grew = stage.grew
        self.wanted = stage.wanted
        self.settled = stage.settled
        self.close = stage.close

    def release(self, shard: str) -> None:
        self.resting.pop(shard, None)
        self._stage.release(shard)

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        self._stage.loaded(owned, load, answer)

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        self.resting.pop(owned.shard, None)
        worked = self._stage.work(owned, fetched)
        if self._is_hot(owned.shard):
            self._take_time(USER_CODE_US_MAX)
        elif self._rng.random() < 0.25:
            self._take_time(int(self._rng.random() * USER_CODE_US_MAX))
        if isinstance(worked, Rest):
            self.resting[owned.shard] = worked.until_us
        return worked
