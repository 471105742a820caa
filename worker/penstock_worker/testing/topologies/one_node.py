"""A topology on one node in memory, in virtual time: the worker's own tasks over the store's twin, one a
stage.

Main process, agent and operator are not here: they decide where code runs, and not what it does. A *moment*
is what follows from something the test did: tasks take turns until nothing changes any more. Time stands
still meanwhile, but for the milliseconds after which a source tells its watermark. Neighbours: `hosted_task`
is one task, `topology_test` what a test calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.dataflow.partitions import shard_name
from penstock.dataflow.plan import PROCESSING_TIME, Plan, Processor, Stage
from penstock.dataflow.source import Source
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Bounds,
    Create,
    Enroll,
    Measure,
    OpenStore,
    Owner,
    Publish,
    ReadWatermark,
    SetTasks,
    ShardCounters,
)
from penstock_worker.sources.reader import SourceReader
from penstock_worker.stages.batch_stage import Write
from penstock_worker.stages.transform_stage import Run
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.testing.topologies.collected_rows import CollectedRows
from penstock_worker.testing.topologies.fed_partitions import FedPartitions
from penstock_worker.testing.topologies.hosted_task import HostedTask
from penstock_worker.testing.topologies.virtual_clock import VirtualClock
from penstock_worker.values.arrow_rows import unpacked

NODE, WORKER, UID, TOPOLOGY_UID = "node", "w0", "tested", "tested"
INCARNATION = f"{UID}/1/1"
LOOK_US = 25_000
"""More than any pause between two looks of a task at the store."""
MOMENT_US = 100_000
"""What is due within so long of what the test did belongs to it."""
STEP_US = 5_000
QUIET_ROUNDS = 2
"""So many turns of all tasks without a change: one task may have to see what the one behind it did."""
STUCK_ROUNDS = 2_000


class OneNode:
    """Runs `plan`, whose fed sources have as many partitions as `partitions` says (1), and whose transforms
    are worked out by `transforms`. Code is looked for in `base_dir`. Raises what code raises that cannot be
    used."""

    def __init__(
        self,
        plan: Plan,
        base_dir: Path,
        start: datetime.datetime,
        partitions: Mapping[str, int],
        transforms: Mapping[str, Run] | None = None,
    ) -> None:
        self._transforms = transforms or {}
        self.clock = VirtualClock(start)
        self.plan = plan
        self.fed = {stage.operator: FedPartitions() for stage in plan.stages if stage.is_source}
        self.parts = {
            stage.operator: tuple(shard_name(stage.operator, part) for part in _parts(stage, partitions))
            for stage in plan.stages
        }
        self.collected = {
            sink.name: CollectedRows() for stage in plan.stages for sink, _ in stage.all_sinks()
        }
        self.batches: dict[str, dict[int, list[dict[str, Any]]]] = {}
        """Rows of sinks that are stages of their own, by batch."""
        self.tasks: dict[str, HostedTask] = {}
        self._base_dir = base_dir
        self._bounds = Bounds()
        self._starts = 0
        self.store = MemoryStore(MemoryNode(), TOPOLOGY_UID, self._bounds)
        self.generation = self.store.call(OpenStore(NODE))
        self._shards = tuple(shard for shards in self.parts.values() for shard in shards)
        self._publish()
        for stage in plan.stages:
            self.restart(stage.operator)

    def _publish(self) -> None:
        workers = ((WORKER, NODE, "localhost", UID),)
        for stage in self.plan.stages:
            executor, shards = _executor(stage), self.parts[stage.operator]
            placed = tuple((shard, executor, NODE) for shard in shards)
            self.store.call(Publish(stage.operator, 1, 0, workers, ((executor, WORKER, 1),), placed))
            for shard in shards:
                self.store.call(Create(shard, source=stage.is_source))
        self.store.call(Enroll(WORKER, UID, 1, 1))

    # --- tasks --------------------------------------------------------------------------------

    def restart(self, operator: str) -> None:
        """Begin an operator's task, in the place of the one that was there: its code is made anew, and has
        what stands in the store."""
        stage = self.plan.stage(operator)
        before = self.tasks.pop(operator, None)
        if before is not None:
            before.close()
        self._starts += 1
        executor = _executor(stage)
        owner = Owner(executor, INCARNATION, f"{executor}.{self._starts}")
        launch = TaskLaunch(
            topology_uid=TOPOLOGY_UID,
            store_url="",
            worker=WORKER,
            owner=owner,
            task=0,
            stage=stage,
            base_dir=str(self._base_dir),
            durable=False,
            bounds=self._bounds,
            topology=self.plan.topology,
        )
        writers = {sink.name: self.collected[sink.name] for sink, _ in stage.all_sinks()}
        self.tasks[operator] = HostedTask(
            launch, self.store, self.clock, writers, self._reader, self._batch_write, self._batch_run
        )
        mapping = tuple((shard, owner.ready) for shard in self.parts[operator])
        self.store.call(SetTasks(WORKER, INCARNATION, executor, mapping))

    def _reader(self, operator: str, source: Source, base_dir: Path) -> SourceReader:
        return self.fed[operator]

    def _batch_write(self, door: str, operator: str) -> Write:
        written = self.batches.setdefault(operator, {})

        def write(number: int, _: int, records: bytes) -> None:
            written[number] = unpacked(records).to_pylist()

        return write

    def _batch_run(self, door: str, operator: str) -> Run:
        return self._transforms[operator]

    def close(self) -> None:
        """Raises what the user's `close` raises, of the first that does."""
        for task in self.tasks.values():
            task.close()

    # --- time ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """One moment. Raises what user code raises."""
        __tracebackhide__ = True
        moment_ends_us = self.clock.now_us() + MOMENT_US
        before = self._look()
        quiet = rounds = 0
        while quiet < QUIET_ROUNDS:
            for task in self.tasks.values():
                task.turn()
            self.clock.look_later(LOOK_US)
            after = self._look()
            quiet += 1
            if _changed(before, after):
                quiet = rounds = 0
            elif (soon_us := self._soonest_us()) <= moment_ends_us:
                self.clock.pass_to(soon_us)
                quiet = 0
            elif self._is_ordered(after):
                # A source that rests sees it at its next look at its shards, and no time passes until then.
                quiet = 0
            elif self._has_work(after):
                self.clock.pass_to(self.clock.now_us() + STEP_US)
                quiet = 0
            before = after
            rounds += 1
            if rounds > STUCK_ROUNDS:
                raise AssertionError("a bug of Penstock's: tasks have work, and nothing changes")
        for rows in self.collected.values():
            rows.end_moment()

    def advance(self, to_us: int) -> None:
        """Let time pass, from one thing that is due to the next."""
        __tracebackhide__ = True
        self.settle()
        while (next_us := self._next_us()) < to_us:
            self.clock.pass_to(next_us)
            self.settle()
        self.clock.pass_to(to_us)
        self.settle()

    def watermark_ms(self, operator: str) -> int | None:
        """How far event time is: of a source its own, else that of what comes to the operator. None where
        there is none yet."""
        head = self.plan.stage(operator).head
        if isinstance(head, Processor):
            return self.store.call(ReadWatermark(head.producers, head.keyed_producers)).ms
        return self.store.call(ReadWatermark((operator,))).ms

    def _look(self) -> list[ShardCounters]:
        return [found for found in self.store.call(Measure(self._shards)) if found is not None]

    def _is_ordered(self, seen: Iterable[ShardCounters]) -> bool:
        """Whether an order about a dead letter waits for a source, which has no other inbox."""
        sources = {
            shard for stage in self.plan.stages if stage.is_source for shard in self.parts[stage.operator]
        }
        return any(
            found.inbox_entries for shard, found in zip(self._shards, seen, strict=True) if shard in sources
        )

    def _has_work(self, seen: Iterable[ShardCounters]) -> bool:
        now_us = self.clock.now_us()
        by_shard = dict(zip(self._shards, seen, strict=True))
        for stage in self.plan.stages:
            rests = self.tasks[stage.operator].rests_until_us
            by_clock = _goes_by_clock(stage)
            for shard in self.parts[stage.operator]:
                found = by_shard[shard]
                if rests.get(shard, 0) > now_us:
                    continue
                if found.inbox_entries or (stage.is_source and not found.finished):
                    return True
                due_ms = found.next_timer_ms
                if by_clock and due_ms is not None and due_ms * 1000 <= now_us:
                    return True
        return False

    def _soonest_us(self) -> int:
        """When the first shard is to be looked at again: one that rests, or waits for another try."""
        now_us = self.clock.now_us()
        looks = [until_us for task in self.tasks.values() for until_us in task.rests_until_us.values()]
        looks += [task.due_again_us(now_us) for task in self.tasks.values()]
        return min((at_us for at_us in looks if at_us > now_us), default=1 << 62)

    def _next_us(self) -> int:
        """When the next thing is due: a timer by the clock, a partition that is idle then, another try."""
        next_us = self._soonest_us()
        for stage in self.plan.stages:
            if _goes_by_clock(stage):
                for found in self.store.call(Measure(self.parts[stage.operator])):
                    if found is not None and found.next_timer_ms is not None:
                        next_us = min(next_us, found.next_timer_ms * 1000)
        return next_us


def _parts(stage: Stage, partitions: Mapping[str, int]) -> tuple[str, ...]:
    if isinstance(stage.head, Processor):
        return stage.head.fixed_parts
    return tuple(str(number) for number in range(partitions.get(stage.operator, 1)))


def _executor(stage: Stage) -> str:
    return f"{stage.operator}-{WORKER}"


def _goes_by_clock(stage: Stage) -> bool:
    return isinstance(stage.head, Processor) and stage.head.time_mode == PROCESSING_TIME


def _changed(before: Iterable[ShardCounters], after: Iterable[ShardCounters]) -> bool:
    """Whether a shard committed, or has or told another watermark, or is another task's."""
    return any(
        (one.epoch, one.commit, one.watermark_ms, one.told)
        != (other.epoch, other.commit, other.watermark_ms, other.told)
        for one, other in zip(before, after, strict=True)
    )
