"""Account: what keeping the promise costs, how well it is kept, and how it went second by second.

Tasks and executors count over time, windows are those that `judge` has judged. Neighbours: `loop` hands in
each look, `standing` is what comes out, `brought` does the same for single decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.control.split_sla import heaviest_until
from penstock.sla.judge import Judged, WindowJudge
from penstock.sla.look import SlaLook
from penstock.sla.promise import Promise
from penstock.sla.standing import SlaLine, SlaSummary, TimelinePoint

TIMELINE_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Deciding:
    """How the SLA's decisions stand: in words, by treatment, what they expect, and what hinders them.
    `is_behind`: sources are further behind than is allowed, which no window of an operator shows."""

    last: str
    counts: Mapping[str, int]
    expected_us: Mapping[str, float]
    conditions: Mapping[str, str]
    is_behind: bool = False


@dataclass(slots=True)
class _Operator:
    """What is kept of one operator in scope."""

    tasks: int = 0
    executors: int = 0
    judged: Judged | None = None
    arrived: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    """(generation, rows) at the last point of the timeline."""


class Account:
    """Of one SLA. `edges` are those between operators in scope; `judges` hold their success."""

    def __init__(
        self,
        promise: Promise,
        edges: tuple[tuple[str, str], ...],
        judges: Mapping[str, WindowJudge],
        *,
        keeps_timeline: bool,
    ) -> None:
        self._promise = promise
        self._edges = edges
        self._judges = judges
        self._keeps_timeline = keeps_timeline
        self._operators = {name: _Operator() for name in promise.scope.targets}
        self._began_us: int | None = None
        self._last_us = 0
        self._task_us = 0.0
        self._executor_us = 0.0
        self._timeline: list[TimelinePoint] = []
        self._point_us = 0
        self._point_counts = [0, 0]

    def tasks(self, operator: str) -> int:
        """What it had at the last look."""
        return self._operators[operator].tasks

    def judged(self, operator: str) -> Judged | None:
        """At the last look; None before there was a window."""
        return self._operators[operator].judged

    # --- a look -----------------------------------------------------------------------------------

    def take(self, look: SlaLook, judged: Mapping[str, Judged | None]) -> None:
        """A look, and what its windows were judged to be."""
        passed_us = look.at_us - self._last_us if self._began_us is not None else 0
        if self._began_us is None:
            self._began_us = look.at_us
        self._last_us = look.at_us
        for name, kept in self._operators.items():
            self._task_us += kept.tasks * passed_us
            self._executor_us += kept.executors * passed_us
            schedule = look.places.schedules[name]
            kept.tasks = schedule.tasks
            kept.executors = sum(executor.tasks > 0 for executor in schedule.executors)
            kept.judged = one = judged[name]
            if one is not None:
                self._point_counts[0] += one.kept
                self._point_counts[1] += one.judged

    def draw(self, look: SlaLook) -> None:
        """A point of the timeline, once a second."""
        if look.at_us < self._point_us or self._began_us is None or not self._keeps_timeline:
            return
        self._point_us = look.at_us + TIMELINE_US
        judged = list(self._judged_now().values())
        at_s = (look.at_us - self._began_us) / 1e6
        passed_s = at_s - self._timeline[-1].at_s if self._timeline else 0.0
        mean_us, worst_us = self._latencies_us()
        self._timeline.append(
            TimelinePoint(
                at_s=at_s,
                arrived_per_s=self._arrived_per_s(look, passed_s),
                completed_per_s=sum(one.completed_per_s for one in judged),
                mean_ms=_ms(mean_us),
                worst_ms=_ms(worst_us),
                executors=self._executors,
                tasks=self._tasks,
                busy_cores=sum(one.busy_cores for one in judged),
                kept=self._point_counts[0],
                judged=self._point_counts[1],
            )
        )
        self._point_counts = [0, 0]

    def _arrived_per_s(self, look: SlaLook, passed_s: float) -> float | None:
        """Rows that arrived at all operators in scope since the last point; None where that is not known."""
        total: float | None = 0.0
        for name, kept in self._operators.items():
            now = {
                shard: None if known is None else (known.generation, known.arrived_rows)
                for shard, known in look.samples.counters[name].items()
            }
            before, kept.arrived = kept.arrived, now
            grown = _grown(before, now)
            total = None if total is None or grown is None or passed_s <= 0 else total + grown / passed_s
        return total

    # --- how it stands ----------------------------------------------------------------------------

    def line(self, deciding: Deciding) -> SlaLine:
        """How it stands."""
        promise, judged = self._promise, self._judged_now().values()
        mean_us, worst_us = self._latencies_us()
        return SlaLine(
            name=promise.name,
            about=promise.operator or "end to end",
            policy=promise.policy,
            dry_run=promise.dry_run,
            bound_ms=promise.latency_us / 1000,
            window_ms=promise.window_us / 1000,
            mean_ms=_ms(mean_us),
            worst_ms=_ms(worst_us),
            expected_ms=_ms(self._along_paths(deciding.expected_us)),
            met=_met(judged, is_behind=deciding.is_behind),
            success_recent=_mean(judge.success_recent() for judge in self._judges.values()),
            success=_mean(judge.success() for judge in self._judges.values()),
            executors=self._executors,
            tasks=self._tasks,
            mean_tasks=self._over_time(self._task_us),
            last_decision=deciding.last,
            conditions=dict(deciding.conditions),
        )

    def summary(self, deciding: Deciding) -> SlaSummary:
        """What it came to."""
        line = self.line(deciding)
        return SlaSummary(
            name=line.name,
            operator=self._promise.operator,
            policy=line.policy,
            dry_run=line.dry_run,
            bound_ms=line.bound_ms,
            window_ms=line.window_ms,
            success=line.success,
            success_recent=line.success_recent,
            success_of_shards={
                shard: share
                for judge in self._judges.values()
                for shard, share in judge.success_of_shards().items()
            },
            mean_executors=self._over_time(self._executor_us),
            mean_tasks=line.mean_tasks,
            decisions=dict(deciding.counts),
            timeline=tuple(self._timeline),
        )

    @property
    def _tasks(self) -> int:
        return sum(kept.tasks for kept in self._operators.values())

    @property
    def _executors(self) -> int:
        return sum(kept.executors for kept in self._operators.values())

    def _judged_now(self) -> dict[str, Judged]:
        return {name: kept.judged for name, kept in self._operators.items() if kept.judged is not None}

    def _latencies_us(self) -> tuple[float | None, float | None]:
        """Of all rows, and at the worst shards."""
        judged = self._judged_now()
        mean_us = self._along_paths({name: one.mean_us for name, one in judged.items()})
        return mean_us, self._along_paths({name: one.worst_us for name, one in judged.items()})

    def _along_paths(self, values: Mapping[str, float | None]) -> float | None:
        """The greatest sum of the operators' values along a path; who has none adds nothing. None when nobody
        has one."""
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            return None
        sums = heaviest_until({name: known.get(name, 0.0) for name in self._operators}, self._edges)
        return max(sums.values())

    def _over_time(self, sum_us: float) -> float | None:
        passed_us = self._last_us - self._began_us if self._began_us is not None else 0
        return sum_us / passed_us if passed_us > 0 else None


def _grown(
    before: Mapping[str, tuple[int, int] | None], now: Mapping[str, tuple[int, int] | None]
) -> int | None:
    """The difference of counts over all shards; each is (generation, rows). None where one is missing."""
    rows = 0
    for shard, count in now.items():
        earlier = before.get(shard)
        if count is None or earlier is None or count[0] != earlier[0]:
            return None
        rows += count[1] - earlier[1]
    return rows if now else None


def _met(judged: Collection[Judged], *, is_behind: bool) -> bool | None:
    if is_behind:
        return False
    return all(one.kept == one.judged for one in judged) if any(one.judged for one in judged) else None


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
