"""Rates, latencies and backlogs of a topology, from what its stores counted.

A figure is a difference between two samples; what is not known is None, never zero (promise 7): no difference
reaches across a store's generation, a shard's new home or another writer. Neighbours: `memory` keeps the
samples, `status` shows the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.metrics.rows import TaskRow


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all stores. `completed` is shard -> (home, generation, rows worked), `tasks` is (store, row
    name) -> row."""

    at_s: float
    completed: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    tasks: Mapping[tuple[str, str], TaskRow] = field(default_factory=dict)
