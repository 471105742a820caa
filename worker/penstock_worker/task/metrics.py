"""What a task counts, and the rows it leaves in the store every 100 ms.

Everything is cumulative: a row that is lost or overwritten costs nothing (`penstock.metrics.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from penstock.metrics.latency import LatencyHistogram, bucket_of, buckets_of
from penstock.metrics.rows import ShardRow, TaskRow, pack, shard_row_name, task_row_name
from penstock.store.ownership import OwnedShard
from penstock.store.port import PutMetrics
from penstock.store.stamps import Stamps
from penstock_worker.stages.work import Work
from penstock_worker.task.launch import TaskLaunch

INTERVAL_US = 100_000
_VECTOR_ROWS_MIN = 64
_AGES_MAX = 2048
"""So many are gathered before they are counted: together they cost a fraction."""
_ARRAY_AGES_MAX = 8192
"""The same of those that are arrays."""


class TaskMetrics:
    """One per task. `pid` is the task's process, `lags` those of the partitions that it reads, as they
    are."""

    def __init__(
        self, launch: TaskLaunch, pid: int, lags: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self._lags = {} if lags is None else lags
        self._launch = launch
        self._pid = pid
        self._latency: dict[str, LatencyHistogram] = {}
        self._ages_us: dict[str, list[int]] = {}
        """Those that `_latency` has not counted yet,"""
        self._arrays: dict[str, list[npt.NDArray[np.int64]]] = {}
        """and arrays of such."""
        self._rows: dict[str, int] = {}
        self._shards: dict[str, ShardRow] = {}
        self._changed: set[str] = set()
        self._batches = 0
        self._fenced = 0
        self._due_us = 0

    def adopted(self, owned: OwnedShard, now_us: int) -> None:
        """A row under a new epoch begins at zero; readers see the epoch."""
        self._shards[owned.shard] = ShardRow(owned.epoch, owned.generation, now_us, 0, 0, 0)
        self._changed.add(owned.shard)

    def released(self, shard: str) -> None:
        self._shards.pop(shard, None)
        self._changed.discard(shard)

    def fenced(self) -> None:
        self._fenced += 1

    def settled(self, owned: OwnedShard, work: Work, operator: str, now_us: int) -> None:
        """A commit was applied: its rows are at `operator` now."""
        shard, rows_in = owned.shard, len(work.timestamps_us)
        before = self._shards[shard]
        self._shards[shard] = ShardRow(
            before.epoch,
            before.generation,
            now_us,
            before.rows + rows_in,
            before.busy_us + work.busy_us,
            before.waited_us + work.waited_us,
            before.served_us + rows_in * max(0, now_us - work.commit.now_us),
        )
        self._changed.add(shard)
        self._batches += 1
        for name, rows in work.rows_out.items():
            self._rows[name] = self._rows.get(name, 0) + rows
        self._record(operator, work.timestamps_us, now_us)

    def written(self, sink: str, timestamps_us: Sequence[int], now_us: int) -> None:
        """Rows are in the sink; they were counted as they were committed to it."""
        self._record(sink, timestamps_us, now_us)

    def _record(self, name: str, timestamps_us: Sequence[int], now_us: int) -> None:
        # `isinstance` of an abstract class takes half a microsecond, and this is asked twice a commit.
        if type(timestamps_us) is Stamps:
            arrays = self._arrays.setdefault(name, [])
            arrays.append(now_us - timestamps_us.array)
            if sum(map(len, arrays)) >= _ARRAY_AGES_MAX:
                self._count_arrays(name)
            return
        ages_us = self._ages_us.get(name)
        if ages_us is None:
            ages_us = self._ages_us[name] = []
        ages_us += [now_us - timestamp_us for timestamp_us in timestamps_us]
        if len(ages_us) >= _AGES_MAX:
            self._count(name)

    def _count(self, name: str) -> None:
        ages_us, self._ages_us[name] = self._ages_us[name], []
        counts = self._latency.setdefault(name, LatencyHistogram()).counts
        if len(ages_us) < _VECTOR_ROWS_MIN:
            for age_us in ages_us:
                bucket = bucket_of(age_us)
                counts[bucket] = counts.get(bucket, 0) + 1
            return
        self._count_many(name, np.asarray(ages_us))

    def _count_arrays(self, name: str) -> None:
        arrays, self._arrays[name] = self._arrays[name], []
        if sum(map(len, arrays)):
            self._count_many(name, np.concatenate(arrays))

    def _count_many(self, name: str, ages_us: npt.NDArray[np.int64]) -> None:
        counts = self._latency.setdefault(name, LatencyHistogram()).counts
        least, most = ages_us.min(), ages_us.max()
        if least == most:
            # As old as each other: rows of a batch that was read at once, or that came out of one step.
            bucket = bucket_of(float(least))
            counts[bucket] = counts.get(bucket, 0) + len(ages_us)
            return
        times = np.bincount(buckets_of(ages_us.astype(np.float64)))
        found = np.flatnonzero(times)
        for bucket, count in zip(found.tolist(), times[found].tolist(), strict=True):
            counts[bucket] = counts.get(bucket, 0) + count

    def due(self, now_us: int) -> PutMetrics | None:
        """The rows to write, at most every 100 ms."""
        if now_us < self._due_us:
            return None
        return self.rows(now_us)

    def wait_us(self, now_us: int) -> int | None:
        """How long until rows are due that nobody has seen yet; None where all is told."""
        return max(0, self._due_us - now_us) if self._changed else None

    def rows(self, now_us: int) -> PutMetrics:
        """The rows as they stand."""
        self._due_us = now_us + INTERVAL_US
        for name in self._ages_us:
            self._count(name)
        for name in self._arrays:
            self._count_arrays(name)
        launch = self._launch
        task = TaskRow(
            executor=launch.executor,
            operator=launch.stage.operator,
            task=launch.task,
            ready=launch.owner.ready,
            pid=self._pid,
            at_us=now_us,
            latency={name: histogram.counts for name, histogram in self._latency.items()},
            rows=self._rows,
            batches=self._batches,
            fenced=self._fenced,
            lag=dict(self._lags),
        )
        rows = [(task_row_name(launch.worker, launch.executor, launch.task), pack(task))]
        rows.extend((shard_row_name(shard), pack(self._shards[shard])) for shard in self._changed)
        self._changed.clear()
        return PutMetrics(tuple(rows))
