"""What a run computes: drawn from its seed, beside what the run itself draws.

Neighbours: `world` plays it; the workloads and `topologies` are what may come.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock_simulation.protocol.event_workload import make_windowed
from penstock_simulation.protocol.join_workload import make_joined
from penstock_simulation.protocol.table_workload import Rerouted
from penstock_simulation.protocol.topologies import (
    Topology,
    by_event_time,
    by_tables,
    by_the_clock,
    joined,
)
from penstock_simulation.protocol.workload import Workload, make_initial, make_partitions
from penstock_worker.windows.interval_join import IntervalJoinProcessor


@dataclass(frozen=True, slots=True)
class Shares:
    """How many of the runs, 0..1, have what: `initial` state, where they do not join; and of those by event
    time a join (`joined`), and a partition that is idle and comes back (`resting`)."""

    joined: float = 0.35
    resting: float = 0.4
    initial: float = 0.3


SHARES = Shares()


def drawn(
    seed: int,
    rng: random.Random,
    rows_max: int,
    shares: Shares,
    join: Callable[..., IntervalJoinProcessor],
    *,
    event_time: bool,
    tables: bool = False,
) -> tuple[Workload, Topology]:
    """`rng` is the run's own; `join` is what joins."""
    lot = random.Random(f"what {seed} computes")  # noqa: S311 - a seeded run
    is_joined, is_resting, is_initial = (
        lot.random() < share for share in (shares.joined, shares.resting, shares.initial)
    )
    if tables:
        return Rerouted(make_partitions(rng, rows_max)), by_tables()
    initial = make_initial(lot) if is_initial else None
    if not event_time:
        workload = Workload(make_partitions(rng, rows_max), initial)
        return workload, by_the_clock(initial=is_initial)
    if is_joined:
        of_both = make_joined(rng, rows_max, resting=is_resting)
        return of_both, joined(join, resting=of_both.rest is not None)
    windowed = make_windowed(rng, rows_max, resting=is_resting, initial=initial)
    return windowed, by_event_time(initial=is_initial, resting=windowed.rest is not None)
