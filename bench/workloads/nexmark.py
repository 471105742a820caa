"""StreamSwitch's NEXMark experiments: Q8 (section 6.3), Q2 on mixed resources (6.4), Q5 at its limits (6.5).

What decides the outcome is the load and what an executor can do, so a query is these two here. Each figure is
marked as published or assumed; none was chosen by looking at a policy's result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from bench.workloads.sinusoid import SLOT_MS, Sinusoid, draw
from numpy.typing import NDArray

SHARDS = 64
"""Assumed: as many substreams as in the stock exchange."""
KEYS = 1000
"""Assumed: bidders, sellers or auctions at a time, all equally frequent, over the shards by a hash."""
START_UP_MS = 1000.0
"""Assumed: from the order for an executor to its first row."""
SERVICE_SCV = 1.0
"""Assumed: exponential service times, as in the model of section 4.2."""
_STREAM = 2


@dataclass(frozen=True, slots=True)
class Query:
    """One setting of one query: its load, its executors, how long it is measured, after how long a
    warm-up."""

    name: str
    load: Sinusoid
    service_per_s: float
    warm_up_s: float
    measured_s: float
    switching_ms: float
    mixed_factor: float = 1.0
    """Alpha: the service rate of a mixed resource over that of the baseline."""
    mixed_share: float = 0.0
    """Beta: how probable it is that a new executor is a mixed one."""

    @property
    def seconds(self) -> float:
        """Warm-up and measurement."""
        return self.warm_up_s + self.measured_s

    def rows(self, seed: int, slot_ms: int = SLOT_MS) -> NDArray[np.int64]:
        """Rows of each slot and shard, [slots, shards]."""
        return draw(self.load, self.seconds, key_shares(seed), (_STREAM, seed), slot_ms)


def key_shares(seed: int) -> NDArray[np.float64]:
    """Share of each shard when `KEYS` equally frequent keys are hashed over the shards."""
    random = np.random.default_rng((_STREAM, seed, KEYS))
    held = np.bincount(random.integers(0, SHARDS, size=KEYS), minlength=SHARDS)
    shares: NDArray[np.float64] = held / KEYS
    return shares


def q8() -> Query:
    """Window join with l and delta varied from 20 ms to 500 ms (figures 10, 11)."""
    return Query(
        name="q8",
        load=Sinusoid(30_000, 30_000, 600),  # published
        service_per_s=5_000,  # assumed: the paper gives none
        warm_up_s=0,  # published: 30-minute runs, no warm-up is mentioned
        measured_s=1_800,
        # assumed: Flink's switching time in figure 14 is "around 0.5s" when there is least load
        switching_ms=500,
    )


Q8_MS = (20, 50, 100, 200, 500)
"""Values of l and of delta: the ends are published, those between are assumed."""


def q2(alpha: float, beta: float) -> Query:
    """Selection on mixed resources (figures 12, 13)."""
    return Query(
        name="q2",
        load=Sinusoid(30_000, 10_000, 600),  # published
        service_per_s=4_000,  # published
        warm_up_s=1_200,  # published
        measured_s=3_600,  # published
        switching_ms=500,  # assumed, as for Q8
        mixed_factor=alpha,
        mixed_share=beta,
    )


Q2_ALPHAS = (0.5, 0.75, 1.25, 1.5)
"""Published."""
Q2_BETAS = (0.2, 0.4, 0.6, 0.8)
"""0.2 and 0.8 are published as the ends, the two between are assumed."""


def q5(amplitude_per_s: float, period_s: float, added_ms: float = 0.0) -> Query:
    """Sliding window on few strong executors (figures 14, 15); `added_ms` is the added delay of a
    treatment."""
    return Query(
        name="q5",
        load=Sinusoid(30_000, amplitude_per_s, period_s),  # published
        service_per_s=10_000,  # published
        warm_up_s=60,  # published
        measured_s=600,  # published
        switching_ms=500 + added_ms,  # 500 assumed: "average switching time increases from around 0.5s"
    )


Q5_LOADS = ((10_000, 90), (20_000, 90), (30_000, 90), (30_000, 80), (30_000, 70))
"""(amplitude, period): the ends are published, 20 000 and 80 s between them are assumed."""
Q5_ADDED_MS = (0, 1_000, 2_000)
"""Published, on the first of the loads."""
