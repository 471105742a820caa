"""The load that both systems are given: record n has a zipf key and a due time.

Nothing here depends on what was asked before: keys and due times of any range of record numbers are
pure functions of the seed and of the rate plan, so a reader that is restarted, or that lives in another
process, hands out the very same records. The source timestamp of a record is the moment it is *due*,
not the moment it is taken: a system that is late to fetch is charged for it (no coordinated omission).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEYS = 10_000
EXPONENT = 1.0
SEED = 7
BLOCK_RECORDS = 4096
_ROWS_STREAM = 0
_BLOCKS_KEPT = 4096


class ZipfKeys:
    """Key of record n, 0 <= key < keys; key k is drawn with a weight of 1 / (k + 1) ** exponent.

    The very keys that Penstock's zipf source gives under this seed, with one partition and no shuffles.
    """

    def __init__(self, keys: int = KEYS, exponent: float = EXPONENT, seed: int = SEED) -> None:
        shares = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
        self._shares = shares / shares[-1]
        self._seed = seed
        self._block = lru_cache(_BLOCKS_KEPT)(self._draw)

    def of(self, start: int, end: int) -> NDArray[np.int64]:
        """Keys of records start..end-1."""
        if end <= start:
            return np.empty(0, dtype=np.int64)
        first = start // BLOCK_RECORDS
        blocks = [self._block(number) for number in range(first, (end - 1) // BLOCK_RECORDS + 1)]
        begin = start - first * BLOCK_RECORDS
        return np.concatenate(blocks)[begin : begin + end - start]

    def _draw(self, block: int) -> NDArray[np.int64]:
        random = np.random.default_rng((_ROWS_STREAM, self._seed, 0, block))
        return np.searchsorted(self._shares, random.random(BLOCK_RECORDS), side="right")


@dataclass(frozen=True, slots=True)
class Segment:
    """From `at_us` on, records `number`, `number` + 1, ... are due at `rate_per_s`."""

    at_us: int
    number: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class RatePlan:
    """Segments in order of time. The rate may be raised while a system runs; the past never changes."""

    segments: tuple[Segment, ...]

    def due_before(self, now_us: int) -> int:
        """How many records are due by `now_us`."""
        current = self._at(now_us)
        if current is None:
            return 0
        elapsed_s = (now_us - current.at_us) / 1e6
        return current.number + int(elapsed_s * current.rate_per_s)

    def due_us(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Source timestamps, in microseconds of the wall clock, of the records with these numbers.

        A segment hands out record i when i + 1 intervals of it are over; `due_before` counts it from then on.
        """
        firsts = np.array([s.number for s in self.segments], dtype=np.int64)
        index = np.maximum(np.searchsorted(firsts, numbers, side="right") - 1, 0)
        starts = np.array([s.at_us for s in self.segments], dtype=np.int64)[index]
        rates = np.array([s.rate_per_s for s in self.segments], dtype=np.float64)[index]
        intervals = numbers - firsts[index] + 1
        return starts + np.ceil(intervals / rates * 1e6).astype(np.int64)

    def then(self, at_us: int, rate_per_s: float) -> RatePlan:
        """This plan up to `at_us`, another rate from there on."""
        return RatePlan((*self.segments, Segment(at_us, self.due_before(at_us), rate_per_s)))

    def _at(self, now_us: int) -> Segment | None:
        current = None
        for segment in self.segments:
            if segment.at_us <= now_us:
                current = segment
        return current


def write_plan(path: Path, plan: RatePlan) -> None:
    """Replace the plan that readers follow, in one step."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps([[s.at_us, s.number, s.rate_per_s] for s in plan.segments]))
    os.replace(fresh, path)


def read_plan(path: Path) -> RatePlan:
    """The plan written last. FileNotFoundError before the first."""
    return RatePlan(tuple(Segment(*fields) for fields in json.loads(path.read_text())))
