"""An SLA at one moment and over a run, as values that view, log lines and summary show.

Neighbours: `loop` makes them, `live_view`, `log_lines` and `run_summary` show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock_operator import figure_words


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


def share(value: float | None) -> str:
    """0.98123 -> "98.1%"."""
    return figure_words.UNKNOWN if value is None else f"{value:.1%}"


def sla_words(line: SlaLine) -> str:
    """All of a line in one: "count: 34.0 ms of 250 ms (worst shard 80.1 ms), 98.1% kept, 3 tasks"."""
    mean, bound = figure_words.latency(line.mean_ms), figure_words.latency(line.bound_ms)
    text = f"{line.about} {mean} of {bound}, worst shard {figure_words.latency(line.worst_ms)}, "
    text += f"{share(line.success_recent)} kept, {line.tasks} tasks"
    if line.dry_run:
        text += ", dry run"
    return text + "".join(f", {kind}" for kind in line.conditions)


def summary_words(summary: SlaSummary) -> str:
    """What an SLA came to, in a sentence."""
    mean = figure_words.UNKNOWN if summary.mean_tasks is None else f"{summary.mean_tasks:.2f}"
    bound, window = figure_words.latency(summary.bound_ms), figure_words.latency(summary.window_ms)
    done = ", ".join(f"{number} {treatment}" for treatment, number in sorted(summary.decisions.items()))
    worst = min((s for s in summary.success_of_shards.values() if s is not None), default=None)
    verb = "would have been decided" if summary.dry_run else "decided"
    text = (
        f"{summary.name} ({summary.operator or 'end to end'} within {bound} over {window}, "
        f"{summary.policy}): kept {share(summary.success)} of windows, "
        f"{share(worst)} at the worst shard, with {mean} tasks on average; {verb}: {done or 'nothing'}"
    )
    return f"{text}; picture: {summary.picture}" if summary.picture else text
