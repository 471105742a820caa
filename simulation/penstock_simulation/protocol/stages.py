"""What the simulated tasks' loops work with: the product's stages over rows and files that are not there.

The stages, the cache of state, routing and codec are the product's. What reads a partition, what writes a
file, and how long user code takes is the world's. Neighbours: `hosted_task` puts a task together from these.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from msgspec import structs

from penstock.dataflow.plan import Processor, Stage
from penstock.store.codec import decode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, Load
from penstock_simulation.protocol.join_workload import NOBODY
from penstock_simulation.protocol.topologies import Topology
from penstock_simulation.protocol.workload import SINK, Workload
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.stages.work import Rest, StageWork, Work
from penstock_worker.user_code.running import ProcessorRunner

USER_CODE_US_MAX = 12_000
"""A call of user code takes so long now and then; the loop sends what it has by `HELD_US_MAX`."""
REST_US_MAX = 40_000
"""How far off the next row of a paced partition is now and then."""
LIMITS_BYTES = (0, 1, 40, 160)
"""What owners say that an inbox may hold, in runs in which they do (`Commit.inbox_limit_bytes`)."""


class Runners:
    """User code that was loaded once for all runs: nothing of a run stays in it. Each task has its own."""

    _free: ClassVar[defaultdict[Callable[[], Any], list[ProcessorRunner]]] = defaultdict(list)

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._lent: list[tuple[Callable[[], Any], ProcessorRunner]] = []

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

    def _loaded(self, operator: str, processor: Callable[[], Any]) -> ProcessorRunner:
        stage = self._topology.plan.stage(operator)
        head = cast("Processor", stage.head)
        return ProcessorRunner(
            processor,
            head.input,
            head.key_columns,
            stage.out.schema,
            operator,
            head.form,
            time_mode=head.time_mode,
            initial=head.initial,
        )


class PartitionReader:
    """Reads a run's partitions, one to three rows at a time. Keeps the port `SourceReader`."""

    def __init__(self, workload: Workload, rng: random.Random, *, paced: bool) -> None:
        self._workload = workload
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
        rows = self._workload.rows(shard)
        start = int(position or b"0")
        if (until_us := self._workload.rests_until(shard, start, now_us)) > now_us:
            return SourceBatch([], [], position, False, until_us)
        if self._paced and start < len(rows) and self._rng.random() < 0.2:
            return SourceBatch([], [], position, False, now_us + 1 + int(self._rng.random() * REST_US_MAX))
        upto = self._workload.read_upto(shard, start)
        end = min(start + 1 + int(self._rng.random() * min(3, rows_max)), upto)
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
        rows = [row[:3] for _, payload in entries for row in decode_batch(payload).rows]
        content = bytes(NOBODY if value is None else value for row in rows for value in row)
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
    """Around a product's stage: user code takes its time, `limit_bytes` says now and then what an inbox may
    hold, and `resting` until when handed out shards are kept. Keeps the port `StageWork`."""

    def __init__(
        self,
        stage: StageWork,
        rng: random.Random,
        take_time: Callable[[int], None],
        is_hot: Callable[[str], bool],
        limit_bytes: Callable[[], int | None],
    ) -> None:
        self._stage = stage
        self._limit_bytes = limit_bytes
        self._is_hot = is_hot
        self._rng = rng
        self._take_time = take_time
        self.resting: dict[str, int] = {}
        self.adopt = stage.adopt
        self.grew = stage.grew
        self.wanted = stage.wanted
        self.due = stage.due
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
        elif worked.commit.consumed_bytes and (limit_bytes := self._limit_bytes()) is not None:
            commit = structs.replace(worked.commit, inbox_limit_bytes=limit_bytes)
            return structs.replace(worked, commit=commit)
        return worked
