"""When Elasticutor's scheduler has nothing to do: a quick answer for looks that are taken in many at once.

It says yes only where the whole step would change nothing: every executor has ceil(lambda / mu) + 1 cores or
more (or what its shards need), and that keeps every bound within limits and budget. Then Algorithm 1 has
nobody to serve. Neighbours: `elasticutor` asks, `jackson` and `core_assignment` of the policy are
what it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.control.elasticutor.jackson import (
    Integers,
    Network,
    expected_latency_us,
    minimal_cores,
    sojourn_us,
)
from penstock.control.elasticutor.load import Load
from penstock.control.elasticutor.plant import Plant, plant_of
from penstock.control.target import Scope


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What stays the same over looks with the same executors. `may_rest`: cores as they are keep limits,
    budget and nodes."""

    plant: Plant
    totals: Integers
    fewest: tuple[int, ...]
    """By operator: the least cores of its limits."""
    may_rest: bool
    threshold_bytes_per_s: float

    @classmethod
    def of(cls, load: Load, scope: Scope, threshold_bytes_per_s: float) -> Rest:
        plant = plant_of(load, scope)
        totals = np.array(plant.totals, dtype=np.int64)
        limits = [scope.limits_of(each.operator) for each in load.operators]
        used = np.bincount(load.operator, totals, len(limits)).tolist()
        within = all(count <= limit.max for count, limit in zip(used, limits, strict=True))
        milli = [count * size for count, size in zip(used, plant.core_milli, strict=True)]
        held = [0] * len(plant.nodes)
        for cores, operator in zip(plant.assigned, load.operator.tolist(), strict=True):
            for node, count in cores.items():
                held[node] += count * plant.core_milli[operator]
        fits = all(mine <= most for mine, most in zip(held, plant.capacity_milli, strict=True))
        return cls(
            plant=plant,
            totals=totals,
            fewest=tuple(limit.min for limit in limits),
            may_rest=within and fits and not any(plant.lost) and sum(milli) <= plant.budget_milli,
            threshold_bytes_per_s=threshold_bytes_per_s,
        )

    def needed(self, load: Load, naive: bool) -> Integers | None:
        """k, where everyone has at least that many cores and nobody is data-intensive (naive-EC does not
        ask); else None."""
        arrival = load.demand_per_s
        known = (arrival == 0) | (arrival > 0) & (load.service_per_s > 0)
        if not self.may_rest or not len(arrival) or not known.all():
            return None
        service = np.where(arrival > 0, load.service_per_s, 1.0)
        if load.shard_loads:
            needed = np.array([1 if each is None else each.tasks_needed() for each in load.shard_loads])
        else:
            needed = np.minimum(minimal_cores(arrival, service), np.maximum(1, load.shards))
            if (arrival / service >= needed).any():
                return None
        if (needed > self.totals).any():
            return None
        by_operator = np.bincount(load.operator, needed, len(self.fewest))
        if (by_operator < self.fewest).any():
            return None
        if not naive and (np.nan_to_num(load.bytes_per_s) / needed > self.threshold_bytes_per_s).any():
            return None
        return needed

    def latencies_us(self, network: Network, cores: Integers) -> Iterator[tuple[float, float]]:
        """(E[T], T_max) of each bound."""
        time_us = sojourn_us(network.arrival_per_s, network.service_per_s, cores)
        bound_of = np.array([part.bound for part in network.parts])[network.part]
        for index, bound in enumerate(network.bounds):
            mine = bound_of == index
            yield (
                expected_latency_us(network.arrival_per_s[mine], time_us[mine], bound.input_per_s),
                bound.target_us,
            )
