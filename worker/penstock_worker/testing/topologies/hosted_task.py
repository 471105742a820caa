"""One task of a tested topology: the worker's own loop and stage, turn by turn.

The stage is watched: what user code raised is kept as it was raised, and until when a source's partitions
rest is known without waiting for it. Neighbour: `one_node` has all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.errors import PenstockError, PermanentError, RetryError
from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, NodeStore
from penstock_worker.process.clock import Clock
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.sinks.writer import SinkWriter
from penstock_worker.spark.task_entry import BatchRuns, BatchWrites, Readers, stage_work
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.routed_stage import RoutedStage
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.work import Rest, StageWork, Work
from penstock_worker.state.cache import Variable
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.loop import TaskLoop
from penstock_worker.task.metrics import TaskMetrics
from penstock_worker.task.note import TaskNote
from penstock_worker.testing.topologies.failures import OperatorFailed, failure_of
from penstock_worker.testing.topologies.virtual_clock import TaskClock, VirtualClock


class WatchedStage:
    """Around a stage. Keeps the port `StageWork`."""

    def __init__(self, stage: StageWork, clock: Clock) -> None:
        self._stage = stage
        self._clock = clock
        self.failure: PenstockError | None = None
        self.rests_until_us: dict[str, int] = {}
        """Shards that have nothing to do before this, as they last said: partitions without rows."""
        self.adopt = stage.adopt
        self.wanted = stage.wanted
        self.loaded = stage.loaded
        self.grew = stage.grew
        self.due = stage.due
        self.settled = stage.settled
        self.close = stage.close

    def release(self, shard: str) -> None:
        self.rests_until_us.pop(shard, None)
        self._stage.release(shard)

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        try:
            worked = self._stage.work(owned, fetched)
        except (PermanentError, RetryError) as error:
            # The store is always there: what is away is something that a test does not have.
            self.failure = error
            raise
        if not isinstance(worked, Rest):
            self.rests_until_us.pop(owned.shard, None)
            return worked
        self.rests_until_us[owned.shard] = worked.until_us
        # It is asked in each turn again: a test may have fed rows meanwhile.
        return Rest(self._clock.now_us() + 1)


class HostedTask:
    """As its main process launched it; `store` is both of its connections. Raises what code raises that
    cannot be used."""

    def __init__(
        self,
        launch: TaskLaunch,
        store: NodeStore,
        clock: VirtualClock,
        writers: Mapping[str, SinkWriter],
        readers: Readers,
        batch_writes: BatchWrites,
        batch_runs: BatchRuns,
    ) -> None:
        self._clock = task_clock = TaskClock(clock)
        self._is_source = launch.stage.is_source
        try:
            self._stage = stage_work(
                launch, store, task_clock, TaskNote(None), readers, batch_writes, batch_runs
            )
        except PermanentError as error:
            raise failure_of(error) from None
        self._watched = WatchedStage(self._stage, task_clock)
        self._loop = TaskLoop(
            launch,
            store,
            store,
            self._watched,
            SinkDelivery(dict(writers)),
            TaskMetrics(launch, os.getpid()),
            task_clock,
        )

    @property
    def owned(self) -> dict[str, int]:
        """Its shards, with their epochs."""
        return self._loop.owned

    @property
    def rests_until_us(self) -> dict[str, int]:
        return self._watched.rests_until_us

    @property
    def variables(self) -> tuple[Variable, ...]:
        """What state its processor declared; none for another stage."""
        stage = self._stage.inner if isinstance(self._stage, RoutedStage) else self._stage
        return tuple(stage.variables) if isinstance(stage, KeyedStage) else ()

    def turn(self) -> None:
        """Raises what user code raised, and OperatorFailed ever after."""
        __tracebackhide__ = True
        if self._watched.failure is not None:
            raise OperatorFailed(
                f"it has failed before in this test, and does no more: {self._watched.failure}"
            )
        if self._is_source:
            self._clock.begin_turn()
        self._loop.turn()
        if self._watched.failure is not None:
            raise failure_of(self._watched.failure)

    def due_again_us(self, now_us: int) -> int:
        """When shards of it are worked again though nothing comes; 0 where none is waited for."""
        _, due_us = self._stage.due(now_us)
        return due_us or 0

    def event_time_seen(self, at_us: int) -> None:
        """As if a row with this event time had come of each of its partitions."""
        if isinstance(self._stage, SourceStage):
            for shard in self.owned:
                self._stage.seen(shard, at_us)

    def close(self) -> None:
        """Raises what the user's `close` raises."""
        try:
            self._stage.close()
        except PermanentError as error:
            raise failure_of(error) from None
