"""Loads drawn from seeds, and what they run on: a search over them finds what a policy is bad at.

A seed gives everything: how the rate goes (waves, saws, steps, ramps, spikes, or keys that are shuffled), how
skewed keys are, how long a row takes, what latency is asked for and how many tasks are allowed. The topology
is what `penstock simulate` assumes of one. Neighbours: `replay` runs a policy on it,
`tests/simulation/test_policies_compared.py` sets the default policy beside its parents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.simulation.queueing.model import (
    Arrivals,
    FloatArray,
    InitialExecutor,
    IntArray,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    Switching,
)

OPERATOR = "o"
NODE = "here"
FAMILIES = ("wave", "saw", "steps", "ramps", "spikes", "shuffles")
SLOT_US = 100_000
START_US = 700_000
MOVE_US = 50_000
CLAIM_US = 5_000
"""As `penstock simulate` assumes: until a task works, until a schedule reaches it, a claim."""
KEYS = 10_000
PEAK_SHARE = (0.3, 0.7)
"""The work of the highest rate, as a share of what all tasks that are allowed could do: what no policy can
serve tells nothing of any."""
SHARD_LOAD_MAX = 0.6
"""Of a task: the most that a shard alone asks for at the highest rate. A shard cannot be split."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnLoad:
    """`rows` is [slots, shards]; `tasks_at_start` are spread over `workers` executors where these have
    several tasks, else one task is an executor."""

    seed: int
    family: str
    rows: IntArray
    rates_per_s: FloatArray
    skew: float
    service_us: float
    target: LatencyTarget
    limits: TaskLimits
    tasks_at_start: int
    workers: int

    @property
    def scope(self) -> Scope:
        """What a policy is to keep."""
        return Scope({OPERATOR: self.target}, {OPERATOR: self.limits})

    @property
    def work_tasks(self) -> float:
        """Tasks that the rows' work alone needs on average."""
        seconds = len(self.rows) * SLOT_US / 1e6
        return float(self.rows.sum()) * self.service_us / 1e6 / seconds

    @property
    def arrivals(self) -> Arrivals:
        return Arrivals(SLOT_US, {OPERATOR: self.rows})

    def topology(self, *, single_tasks: bool) -> SimulatedTopology:
        """`single_tasks`: executors have one task each, as StreamSwitch has them."""
        count = self.tasks_at_start if single_tasks else min(self.tasks_at_start, self.workers)
        node = "" if single_tasks else NODE
        executors = tuple(
            InitialExecutor(
                f"{OPERATOR}-{n}",
                self.tasks_at_start * (n + 1) // count - self.tasks_at_start * n // count,
                node,
            )
            for n in range(count)
        )
        operator = SimulatedOperator(
            name=OPERATOR,
            shards=self.rows.shape[1],
            service_us=self.service_us,
            executors=executors,
            service=Service.EXPONENTIAL,
            start_delay_us=START_US,
            task_start_delay_us=START_US,
            switching=Switching(fixed_us=MOVE_US, us_per_shard=CLAIM_US, copies_within_node=False),
        )
        return SimulatedTopology((operator,), nodes={} if single_tasks else {NODE: self.limits.max})

    def __str__(self) -> str:
        rates = self.rates_per_s
        return (
            f"seed {self.seed}: {self.family} of {rates.min():.0f} to {rates.max():.0f} rows/s, "
            f"{self.service_us / 1000:.2f} ms a row, skew {self.skew:.2f}, {self.rows.shape[1]} shards, "
            f"{self.target.latency_us / 1000:.0f} ms allowed, {self.limits.min} to {self.limits.max} tasks, "
            f"{self.tasks_at_start} at first on {self.workers} workers"
        )


def draw(seed: int, seconds: float, family: str | None = None) -> DrawnLoad:
    """The load of `seed`, `seconds` long; of `family` if one is given, else seeds take them in turns."""
    rng = np.random.default_rng((seed, 7))
    family = family or FAMILIES[seed % len(FAMILIES)]
    slots = round(seconds * 1e6 / SLOT_US)
    shards = int(rng.choice([16, 32, 64]))
    service_us = float(np.exp(rng.uniform(np.log(500), np.log(20_000))))
    latency_us = float(np.clip(service_us * np.exp(rng.uniform(np.log(8), np.log(100))), 30_000, 2_000_000))
    tasks_max = int(rng.integers(4, 25))
    tasks_min = int(rng.choice([1, 1, 2]))
    peak_per_s = tasks_max * rng.uniform(*PEAK_SHARE) * 1e6 / service_us
    least_per_s = peak_per_s * rng.uniform(0.03, 0.5)
    skew = float(rng.uniform(0.0, 1.1))
    shares = _shares(rng, skew, shards)
    heaviest = SHARD_LOAD_MAX * 1e6 / service_us / float(shares.max())
    peak_per_s, least_per_s = min(peak_per_s, heaviest), min(least_per_s, heaviest)
    shape = _shape(rng, family, slots)
    rates_per_s = least_per_s + (peak_per_s - least_per_s) * shape
    expected = rates_per_s[:, None] * (SLOT_US / 1e6) * _shares_over_time(rng, family, shares, slots)
    return DrawnLoad(
        seed=seed,
        family=family,
        rows=rng.poisson(expected),
        rates_per_s=rates_per_s,
        skew=skew,
        service_us=service_us,
        target=LatencyTarget(latency_us, alert_us=min(100_000.0, latency_us), interval_us=SLOT_US),
        limits=TaskLimits(tasks_min, tasks_max),
        tasks_at_start=int(rng.integers(tasks_min, min(4, tasks_max) + 1)),
        workers=int(rng.integers(1, 4)),
    )


def _shares(rng: np.random.Generator, skew: float, shards: int) -> FloatArray:
    """[shards], of the rows: keys by their rank, spread over shards at random."""
    of_keys = np.arange(1, KEYS + 1, dtype=np.float64) ** -skew
    shares = np.zeros(shards)
    np.add.at(shares, rng.integers(shards, size=KEYS), of_keys / of_keys.sum())
    return shares


def _shares_over_time(rng: np.random.Generator, family: str, shares: FloatArray, slots: int) -> FloatArray:
    """[slots, shards]; they change places where keys are shuffled."""
    over_time = np.tile(shares, (slots, 1))
    if family == "shuffles":
        slot = 0
        while (slot := slot + round(rng.uniform(5, 30) * 1e6 / SLOT_US)) < slots:
            over_time[slot:] = rng.permutation(shares)
    return over_time


def _shape(rng: np.random.Generator, family: str, slots: int) -> FloatArray:
    """[slots] of 0 to 1, from the least to the highest rate."""
    at_s = np.arange(slots) * SLOT_US / 1e6
    match family:
        case "wave":
            return (1 - np.cos(2 * np.pi * (at_s / rng.uniform(20, 160) + rng.uniform(0, 1)))) / 2
        case "saw":
            shape = (at_s / rng.uniform(10, 90)) % 1.0
            return shape if rng.random() < 0.5 else 1 - shape
        case "steps":
            return _held(rng, slots, (5, 40), at_s)
        case "ramps":
            knots_s = np.cumsum(rng.uniform(3, 30, size=slots))
            return np.interp(at_s, knots_s, rng.uniform(0, 1, size=slots))
        case "spikes":
            shape = np.zeros(slots)
            begin_s = 0.0
            while (begin_s := begin_s + rng.uniform(4, 30)) < at_s[-1]:
                length_s = rng.uniform(0.5, 8)
                shape[(at_s >= begin_s) & (at_s < begin_s + length_s)] = rng.uniform(0.3, 1)
            return shape
        case "shuffles":
            return 0.5 + 0.5 * _held(rng, slots, (20, 60), at_s)
    raise ValueError(f"there is no family {family}")


def _held(rng: np.random.Generator, slots: int, held_s: tuple[float, float], at_s: FloatArray) -> FloatArray:
    """Levels that are held for so long each."""
    ends_s = np.cumsum(rng.uniform(*held_s, size=slots))
    return rng.uniform(0, 1, size=slots)[np.searchsorted(ends_s, at_s, side="right")]
