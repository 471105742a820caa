"""How an SLA stands at one moment, and what it came to over a run, as values.

Pure. Neighbours: `account` makes them, `penstock_operator.words.sla_words` has the words for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SlaLine:
    """Latencies in milliseconds over the last window: `mean_ms` of all rows, `worst_ms` of the worst shard,
    None when nothing was completed. `expected_ms` is the worst expected by the policy, math.inf when it never
    catches up. Over several operators they are sums along the path where that is most. Success is a share,
    None before a window was judged. `conditions` hold now."""

    name: str
    about: str
    policy: str
    dry_run: bool
    bound_ms: float
    window_ms: float
    mean_ms: float | None
    worst_ms: float | None
    expected_ms: float | None
    met: bool | None
    success_recent: float | None
    success: float | None
    executors: int
    tasks: int
    mean_tasks: float | None
    last_decision: str
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One second of one SLA. Rates of rows per second; `kept` of `judged` windows, over shards and looks."""

    at_s: float
    arrived_per_s: float | None
    completed_per_s: float
    mean_ms: float | None
    worst_ms: float | None
    executors: int
    tasks: int
    busy_cores: float
    kept: int
    judged: int


@dataclass(frozen=True, slots=True)
class SlaSummary:
    """One SLA over a run. `success_of_shards` is shard -> share of its windows; `decisions` counts treatments
    that were carried out (in a dry run: that would have been)."""

    name: str
    operator: str
    policy: str
    dry_run: bool
    bound_ms: float
    window_ms: float
    success: float | None
    success_recent: float | None
    success_of_shards: Mapping[str, float | None]
    mean_executors: float | None
    mean_tasks: float | None
    decisions: Mapping[str, int]
    timeline: tuple[TimelinePoint, ...]
    picture: str = ""
    """The file with the picture; empty where there is none."""
