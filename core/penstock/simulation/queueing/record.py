"""What is written down of an operator while it is simulated, slot by slot. Neighbour: `replay` makes an
`OperatorRun` of it."""

from __future__ import annotations

import math

import numpy as np

from penstock.metrics.latency import bucket_of
from penstock.simulation.queueing.model import FloatArray

_BUCKETS = bucket_of(1e12) + 1
_LOG_GROWTH = math.log(1.02)


class Record:
    """Series of `slots` slots over `shards` shards; those of single shards only if `keeps_shards`. Latencies
    are counted from slot `counts_from` on."""

    def __init__(
        self, slots: int, shards: int, slot_us: int, keeps_shards: bool, counts_from: int = 0
    ) -> None:
        self.slot_us = slot_us
        self._counts_from = counts_from
        self.arrived = np.zeros(slots)
        self.completed = np.zeros(slots)
        self.latency_sum_us = np.zeros(slots)
        self.latency_max_us = np.full(slots, np.nan)
        self.task_us = np.zeros(slots)
        self.executor_us = np.zeros(slots)
        self.mixed_us = np.zeros(slots)
        self.latency_counts = np.zeros(_BUCKETS)
        self.remote_rows = 0.0
        shape = (slots, shards) if keeps_shards else (0, shards)
        self.keeps_shards = keeps_shards
        self._counts_latencies = True
        self.shard_arrived = np.zeros(shape)
        self.shard_completed = np.zeros(shape)
        self.shard_latency_sum_us = np.zeros(shape)

    def add(
        self,
        first_slot: int,
        arrived: FloatArray,
        completed: FloatArray,
        latency_sum_us: FloatArray,
        *,
        counts_latencies: bool = True,
    ) -> None:
        """[slots from `first_slot`, shards], on top of what is there. Without `counts_latencies` the caller
        counts single rows by `count_row`."""
        slots = slice(first_slot, first_slot + len(arrived))
        if self.keeps_shards:
            # Sums over shards can wait for the end.
            self.shard_arrived[slots] += arrived
            self.shard_completed[slots] += completed
            self.shard_latency_sum_us[slots] += latency_sum_us
            self._counts_latencies = counts_latencies
        else:
            self._sum(slots, arrived, completed, latency_sum_us, counts_latencies)

    def finish(self) -> None:
        """Everything is there."""
        if self.keeps_shards:
            slots = slice(0, len(self.arrived))
            self._sum(
                slots,
                self.shard_arrived,
                self.shard_completed,
                self.shard_latency_sum_us,
                self._counts_latencies,
            )

    def _sum(
        self,
        slots: slice,
        arrived: FloatArray,
        completed: FloatArray,
        latency_sum_us: FloatArray,
        counts_latencies: bool,
    ) -> None:
        self.arrived[slots] += arrived.sum(axis=1)
        self.completed[slots] += completed.sum(axis=1)
        self.latency_sum_us[slots] += latency_sum_us.sum(axis=1)
        some = completed > 1e-9
        means = np.divide(latency_sum_us, completed, out=np.full_like(completed, -1.0), where=some)
        worst = means.max(axis=1)
        self.latency_max_us[slots] = np.fmax(self.latency_max_us[slots], np.where(worst < 0, np.nan, worst))
        if counts_latencies:
            skipped = max(self._counts_from - slots.start, 0)
            means, completed, some = means[skipped:], completed[skipped:], some[skipped:]
            buckets = np.clip(np.log(np.maximum(means[some], 1.0)) / _LOG_GROWTH + 1, 0, _BUCKETS - 1)
            self.latency_counts += np.bincount(
                buckets.astype(np.int64), weights=completed[some], minlength=_BUCKETS
            )

    def count_row(self, latency_us: float) -> None:
        self.latency_counts[min(bucket_of(latency_us), _BUCKETS - 1)] += 1

    def cost(self, begin_us: float, end_us: float, tasks: int, executors: int, mixed: int) -> None:
        """They were there from `begin_us` to `end_us`; `mixed` are tasks of another speed than 1."""
        first, last = int(begin_us // self.slot_us), math.ceil(end_us / self.slot_us)
        edges = np.arange(first, last + 1) * float(self.slot_us)
        length = np.minimum(edges[1:], end_us) - np.maximum(edges[:-1], begin_us)
        self.task_us[first:last] += tasks * length
        self.executor_us[first:last] += executors * length
        self.mixed_us[first:last] += mixed * length
