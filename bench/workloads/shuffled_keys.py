"""Elasticutor's micro-benchmark (SIGMOD 2019, section 5.1): a generator that never rests, a calculator, and
keys whose frequencies are dealt out anew omega times a minute.

Each figure is marked as published or assumed; none was chosen by looking at a policy's result. Neighbours:
`bench.elasticity_trials` runs policies on it, `market_clearing` is the paper's other application.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOT_MS = 100
NODE_CORES = 8
"""Published: 32 nodes with 8 cores each, 1 Gbps between them."""
NETWORK_BYTES_PER_S = 125e6
SHARDS_PER_EXECUTOR = 256
"""Published, as is one elastic executor a node (32 of them for an operator on 32 nodes)."""
KEYS = 10_000
"""Published."""
OVERLOAD = 1.25
"""Assumed: what is offered, over what all cores can do. Published: it "saturates the input queues"."""
QUEUE_MS = 250.0
"""Assumed: work that a core's queue holds before the generator is held back."""
WARM_UP_S = 10.0
"""Assumed: figures begin after that; frequencies are shuffled from then on too."""
RELATIVE_DEVIATION = 0.5**0.5
"""Of a tuple's cost. Published for 1 ms, N(mu, mu / 2) in ms; assumed to stay in proportion for others."""
SYNCHRONISE_MS = 2.0
"""Of one shard that goes to another task, elastic executors. Published (figure 12a)."""
REPARTITION_MS = (200.0, 2_000.0)
REPARTITION_UPSTREAM = (1, 256)
"""Of one resource-centric repartitioning, with so many executors upstream. Published: 2 to 3 orders of
magnitude more than elastic executors' 2 ms, and growing with the number. That these are the ends, with a
straight line between, is assumed."""
TASK_START_UP_MS, START_UP_MS = 100.0, 1_000.0
"""Assumed, as for the stock exchange: a task in a running worker, and an executor in a process of its own."""
LATENCY_MS = 50.0
"""Assumed: the bound T_max of the performance model."""
INTERVAL_MS = 500
"""Assumed: how often policies look, as often as shards are balanced (section 3.1)."""
_STREAM = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of the micro-benchmark; the defaults are the paper's, but for `upstream` (assumed: a generator
    a node)."""

    shuffles_per_min: float = 2.0
    cost_ms: float = 1.0
    tuple_bytes: float = 128.0
    shard_bytes: float = 32 * 1024.0
    skew: float = 0.5
    upstream: int = 32
    nodes: int = 32

    @property
    def cores(self) -> int:
        """Of the whole cluster."""
        return self.nodes * NODE_CORES

    @property
    def shards(self) -> int:
        """Of the calculator, under every policy."""
        return self.nodes * SHARDS_PER_EXECUTOR

    @property
    def offered_per_s(self) -> float:
        """More than all cores can do, and no more than the network brings to them: under every policy a tuple
        comes from the generator on some node, and 1 of `nodes` from the same one."""
        network = self.nodes * NETWORK_BYTES_PER_S / self.tuple_bytes * self.nodes / max(self.nodes - 1, 1)
        return min(OVERLOAD * self.cores * 1000 / self.cost_ms, network)

    @property
    def repartition_ms(self) -> float:
        """What synchronising a resource-centric repartitioning takes."""
        (fewest, most), (least_ms, most_ms) = REPARTITION_UPSTREAM, REPARTITION_MS
        return least_ms + (most_ms - least_ms) * (self.upstream - fewest) / (most - fewest)


def draw(setting: Setting, seconds: float, seed: int) -> NDArray[np.int64]:
    """Tuples offered in each slot to each shard, [slots, shards], Poisson around the frequencies of their
    keys. A key's shard stays, its frequency is shuffled."""
    random = np.random.default_rng((_STREAM, seed))
    frequencies = np.arange(1, KEYS + 1, dtype=np.float64) ** -setting.skew
    frequencies /= frequencies.sum()
    shard_of = random.integers(0, setting.shards, size=KEYS)
    slots = round(seconds * 1000 / SLOT_MS)
    per_slot = setting.offered_per_s * SLOT_MS / 1000
    rows = np.empty((slots, setting.shards), dtype=np.int64)
    starts = [0, *shuffles(setting, seconds)]
    for start, end in zip(starts, [*starts[1:], slots], strict=True):
        shares = np.bincount(shard_of, weights=random.permutation(frequencies), minlength=setting.shards)
        rows[start:end] = random.poisson(shares * per_slot, size=(end - start, setting.shards))
    return rows


def shuffles(setting: Setting, seconds: float) -> list[int]:
    """The slots that begin with a shuffle: the first one when the warm-up is over, then evenly."""
    if setting.shuffles_per_min <= 0:
        return []
    every_s = 60 / setting.shuffles_per_min
    times_s = np.arange(WARM_UP_S, seconds - 1e-9, every_s)
    return [round(at_s * 1000 / SLOT_MS) for at_s in times_s.tolist()]
