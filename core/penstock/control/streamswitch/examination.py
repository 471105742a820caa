"""What an examination of one operator comes to: the metrics that a diagnosis is made from (StreamSwitch, 4).

Neighbours: `examine` makes it from snapshots, `diagnose` reads it. Arrays are by executor or by shard, in the
order of `executors` and `shards`; rates in rows per second, latencies in microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.control.streamswitch.slot_history import ROWS_MIN, Flags, Floats, Indices

__all__ = ["Examination", "Flags", "Floats", "Indices"]


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """`missing` says in words what makes the state invalid (section 4.3): then the arrays mean nothing.

    `service_per_s` is mu_i of the whole executor, NaN while nobody's is known. `stalled` executors completed
    nothing since rows began to wait, for longer than the alert threshold and than their work explains.
    """

    at_us: int
    executors: tuple[str, ...]
    tasks: tuple[int, ...]
    shards: tuple[str, ...]
    holder: Indices
    """By shard: the index of its executor."""
    arrival_per_s: Floats
    service_per_s: Floats
    instantaneous_us: Floats
    stalled: Flags
    shard_arrival_per_s: Floats
    shard_completed: Floats
    """By shard: rows completed in the window."""
    shard_latency_sum_us: Floats
    shard_backlog: Floats
    """By shard: rows that arrived and are not completed."""
    missing: str = ""

    @property
    def shard_latency_us(self) -> Floats:
        """l^k: mean latency of a shard's rows over the window (3.4). Of a shard that completed none it is
        math.inf if rows wait there, so that it moves last, else 0."""
        known = self.shard_completed > ROWS_MIN
        return np.where(
            known,
            self.shard_latency_sum_us / np.where(known, self.shard_completed, 1.0),
            np.where(self.shard_backlog > ROWS_MIN, math.inf, 0.0),
        )

    @property
    def is_idle(self) -> bool:
        """Nothing arrived in the window and nothing waits."""
        return not self.shard_arrival_per_s.any() and not (self.shard_backlog > ROWS_MIN).any()
