"""Sinusoidal load, as StreamSwitch's NEXMark and word-count experiments have it (sections 6.3 to 6.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOT_MS = 100


@dataclass(frozen=True, slots=True)
class Sinusoid:
    """base + amplitude * sin(2 pi t / period), in rows per second, from the base upwards; never below
    zero."""

    base_per_s: float
    amplitude_per_s: float
    period_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.amplitude_per_s <= self.base_per_s or self.period_s <= 0:
            raise ValueError(f"{self} is no load")

    def per_slot(self, seconds: float, slot_ms: int = SLOT_MS) -> NDArray[np.float64]:
        """Expected rows of each slot: the rate at its middle, [slots]."""
        slot_s = slot_ms / 1000
        at_s = (np.arange(round(seconds / slot_s)) + 0.5) * slot_s
        wave = np.sin(2 * np.pi * at_s / self.period_s)
        rows: NDArray[np.float64] = (self.base_per_s + self.amplitude_per_s * wave) * slot_s
        return rows


def draw(
    load: Sinusoid,
    seconds: float,
    shares: NDArray[np.float64],
    key: tuple[int, ...],
    slot_ms: int = SLOT_MS,
) -> NDArray[np.int64]:
    """Rows of each slot and shard, [slots, shards]: independent Poisson numbers around `load` times `shares`.

    `key` is the seed, and what keeps the workloads of one seed apart.
    """
    random = np.random.default_rng(key)
    rows: NDArray[np.int64] = random.poisson(
        load.per_slot(seconds, slot_ms)[:, None] * (shares / shares.sum())
    )
    return rows
